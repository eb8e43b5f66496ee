//! BT063: processes end with errors again and again, and others are started in their place.
//!
//! The exit monitor of the agent sees some of the ends: children of supervisors that do something, new holders of registered names, and
//! new processes that were met by chance. An end in order (`normal`, `shutdown`, `{shutdown, _}`) is no error, however often it comes.
//! But a supervisor that starts several children again when one fails (`rest_for_one`, `one_for_all`) ends the others by `shutdown`: how
//! often these end says how often that one fails, which may end before it is monitored.

use std::collections::BTreeSet;

use beamtune_model::{
    Account, Code, Confidence, Evidence, ExitRow, Missing, Period, Scale, Signal, Subject, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::largest_first;
use crate::signals::names::NAMES;
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT063"),
    name: "crash-loop",
    question: "Do processes end with errors again and again?",
    confirm: "crash reports of the same process and reason in the node's log, unless its level hides them (logger:get_primary_config())",
    needs: &[&metrics::EXIT_MONITORED],
    account: Account::Delay,
    needs_minutes: true,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

/// Ends with errors in a second.
const RATE: Threshold = Threshold::new(
    "crash-loop.exits_per_s",
    "processes that end with an error, a second",
    Scale {
        notice: 0.000_1,
        warning: 0.05,
        critical: 10.0,
        source: "judgement: three in a minute are no accident; a supervisor gives up at more than one in five seconds unless it is told \
             otherwise",
    },
);

/// Fewer are no loop (judgement).
const LOOP: i64 = 3;

/// As many siblings must be ended again and again before that is a restart of all: somebody may end one on purpose (judgement).
const SIBLINGS: usize = 2;

/// Of processes without a name, where fewer than this share of the ends that were seen are errors, most of the work is done (judgement).
const MOSTLY_IN_ORDER: f64 = 0.1;

/// So many ends in a second with a reason of the program's own are more than anybody means (judgement).
const MEANT_PER_S: f64 = 2.0;

/// How many loops are reported, the most frequent ones.
const MAX_LOOPS: usize = 5;

/// The reason of a process that was ended by `exit(Pid, kill)`, or by the VM at its heap limit.
const KILLED: &str = "killed";

/// Ends with errors of processes that one parent has started alike.
struct Loop<'a> {
    rows: Vec<&'a ExitRow>,
    errors: i64,
    /// Of the ends under that parent that were seen, those with errors.
    share: f64,
    /// Those that the supervisor ends when one fails.
    siblings: Siblings<'a>,
}

/// Named children of one supervisor that it ends, and starts again.
#[derive(Default)]
struct Siblings<'a> {
    /// Each with its ends, the most frequent first.
    ends: Vec<(&'a str, i64)>,
}

impl<'a> Siblings<'a> {
    fn of(exits: &'a [ExitRow], parent: &ExitRow, is_meant: fn(&ExitRow) -> bool) -> Self {
        let rows =
            exits.iter().filter(|row| is_known(row) && parent_of(row) == parent_of(parent) && is_meant(row));
        Siblings { ends: largest_first(rows.filter_map(|row| Some((row.name.as_deref()?, row.count)))) }
    }

    /// How often that one was ended that was ended most often: at least so often all were.
    fn restarts(&self) -> i64 {
        self.ends.first().map_or(0, |(_, count)| *count)
    }

    /// Whether it is a restart of all of them.
    fn are_restarted(&self) -> bool {
        self.ends.iter().filter(|(_, count)| *count >= LOOP).count() >= SIBLINGS
    }

    /// `cache`, or `cache and 2 more`.
    fn named(&self) -> String {
        match &self.ends[..] {
            [] => "others".to_owned(),
            [(one, _)] => (*one).to_owned(),
            [(first, _), others @ ..] => format!("{first} and {} more", others.len()),
        }
    }

    fn evidence(&self, period: &Period) -> Evidence {
        let ends: Vec<String> =
            self.ends.iter().take(MAX_LOOPS).map(|(name, count)| format!("{name} {count}")).collect();
        Evidence::number("restarts with siblings", self.restarts() as f64 / period.seconds(), Unit::PerSecond)
            .with_text(format!("ended by the supervisor: {}", ends.join(", ")))
    }
}

/// True of an end in order by `shutdown` of a process with a name.
fn is_shut_down(row: &ExitRow) -> bool {
    row.reason.is_none() && row.name.is_some()
}

/// The same, or killed: a supervisor kills a child with `brutal_kill`, and one that does not end in time.
fn is_ended(row: &ExitRow) -> bool {
    is_shut_down(row) || row.name.is_some() && is_killed(row)
}

/// That it was killed, and not by the VM.
fn is_killed(row: &ExitRow) -> bool {
    row.reason.as_deref() == Some(KILLED) && row.heap_limit_words == 0
}

/// Those of whom nothing is known are no siblings.
fn is_known(row: &ExitRow) -> bool {
    row.parent_name.is_some() || row.parent_call.is_some()
}

fn parent_of(row: &ExitRow) -> (Option<&str>, Option<&str>) {
    (row.parent_name.as_deref(), row.parent_call.as_deref())
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let monitored = period.stat(&metrics::EXIT_MONITORED, "")?.max;
    let supervisors = period.stat(&metrics::EXIT_SUPERVISORS, "").map_or(0, |stat| stat.max);
    let seconds = period.seconds();
    if seconds <= 0.0 {
        return Ok(Judgement::NotJudged {
            reason: "one sample was taken only".to_owned(),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let loops = loops(&period.exits);
    let drafts = loops.iter().take(MAX_LOOPS);
    let drafts = drafts.filter_map(|found| {
        let rate = found.restarts() as f64 / seconds;
        RATE.of(period).severity(rate).map(|severity| describe(period, found, rate, severity))
    });
    let drafts: Vec<Draft> = drafts.chain(unseen(period, &loops)).collect();
    let all = period.exits.iter().map(|row| row.count).fold(0, i64::saturating_add);
    let errors = loops.iter().map(|found| found.errors).fold(0, i64::saturating_add);
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "of {all} ends of processes that were seen, {errors} came with an error; up to {monitored} processes were monitored, \
             {supervisors} supervisors are known"
        ),
    ))
}

/// Those that are children of the same parent and run the same, the most frequent first.
fn loops(exits: &[ExitRow]) -> Vec<Loop<'_>> {
    let parent = parent_of;
    let mut loops: Vec<Loop<'_>> = Vec::new();
    // What ended before it could be asked comes last, and is taken for the most frequent one of its parent.
    let (known, unknown): (Vec<&ExitRow>, Vec<&ExitRow>) =
        exits.iter().filter(|row| row.reason.is_some() && row.count > 0).partition(|row| row.call.is_some());
    for row in known.into_iter().chain(unknown) {
        let is_its =
            |found: &&mut Loop<'_>| {
                found.rows.iter().take(1).any(|first| {
                    parent(first) == parent(row) && (row.call.is_none() || first.call == row.call)
                })
            };
        match loops.iter_mut().find(is_its) {
            Some(found) => {
                found.rows.push(row);
                found.errors = found.errors.saturating_add(row.count);
            }
            None => loops.push(Loop {
                rows: vec![row],
                errors: row.count,
                share: 1.0,
                siblings: Siblings::default(),
            }),
        }
    }
    for found in &mut loops {
        let of = found.rows.first().map(|first| parent(first));
        let is_of = |row: &&ExitRow| Some(parent(row)) == of && !is_shut_down(row);
        let all = exits.iter().filter(is_of).map(|row| row.count);
        found.share = found.errors as f64 / all.fold(0, i64::saturating_add).max(1) as f64;
    }
    loops.sort_by_key(|found| std::cmp::Reverse(found.errors));
    add_siblings(&mut loops, exits);
    loops.sort_by_key(|found| std::cmp::Reverse(found.restarts()));
    loops
}

/// Adds those that are ended with one that fails: under each supervisor to the loop with most ends, which comes first.
fn add_siblings<'a>(loops: &mut Vec<Loop<'a>>, exits: &'a [ExitRow]) {
    let failing: Vec<&ExitRow> = loops
        .iter()
        .filter(|found| !found.is_killed())
        .filter_map(|found| found.rows.first().copied())
        .collect();
    // Of these it is known why they are killed, where their siblings are ended as well.
    loops.retain(|found| {
        let is_sibling = |row: &&ExitRow| {
            failing.iter().any(|first| parent_of(first) == parent_of(row))
                && !Siblings::of(exits, row, is_shut_down).ends.is_empty()
        };
        !(found.is_killed() && found.is_named() && found.rows.iter().all(is_sibling))
    });
    let mut told = Vec::new();
    for found in loops {
        let Some(first) = found.rows.first().copied() else { continue };
        if !told.contains(&parent_of(first)) {
            told.push(parent_of(first));
            let is_meant = if found.is_killed() { is_shut_down } else { is_ended };
            found.siblings = match Siblings::of(exits, first, is_shut_down).ends.is_empty() {
                true => Siblings::default(),
                false => Siblings::of(exits, first, is_meant),
            };
        }
    }
}

/// Restarts of several children of one supervisor without any failure that was seen.
fn unseen(period: &Period, loops: &[Loop<'_>]) -> Vec<Draft> {
    let mut told: Vec<_> =
        loops.iter().filter_map(|found| found.rows.first()).map(|row| parent_of(row)).collect();
    let mut drafts = Vec::new();
    for row in period.exits.iter().filter(|row| is_shut_down(row) && is_known(row)) {
        if told.contains(&parent_of(row)) {
            continue;
        }
        told.push(parent_of(row));
        let siblings = Siblings::of(&period.exits, row, is_shut_down);
        let rate = siblings.restarts() as f64 / period.seconds();
        let severity = RATE.of(period).severity(rate).filter(|_| siblings.are_restarted());
        drafts.extend(severity.map(|severity| describe_unseen(period, row, &siblings, rate, severity)));
    }
    drafts
}

fn describe_unseen(
    period: &Period,
    row: &ExitRow,
    siblings: &Siblings<'_>,
    rate: f64,
    severity: f64,
) -> Draft {
    let parent = row.parent_name.as_deref().or(row.parent_call.as_deref()).unwrap_or("a supervisor");
    let name = siblings.ends.first().map_or("", |(name, _)| name).to_owned();
    Draft::new(
        severity,
        format!(
            "{parent} ends {} and starts them again {}: a sibling fails",
            siblings.named(),
            often(rate, siblings.restarts())
        ),
    )
    .about(Subject::ProcessKind { name, starter: Some(parent.to_owned()) })
    .confidence(Confidence::Inferred)
    .because(siblings.evidence(period).against_scale(RATE.of(period)))
    .because(Evidence::text("started by", parent))
    .but("which child fails was not seen: it ended before it could be monitored, or has no name and ended in order")
    .but("who calls supervisor:terminate_child/2 for these again and again does the same")
    .fix(remedy::of(
        period,
        "code.crash_cause",
        &format!("find the child of {parent} that fails, in the crash and supervisor reports of the log, and mend the cause"),
        "with rest_for_one or one_for_all the supervisor ends its siblings with it, and their state is lost each time",
        "supervisor reports in a minute",
    ))
}

impl Loop<'_> {
    /// The end that came most often.
    fn most(&self) -> Option<&ExitRow> {
        self.rows.iter().copied().max_by_key(|row| row.count)
    }

    /// What has ended: its name, those of several, or what they run.
    fn child(&self) -> String {
        let names: BTreeSet<&str> = self.rows.iter().filter_map(|row| row.name.as_deref()).collect();
        let call = self.rows.iter().find_map(|row| row.call.as_deref());
        match (names.iter().next(), names.len(), call) {
            (Some(name), 1, _) => (*name).to_owned(),
            (Some(name), more, _) => format!("{name} and {} more", more - 1),
            (None, _, Some(call)) => call.to_owned(),
            (None, ..) => "a process".to_owned(),
        }
    }

    /// Who has started them; `None` if it is not known.
    fn parent(&self) -> Option<&str> {
        let row = self.rows.first()?;
        row.parent_name.as_deref().or(row.parent_call.as_deref()).or(row.parent.as_deref())
    }

    fn is_named(&self) -> bool {
        self.rows.iter().any(|row| row.name.is_some())
    }

    /// That all were killed, and not by the VM.
    fn is_killed(&self) -> bool {
        self.rows.iter().all(|row| is_killed(row))
    }

    /// How often it was started again: its siblings may have been seen more often than itself.
    fn restarts(&self) -> i64 {
        self.errors.max(self.siblings.restarts())
    }

    /// That processes without a name end with a reason of the program's own, and no exception: that may be how its work ends.
    fn may_be_meant(&self) -> bool {
        let is_own = |row: &&ExitRow| {
            let reason = row.reason.as_deref();
            row.stack.is_empty()
                && row.callee.is_none()
                && reason.is_some_and(|reason| reason.starts_with(|first: char| first.is_lowercase()))
                && !NAMES.faults.iter().any(|fault| Some(fault.as_str()) == reason)
        };
        !self.is_named() && self.siblings.ends.is_empty() && self.rows.iter().all(is_own)
    }

    /// The heap limit at which the most frequent end came.
    fn heap_limit(&self) -> Option<i64> {
        let row = self.most()?;
        (row.reason.as_deref() == Some(KILLED) && row.heap_limit_words > 0).then_some(row.heap_limit_words)
    }
}

/// A reason in words.
fn why(row: &ExitRow) -> String {
    let reason = row.reason.as_deref().unwrap_or(KILLED);
    if reason == KILLED && row.heap_limit_words > 0 {
        return format!("killed at its heap limit of {} words", row.heap_limit_words);
    }
    let callee = row.callee.as_ref().map_or(String::new(), |callee| format!(" to {callee}"));
    match place(row) {
        Some(place) => format!("{reason} in {place}{callee}"),
        None => reason.to_owned(),
    }
}

/// Where it was raised: the program's own function, where there is one.
fn place(row: &ExitRow) -> Option<String> {
    own_place(row).or_else(|| row.stack.first().map(|(function, _)| function.clone()))
}

/// The innermost function of the stack that is the program's own, with the line.
fn own_place(row: &ExitRow) -> Option<String> {
    let functions: Vec<String> = row.stack.iter().map(|(function, _)| function.clone()).collect();
    let own = stack::of_program(&functions)?;
    let line = row.stack.iter().find(|(function, _)| function == own).map_or(0, |(_, line)| *line);
    Some(if line > 0 { format!("{own} line {line}") } else { own.to_owned() })
}

/// How often, in words that fit the rate.
fn often(rate: f64, errors: i64) -> String {
    match errors {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ if rate >= 2.0 => format!("at least {rate:.0} times a second"),
        _ if rate * 60.0 >= 1.0 => format!("at least {:.0} times a minute", rate * 60.0),
        _ => format!("at least {:.0} times an hour", rate * 3_600.0),
    }
}

fn describe(period: &Period, found: &Loop<'_>, rate: f64, severity: f64) -> Draft {
    let child = found.child();
    let parent = found.parent();
    let most = found.most();
    let kind = Subject::ProcessKind { name: child.clone(), starter: parent.map(str::to_owned) };
    let limit = found.heap_limit();
    let flag = limit.filter(|limit| {
        view::emulator_flag(&period.facts, "+hmax").value().and_then(|words| words.parse().ok())
            == Some(*limit)
    });
    let reason = match flag {
        Some(words) => format!("killed at its heap limit, which +hmax {words} sets (words)"),
        None => most.map_or_else(String::new, why),
    };
    let is_line = !found.siblings.ends.is_empty();
    let may_be_meant = found.may_be_meant() && rate < MEANT_PER_S;
    let is_rare = !found.is_named() && !is_line && found.share < MOSTLY_IN_ORDER;
    let with = if is_line { format!(", and {} with it,", found.siblings.named()) } else { String::new() };
    let callee = most.and_then(|row| row.callee.clone());
    let of = parent.map_or(String::new(), |parent| format!(" of {parent}"));
    let often = often(rate, found.restarts());
    // Whoever is killed has not failed.
    let is_killed = found.is_killed();
    let summary = match is_killed && !is_line {
        true => format!("{child}{of} is killed {often}: exit(Pid, kill)"),
        false => format!("{child}{of} ends with an error{with} {often}: {reason}"),
    };
    let draft = Draft::new(severity, summary);
    // Who is killed has no time to report it.
    let draft = match is_killed {
        true => draft.confirmed_by("supervisor reports of the reason killed in the node's log; a killed process writes no crash report"),
        false => draft,
    };
    draft
    .about(match flag {
        Some(_) => Subject::Flag { name: "+hmax".to_owned() },
        None => kind.clone(),
    })
    .signals(flag.map(|_| Signal::Crashes(kind)))
    .signals(callee.clone().map(|name| Signal::WaitsFor(Subject::ProcessKind { name, starter: None })))
    .minor_if(found.restarts() < LOOP || is_rare || may_be_meant || is_killed)
    .guess_if(is_killed)
    .because(
        Evidence::number("ends with errors", found.errors as f64 / period.seconds(), Unit::PerSecond)
            .against_scale(RATE.of(period))
            .with_text(format!("{} seen in {}", found.errors, view::duration_text(period.seconds()))),
    )
    .because_some(is_line.then(|| found.siblings.evidence(period)))
    .because_some(started_by(found).map(|text| Evidence::text("started by", text)))
    .because_some(found.rows.iter().find_map(|row| row.call.clone()).map(|call| Evidence::text("runs", call)))
    .because_some((!reason.is_empty()).then(|| Evidence::text("reason", told(most, &reason))))
    .because_some(others(found, most).map(|text| Evidence::text("other reasons", text)))
    .because_some((found.share < 1.0).then(|| {
        Evidence::number("of the ends seen under this parent, these", found.share, Unit::Ratio)
    }))
    .but("only some processes are monitored: there may be many more such ends")
    .but_if(may_be_meant, "the program ends them itself, with a reason of its own: that may be meant, where others start in their place")
    .but_if(is_rare, "most of them end in order, so most of the work is done")
    .because_some(is_killed.then(|| Evidence::text("who kills them", "not known: no process is told who has ended another one")))
    .but_if(is_killed, "somebody ends them with exit(Pid, kill), which may be meant")
    .but_if(is_killed, "a process that is linked to one that is killed ends with this reason, too")
    .but_if(found.restarts() < LOOP, "a single failure looks the same: see whether it goes on")
    .fix_if(flag.is_some(), || {
        remedy::of(
            period,
            "+hmax",
            &format!("a higher +hmax than {} words, or none (+hmax 0) and a limit for single processes", limit.unwrap_or(0)),
            "the flag holds for each process: the VM kills this one whenever a collection leaves it with a larger heap",
            "ends in a minute, and the largest heap of the process (beamtune memory)",
        )
    })
    .fix_if(limit.is_some(), || {
        remedy::of(
            period,
            "process.max_heap_size",
            &format!("a limit of its own for {child}: process_flag(max_heap_size, Words) in its init, or spawn_opt where it is started"),
            "its work needs more heap than it may have; what it does in pieces needs less",
            "ends in a minute, and the largest heap of the process (beamtune memory)",
        )
    })
    .fix_if(is_killed, || {
        remedy::of(
            period,
            "code.end_in_order",
            &format!(
                "find who ends {child}: exit(Pid, kill) in the program, a time limit, or a supervisor (shutdown time, brutal_kill); let it end by a message or by exit(Pid, shutdown)"
            ),
            "a killed process runs no terminate/2; what it holds may stay: sockets with unsent data, work of others that it had begun",
            "ends in a minute, and the number of ports, under the same load",
        )
    })
    .fix_if(limit.is_none() && !is_killed, || {
        let at = most.and_then(own_place).map_or(String::new(), |place| format!(" at {place}"));
        let whom = callee.map_or(String::new(), |callee| format!(", and see why {callee} does not answer"));
        remedy::of(
            period,
            "code.crash_cause",
            &format!("mend the cause{at}: see the reason above, and the crash report of {child} in the log (at level error){whom}"),
            "a new process without its state does the same again; callers meanwhile get noproc, or lose what it knew",
            "crash reports in a minute",
        )
    })
    .fix_if(is_line, || {
        remedy::of(
            period,
            "code.restart_strategy",
            &format!("strategy one_for_one in {}, for siblings that do not need {child} anew", parent.unwrap_or("the supervisor")),
            "with rest_for_one or one_for_all the supervisor ends them with it, and their state is lost each time",
            "pids of the siblings, before and after a failure",
        )
    })
    .fix_if(limit.is_none() && !is_killed && most.is_some_and(|row| row.stack.is_empty()), || {
        remedy::of(
            period,
            "code.backoff",
            "where it cannot reach something: start without it, and try again after pauses that grow (handle_continue, timers)",
            "a supervisor restarts at once, and ends with all of its children when that comes too often",
            "restarts in a minute while what it needs is away",
        )
    })
}

/// Name, pid and module of the parent.
fn started_by(found: &Loop<'_>) -> Option<String> {
    let row = found.rows.iter().max_by_key(|row| row.t)?;
    let known = [&row.parent_name, &row.parent_call, &row.parent];
    let known: Vec<&str> = known.into_iter().filter_map(Option::as_deref).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The reason with the stack that it came with.
fn told(most: Option<&ExitRow>, reason: &str) -> String {
    let stack = most.map_or(&[][..], |row| row.stack.as_slice());
    match stack {
        [] | [_] => reason.to_owned(),
        _ => {
            let functions: Vec<&str> = stack.iter().map(|(function, _)| function.as_str()).collect();
            format!("{reason}; stack: {}", functions.join(", "))
        }
    }
}

/// The reasons besides the most frequent one.
fn others(found: &Loop<'_>, most: Option<&ExitRow>) -> Option<String> {
    const SHOWN: usize = 3;
    let mut reasons: Vec<String> = Vec::new();
    for row in &found.rows {
        let text = why(row);
        if most.is_none_or(|most| why(most) != text) && !reasons.contains(&text) {
            reasons.push(text);
        }
    }
    reasons.truncate(SHOWN);
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
