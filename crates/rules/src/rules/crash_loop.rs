//! BT063: processes crash repeatedly, and are restarted.
//!
//! The agent's exit monitor sees some of the exits. It monitors children of busy supervisors, new processes with registered names, and
//! sampled new processes. A normal exit (`normal`, `shutdown`, `{shutdown, _}`) is not a crash, however frequent. But a supervisor that
//! restarts several children when one fails (`rest_for_one`, `one_for_all`) ends the others with `shutdown`. Their exits show how often the
//! failing child exits, which may happen before it is monitored.

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
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT063"),
    name: "crash-loop",
    question: "Do processes crash repeatedly?",
    confirm: "find crash reports of the same process and reason in the node's log, unless its level hides them (logger:get_primary_config())",
    needs: &[&metrics::EXIT_MONITORED],
    account: Account::Delay,
    needs_minutes: true,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

const RATE: Threshold = Threshold::new(
    "crash-loop.exits_per_s",
    "crashes of processes per second",
    Scale {
        notice: 0.000_1,
        warning: 0.05,
        critical: 10.0,
        source: "judgement: three per minute are no coincidence; by default a supervisor gives up after more than one in five seconds",
    },
);

/// Minimum number of crashes in a loop (judgement).
const MIN_CRASHES: i64 = 3;

/// Minimum number of siblings that are ended repeatedly. A single one may be ended intentionally (judgement).
const MIN_SIBLINGS: usize = 2;

/// If crashes are a smaller share of the exits of processes without a name, most of the work is done (judgement).
const MIN_CRASH_SHARE: f64 = 0.1;

/// At a higher rate, exits with the application's own reason are not intended (judgement).
const MAX_INTENDED_PER_S: f64 = 2.0;

/// Maximum number of loops that are reported, most frequent first.
const MAX_LOOPS: usize = 5;

/// The exit reason after `exit(Pid, kill)`, and at the heap limit of a process.
const KILLED: &str = "killed";

/// A process whose name and initial call are unknown.
const UNKNOWN: &str = "a process";

/// End of the initial call of behaviours, after their callback module.
const INIT: &str = ":init/1";

/// Start of the initial call of a supervisor, before its callback module.
const SUPERVISOR: &str = "supervisor:";

/// Crashes of processes with the same parent and the same initial call.
struct Loop<'a> {
    rows: Vec<&'a ExitRow>,
    crashes: i64,
    /// Share of crashes among the observed exits under that parent, 0–1.
    share: f64,
    /// Siblings that the supervisor restarts with them.
    siblings: Siblings<'a>,
}

/// Named children that their supervisor ends and restarts.
#[derive(Default)]
struct Siblings<'a> {
    /// Names with their numbers of exits, most frequent first.
    exits: Vec<(&'a str, i64)>,
}

impl<'a> Siblings<'a> {
    /// Returns the children of the same parent whose exits match.
    fn of(exits: &'a [ExitRow], parent: &ExitRow, matches: fn(&ExitRow) -> bool) -> Self {
        let rows = exits
            .iter()
            .filter(|row| has_known_parent(row) && parent_of(row) == parent_of(parent) && matches(row));
        Siblings { exits: largest_first(rows.filter_map(|row| Some((row.name.as_deref()?, row.count)))) }
    }

    /// Exits of the sibling that exited most often. All siblings were restarted at least this often.
    fn restarts(&self) -> i64 {
        self.exits.first().map_or(0, |(_, count)| *count)
    }

    /// Whether they are restarted together repeatedly.
    fn are_restarted(&self) -> bool {
        self.exits.iter().filter(|(_, count)| *count >= MIN_CRASHES).count() >= MIN_SIBLINGS
    }

    /// `cache`, or `cache and 2 more`.
    fn names(&self) -> String {
        match &self.exits[..] {
            [] => "others".to_owned(),
            [(one, _)] => (*one).to_owned(),
            [(first, _), others @ ..] => format!("{first} and {} more", others.len()),
        }
    }

    fn evidence(&self, period: &Period) -> Evidence {
        let exits: Vec<String> =
            self.exits.iter().take(MAX_LOOPS).map(|(name, count)| format!("{name} {count}")).collect();
        Evidence::number("restarts with siblings", self.restarts() as f64 / period.seconds(), Unit::PerSecond)
            .with_text(format!("shut down by the supervisor: {}", exits.join(", ")))
    }
}

/// Whether a named process exited with `shutdown`.
fn is_shut_down(row: &ExitRow) -> bool {
    row.reason.is_none() && row.name.is_some()
}

/// Whether a named process exited with `shutdown` or was killed. A supervisor kills children with `brutal_kill`, and those that do not exit
/// in time.
fn is_ended(row: &ExitRow) -> bool {
    is_shut_down(row) || row.name.is_some() && is_killed(row)
}

/// Whether it was killed, but not by the VM at its heap limit.
fn is_killed(row: &ExitRow) -> bool {
    row.reason.as_deref() == Some(KILLED) && row.heap_limit_words == 0
}

/// Whether the parent is known. Processes with unknown parents are not siblings.
fn has_known_parent(row: &ExitRow) -> bool {
    row.parent_name.is_some() || row.parent_call.is_some()
}

/// Name and initial call of the parent, which identify it.
fn parent_of(row: &ExitRow) -> (Option<&str>, Option<&str>) {
    (row.parent_name.as_deref(), row.parent_call.as_deref())
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let monitored = period.stat(&metrics::EXIT_MONITORED, "")?.max;
    let supervisors = period.stat(&metrics::EXIT_SUPERVISORS, "").map_or(0, |stat| stat.max);
    let seconds = period.seconds();
    if seconds <= 0.0 {
        return Ok(Judgement::NotJudged {
            reason: "only one sample".to_owned(),
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
    let crashes = loops.iter().map(|found| found.crashes).fold(0, i64::saturating_add);
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "{crashes} crashes in {all} exits; at most {monitored} processes monitored, {supervisors} supervisors"
        ),
    ))
}

/// Finds crashes of processes with the same parent and the same initial call, most frequent first.
fn loops(exits: &[ExitRow]) -> Vec<Loop<'_>> {
    let parent = parent_of;
    let mut loops: Vec<Loop<'_>> = Vec::new();
    // Processes with an unknown call come last, and are added to the most frequent loop of their parent.
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
                found.crashes = found.crashes.saturating_add(row.count);
            }
            None => loops.push(Loop {
                rows: vec![row],
                crashes: row.count,
                share: 1.0,
                siblings: Siblings::default(),
            }),
        }
    }
    for found in &mut loops {
        let of = found.rows.first().map(|first| parent(first));
        let is_of = |row: &&ExitRow| Some(parent(row)) == of && !is_shut_down(row);
        let all = exits.iter().filter(is_of).map(|row| row.count);
        found.share = found.crashes as f64 / all.fold(0, i64::saturating_add).max(1) as f64;
    }
    loops.sort_by_key(|found| std::cmp::Reverse(found.crashes));
    add_siblings(&mut loops, exits);
    loops.sort_by_key(|found| std::cmp::Reverse(found.restarts()));
    loops
}

/// Adds the siblings that are restarted with a failing process. Those of each supervisor go to its most frequent loop, which comes first.
fn add_siblings<'a>(loops: &mut Vec<Loop<'a>>, exits: &'a [ExitRow]) {
    let failing: Vec<&ExitRow> = loops
        .iter()
        .filter(|found| !found.is_killed())
        .filter_map(|found| found.rows.first().copied())
        .collect();
    // Named processes that are killed together with siblings of a failing process are not a separate loop.
    loops.retain(|found| {
        let is_sibling = |row: &&ExitRow| {
            failing.iter().any(|first| parent_of(first) == parent_of(row))
                && !Siblings::of(exits, row, is_shut_down).exits.is_empty()
        };
        !(found.is_killed() && found.is_named() && found.rows.iter().all(is_sibling))
    });
    let mut parents = Vec::new();
    for found in loops {
        let Some(first) = found.rows.first().copied() else { continue };
        if !parents.contains(&parent_of(first)) {
            parents.push(parent_of(first));
            let matches = if found.is_killed() { is_shut_down } else { is_ended };
            found.siblings = match Siblings::of(exits, first, is_shut_down).exits.is_empty() {
                true => Siblings::default(),
                false => Siblings::of(exits, first, matches),
            };
        }
    }
}

/// Drafts findings about restarts of several children of one supervisor without an observed crash.
fn unseen(period: &Period, loops: &[Loop<'_>]) -> Vec<Draft> {
    let mut parents: Vec<_> =
        loops.iter().filter_map(|found| found.rows.first()).map(|row| parent_of(row)).collect();
    let mut drafts = Vec::new();
    for row in period.exits.iter().filter(|row| is_shut_down(row) && has_known_parent(row)) {
        if parents.contains(&parent_of(row)) {
            continue;
        }
        parents.push(parent_of(row));
        let siblings = Siblings::of(&period.exits, row, is_shut_down);
        let rate = siblings.restarts() as f64 / period.seconds();
        let severity = RATE.of(period).severity(rate).filter(|_| siblings.are_restarted());
        drafts.extend(severity.map(|severity| describe_unseen(period, row, &siblings, rate, severity)));
    }
    drafts
}

/// Drafts a finding about restarts without an observed crash.
fn describe_unseen(
    period: &Period,
    row: &ExitRow,
    siblings: &Siblings<'_>,
    rate: f64,
    severity: f64,
) -> Draft {
    let parent = row.parent_name.as_deref().or(row.parent_call.as_deref()).unwrap_or("a supervisor");
    let name = siblings.exits.first().map_or("", |(name, _)| name).to_owned();
    let restarts = frequency(rate, siblings.restarts());
    Draft::new(severity, format!("{parent} restarts children {restarts}, likely after crashes"))
        .detail(format!("it shuts down {}; the crashing child was not observed", siblings.names()))
        .about(Subject::ProcessKind { name, starter: Some(parent.to_owned()) })
        .confidence(Confidence::Inferred)
        .evidence(siblings.evidence(period).against_scale(RATE.of(period)))
        .evidence(Evidence::text("started by", parent))
        .counter_evidence("the crashing child may have ended before it was monitored, or exit normally without a name")
        .counter_evidence("repeated calls of supervisor:terminate_child/2 for these look the same")
        .remedy(remedy::of(
            period,
            "code.crash_cause",
            &format!("find the failing child of {parent} in the crash and supervisor reports of the log, and fix the cause"),
            "with rest_for_one or one_for_all the supervisor also restarts its siblings, and their state is lost each time",
            "supervisor reports per minute",
        ))
}

impl Loop<'_> {
    /// The most frequent exit.
    fn most(&self) -> Option<&ExitRow> {
        self.rows.iter().copied().max_by_key(|row| row.count)
    }

    /// The names of the crashing processes.
    fn names(&self) -> BTreeSet<&str> {
        self.rows.iter().filter_map(|row| row.name.as_deref()).collect()
    }

    /// Name of the crashing process, names of several such processes, or their initial call.
    fn child(&self) -> String {
        let names = self.names();
        let call = self.rows.iter().find_map(|row| row.call.as_deref());
        match (names.iter().next(), names.len(), call) {
            (Some(name), 1, _) => (*name).to_owned(),
            (Some(name), more, _) => format!("{name} and {} more", more - 1),
            (None, _, Some(call)) => call.to_owned(),
            (None, ..) => UNKNOWN.to_owned(),
        }
    }

    /// Names the crashing processes for a title, and says whether the name is a plural.
    fn titled(&self) -> (String, bool) {
        let call = self.rows.iter().find_map(|row| row.call.as_deref());
        match (self.is_named(), call) {
            (true, _) => (self.child(), self.names().len() > 1),
            (false, Some(call)) => match call.strip_suffix(INIT) {
                Some(module) => (format!("{module} processes"), true),
                None => (text::processes(call), true),
            },
            (false, None) => ("A process".to_owned(), false),
        }
    }

    /// The supervisor or process that started them: `child of supervisor shop_sup`.
    fn started(&self) -> String {
        let Some(row) = self.rows.first() else { return String::new() };
        let call = row.parent_call.as_deref();
        let module = call.and_then(|call| call.strip_prefix(SUPERVISOR)?.split('/').next());
        match (row.parent_name.as_deref(), module, call.or(row.parent.as_deref())) {
            (Some(name), Some(_), _) => format!("child of supervisor {name}"),
            (None, Some(module), _) => format!("child of supervisor {module}"),
            (Some(name), None, _) => format!("child of {name}"),
            (None, None, Some(call)) if call.contains(':') => {
                format!("started by a process that runs {call}")
            }
            (None, None, Some(pid)) => format!("child of {pid}"),
            (None, None, None) => String::new(),
        }
    }

    /// Name, initial call or pid of the parent; `None` if unknown.
    fn parent(&self) -> Option<&str> {
        let row = self.rows.first()?;
        row.parent_name.as_deref().or(row.parent_call.as_deref()).or(row.parent.as_deref())
    }

    fn is_named(&self) -> bool {
        self.rows.iter().any(|row| row.name.is_some())
    }

    /// Whether all were killed, but not by the VM.
    fn is_killed(&self) -> bool {
        self.rows.iter().all(|row| is_killed(row))
    }

    /// Number of restarts. More exits of siblings than of the failing process may have been observed.
    fn restarts(&self) -> i64 {
        self.crashes.max(self.siblings.restarts())
    }

    /// Whether processes without a name exit with the application's own reason, and without an exception. Their work may end that way.
    fn may_be_intended(&self) -> bool {
        let is_own = |row: &&ExitRow| {
            let reason = row.reason.as_deref();
            row.stack.is_empty()
                && row.callee.is_none()
                && reason.is_some_and(|reason| reason.starts_with(|first: char| first.is_lowercase()))
                && !NAMES.faults.iter().any(|fault| Some(fault.as_str()) == reason)
        };
        !self.is_named() && self.siblings.exits.is_empty() && self.rows.iter().all(is_own)
    }

    /// The heap limit at which the VM killed it, if that is the most frequent exit.
    fn heap_limit(&self) -> Option<i64> {
        let row = self.most()?;
        (row.reason.as_deref() == Some(KILLED) && row.heap_limit_words > 0).then_some(row.heap_limit_words)
    }
}

/// The exit reason for display: `badmatch in order_server:handle_info/2 line 33`.
fn why(row: &ExitRow) -> String {
    let reason = row.reason.as_deref().unwrap_or(KILLED);
    if reason == KILLED && row.heap_limit_words > 0 {
        return format!("killed at its heap limit of {} words", text::number(row.heap_limit_words as f64));
    }
    let callee = row.callee.as_ref().map_or(String::new(), |callee| format!(" to {callee}"));
    match place(row) {
        Some(place) => format!("{reason} in {place}{callee}"),
        None => reason.to_owned(),
    }
}

/// Where the exit was raised: the application's own function, if any.
fn place(row: &ExitRow) -> Option<String> {
    own_place(row).or_else(|| row.stack.first().map(|(function, _)| function.clone()))
}

/// The application's innermost function on the stack, with its line.
fn own_place(row: &ExitRow) -> Option<String> {
    let functions: Vec<String> = row.stack.iter().map(|(function, _)| function.clone()).collect();
    let own = stack::of_program(&functions)?;
    let line = row.stack.iter().find(|(function, _)| function == own).map_or(0, |(_, line)| *line);
    Some(if line > 0 { format!("{own} line {line}") } else { own.to_owned() })
}

/// A lower bound of the rate: `once`, `≥ 3/s`, `≥ 6/min`, `≥ 2/h`.
fn frequency(rate: f64, count: i64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ if rate >= 2.0 => format!("≥ {rate:.0}/s"),
        _ if rate * 60.0 >= 1.0 => format!("≥ {:.0}/min", rate * 60.0),
        _ => format!("≥ {:.0}/h", rate * 3_600.0),
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
        Some(words) => format!("killed at its heap limit, set by +hmax {words}"),
        None => most.map_or_else(String::new, why),
    };
    let has_siblings = !found.siblings.exits.is_empty();
    let may_be_intended = found.may_be_intended() && rate < MAX_INTENDED_PER_S;
    let is_rare = !found.is_named() && !has_siblings && found.share < MIN_CRASH_SHARE;
    let callee = most.and_then(|row| row.callee.clone());
    let frequency = frequency(rate, found.restarts());
    // A killed process has not failed.
    let is_killed = found.is_killed();
    let (name, is_several) = found.titled();
    let short_reason = match (limit, most.and_then(|row| row.reason.as_deref())) {
        (Some(_), _) => ": heap limit".to_owned(),
        (None, Some(reason)) => format!(": {reason}"),
        (None, None) => String::new(),
    };
    let title = match (is_killed && !has_siblings, is_several) {
        (true, true) => format!("{name} are killed {frequency}, possibly intended"),
        (true, false) => format!("{name} is killed {frequency}, possibly intended"),
        (false, true) => format!("{name} crash {frequency}{short_reason}"),
        (false, false) => format!("{name} crashes {frequency}{short_reason}"),
    };
    let draft =
        Draft::new(severity, title).detail(found.started()).detail(&reason).detail(match has_siblings {
            true => format!("{} restarted with it", found.siblings.names()),
            false => String::new(),
        });
    let draft = match is_killed {
        true => draft.confirmed_by(
            "find supervisor reports with reason killed in the node's log; a killed process writes no crash report",
        ),
        false => draft,
    };
    draft
    .about(match flag {
        Some(_) => Subject::Flag { name: "+hmax".to_owned() },
        None => kind.clone(),
    })
    .signals(flag.map(|_| Signal::Crashes(kind)))
    .signals(callee.clone().map(|name| Signal::WaitsFor(Subject::ProcessKind { name, starter: None })))
    .minor_if(found.restarts() < MIN_CRASHES || is_rare || may_be_intended || is_killed)
    .guess_if(is_killed)
    .evidence(
        Evidence::number("crashes", found.crashes as f64 / period.seconds(), Unit::PerSecond)
            .against_scale(RATE.of(period))
            .with_text(format!("{} observed in {}", found.crashes, view::duration_text(period.seconds()))),
    )
    .because_some(has_siblings.then(|| found.siblings.evidence(period)))
    .because_some(started_by(found).map(|text| Evidence::text("started by", text)))
    .because_some(
        found.rows.iter().find_map(|row| row.call.clone()).map(|call| Evidence::text("initial call", call)),
    )
    .because_some((!reason.is_empty()).then(|| Evidence::text("exit reason", with_stack(most, &reason))))
    .because_some(others(found, most).map(|text| Evidence::text("other exit reasons", text)))
    .because_some(
        (found.share < 1.0)
            .then(|| Evidence::number("share of exits under this parent", found.share, Unit::Ratio)),
    )
    .counter_evidence("only some processes are monitored: there may be many more crashes")
    .but_if(may_be_intended, "they exit with the application's own reason, which may be intended")
    .but_if(is_rare, "most of these processes exit normally, so most of the work is done")
    .because_some(is_killed.then(|| Evidence::text("killed by", "unknown: the VM does not record the sender of an exit signal")))
    .but_if(is_killed, "exit(Pid, kill) may be intended")
    .but_if(is_killed, "a process that is linked to a killed one also exits with this reason")
    .but_if(found.restarts() < MIN_CRASHES, "a single failure looks the same: check whether it continues")
    .fix_if(flag.is_some(), || {
        remedy::of(
            period,
            "+hmax",
            &format!(
                "+hmax above {} words, or +hmax 0 and limits for single processes",
                limit.unwrap_or(0)
            ),
            "the flag applies to each process: the VM kills this one whenever a GC leaves it with a larger heap",
            "crashes per minute, and the largest heap of the process (beamtune memory)",
        )
    })
    .fix_if(limit.is_some(), || {
        remedy::of(
            period,
            "process.max_heap_size",
            &format!(
                "give {child} its own limit: process_flag(max_heap_size, Words) in its init, or spawn_opt at its start"
            ),
            "its work needs more heap than the limit; done in smaller pieces, it needs less",
            "crashes per minute, and the largest heap of the process (beamtune memory)",
        )
    })
    .fix_if(is_killed, || {
        remedy::of(
            period,
            "code.end_in_order",
            &format!(
                "find what ends {child}: exit(Pid, kill), a time limit, or a supervisor (shutdown time, brutal_kill); end it by a message or exit(Pid, shutdown)"
            ),
            "a killed process runs no terminate/2, and may leave sockets with unsent data, and unfinished work of other processes",
            "kills per minute, and the number of ports, under the same load",
        )
    })
    .fix_if(limit.is_none() && !is_killed, || {
        let report = format!("the crash report of {child} in the log (level error)");
        remedy::of(
            period,
            "code.crash_cause",
            &match (callee, most.and_then(own_place)) {
                (Some(callee), _) => format!("find out why {callee} does not reply in time; {report} has the call"),
                (None, Some(place)) => format!("fix {place}; {report} has the reason and the state"),
                (None, None) => format!("find out why it exits: {report} has the reason and the state"),
            },
            "a restarted process has lost its state and repeats the failure; until then callers get noproc",
            "crash reports per minute",
        )
    })
    .fix_if(has_siblings, || {
        remedy::of(
            period,
            "code.restart_strategy",
            &format!(
                "use strategy one_for_one in {} for siblings that do not depend on {child}",
                parent.unwrap_or("the supervisor")
            ),
            "with rest_for_one or one_for_all the supervisor also restarts them, and their state is lost each time",
            "pids of the siblings, before and after a failure",
        )
    })
    .fix_if(limit.is_none() && !is_killed && most.is_some_and(|row| row.stack.is_empty()), || {
        remedy::of(
            period,
            "code.backoff",
            "if it cannot reach a service: start without it, and retry with backoff (handle_continue, timers)",
            "a supervisor restarts at once, and gives up with all of its children if that happens too often",
            "restarts per minute while the service is away",
        )
    })
}

/// Name, initial call and pid of the parent.
fn started_by(found: &Loop<'_>) -> Option<String> {
    let row = found.rows.iter().max_by_key(|row| row.t)?;
    let known = [&row.parent_name, &row.parent_call, &row.parent];
    let known: Vec<&str> = known.into_iter().filter_map(Option::as_deref).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The reason with its stack.
fn with_stack(most: Option<&ExitRow>, reason: &str) -> String {
    let stack = most.map_or(&[][..], |row| row.stack.as_slice());
    match stack {
        [] | [_] => reason.to_owned(),
        _ => {
            let functions: Vec<&str> = stack.iter().map(|(function, _)| function.as_str()).collect();
            format!("{reason}; stack: {}", functions.join(", "))
        }
    }
}

/// Reasons other than the most frequent one.
fn others(found: &Loop<'_>, most: Option<&ExitRow>) -> Option<String> {
    const MAX_SHOWN: usize = 3;
    let mut reasons: Vec<String> = Vec::new();
    for row in &found.rows {
        let text = why(row);
        if most.is_none_or(|most| why(most) != text) && !reasons.contains(&text) {
            reasons.push(text);
        }
    }
    reasons.truncate(MAX_SHOWN);
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
