//! BT053: processes wait for one that lets them wait: a pool that has none left, or somebody who waits for others.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Signal, Subject, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking::{self, Does, Hold, WAITING};
use crate::signals::chains::{self, Last};
use crate::signals::known_processes;

pub const RULE: Rule = Rule {
    code: Code("BT053"),
    name: "waiting-callers",
    question: "Do processes wait for one that lets them wait?",
    confirm: "twice as many of what they wait for (a larger pool): fewer must wait, and throughput rise; if not, look at what holds it",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[WAITING],
    ..Rule::COMMON
};

/// The severity of processes that wait for each other: until their calls time out nobody of those who wait goes on (judgement).
const DEADLOCK: f64 = 80.0;

/// Findings of one diagnosis; what else they wait for shows when these are gone.
const MOST: usize = 2;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stands = blocking::looked_at(period)?;
    // Who works is behind, and another rule's.
    let holds: Vec<Hold<'_>> =
        blocking::holds(period)?.into_iter().filter(|hold| hold.does != Does::Works).collect();
    let found = holds.iter().filter_map(|hold| {
        let severity = WAITING.of(period).severity(hold.waiting)?;
        Some(describe(period, hold, severity).guess_if(!hold.is_certain()))
    });
    let in_midst = blocking::waiting(period).fold(0, |sum: i64, place| sum.saturating_add(place.count));
    Ok(Judgement::found_or_healthy(
        found.take(MOST).collect(),
        format!(
            "of {} processes looked at, {in_midst} waited in the midst of something, and no more than {:.0} of all for the same one",
            stands.sampled,
            holds.first().map_or(0.0, |hold| hold.waiting).ceil()
        ),
    ))
}

fn describe(period: &Period, hold: &Hold<'_>, severity: f64) -> Draft {
    let (seen, of) = hold.seen;
    let given_up = hold.given_up();
    let at = hold.at.as_deref();
    let chain = hold
        .process
        .filter(|_| hold.circle.is_empty())
        .map(|process| chains::of(period, process))
        .unwrap_or_default();
    let waits_itself = matches!(hold.does, Does::Waits { .. }) && !hold.is_node;
    let last = chain.last().copied().or(hold.process).filter(|_| waits_itself && hold.circle.is_empty());
    let last = last.and_then(|process| Last::of(period, process));
    let (itself, has) = if hold.is_one { ("itself waits", "has") } else { ("themselves wait", "have") };
    let what = match (&hold.does, &hold.takes) {
        // The last one is where it can be mended.
        _ if let (Some(last), false) = (&last, chain.is_empty()) => {
            let titles: Vec<String> = chain.iter().map(|process| process.title()).collect();
            format!("which {itself} for {}, which {}", titles.join(", that for "), last.does())
        }
        _ if !hold.circle.is_empty() => {
            let names: Vec<String> = hold.circle.iter().map(Subject::to_string).collect();
            format!("a deadlock: {} wait for each other", names.join(", "))
        }
        (Does::Waits { at, .. }, _) => match hold.waits_for() {
            Some(whom) => format!("which {itself} for {whom} in {at}"),
            None => format!("which {itself} in {at}"),
        },
        (_, Some(_)) => format!("which {has} none left to give"),
        _ if hold.given.is_some() => format!("which {has} none left to give"),
        _ if hold.is_node => "another node".to_owned(),
        _ => format!("which {has} taken their messages and not answered yet"),
    };
    let end =
        chain.last().filter(|_| last.is_none()).map(|process| match blocking::does(period, &process.pid) {
            Does::Waits { at, .. } => format!("; {} waits in {at}", process.title()),
            Does::Works => format!("; {} is at work", process.title()),
            _ => String::new(),
        });
    let given = hold.given.as_ref().map(|(place, _)| format!("; holders are in {place}"));
    let is_circle = !hold.circle.is_empty();
    let severity = if is_circle { severity.max(DEADLOCK) } else { severity };
    let draft = Draft::new(severity, format!("{}, {what}{}{}", hold.waited_for(), given.unwrap_or_default(), end.unwrap_or_default()))
        .about(hold.subject())
        .signals(given_up.map(|_| Signal::GaveUp))
        .signals(hold.waits_for_subject().map(Signal::WaitsFor))
        .signals(blocking::piles_up(period, hold.waiting).map(|_| Signal::Backlog))
        .signals(chain.iter().map(|process| Signal::WaitsFor(process.subject())))
        .costs(Cost::Waiting(hold.waiting))
        .because(
            Evidence::number("waiting for it at a time", hold.waiting, Unit::Count)
                .against_scale(WAITING.of(period))
                .with_text(format!("{seen} of {of} looked at by chance")),
        )
        .because_some(hold.takes.as_deref().or(at).map(|place| Evidence::text("where they wait", place)))
        .because_some(
            hold.takes.as_deref().and(at).map(|place| Evidence::text("called from", place)),
        )
        .because_some(hold.given.as_ref().map(|(place, count)| {
            Evidence::number("sampled holders", *count as f64, Unit::Count).with_text(format!("in {place}"))
        }))
        .because_some(match &hold.does {
            Does::Waits { at, .. } if !chain.is_empty() => Some(Evidence::text("where it waits itself", at.as_str())),
            _ => None,
        })
        .because_some(hold.peer().map(|peer| Evidence::text("connected to", peer)))
        .because_some(given_up.map(|requests| {
            Evidence::number("requests beyond those of who still waits", requests, Unit::Count)
                .with_text("of callers that have given up, unless they are messages that nobody waits for")
        }))
        .because_some((hold.with_messages > 0.0).then(|| {
            Evidence::number("of those who wait, with messages of their own", hold.with_messages, Unit::Ratio)
        }))
        .but_if(
            !hold.is_certain(),
            "workers that ask it for work, and have none to do, look the same: see whether what they should do is left undone",
        )
        .but("a process may monitor another one for long, and wait for something else");
    let draft = match hold.process {
        Some(process) => known_processes::explain(draft, period, process),
        None => draft,
    };
    if is_circle {
        return draft.confirmed_by("process_info(Pid, current_stacktrace) of each, twice: the same calls").fix(remedy::of(
            period,
            "code.no_circular_calls",
            "break the cycle: a cast, a delayed reply (noreply), or the call in a separate process; keep calls in one direction",
            "each replies only after the next one has replied, and the last one waits for the first",
            "no call timeouts under the same load",
        ));
    }
    let draft = match chain.last() {
        Some(process) => known_processes::explain(draft, period, process),
        _ => draft,
    };
    let advice = last.as_ref().and_then(Last::advice);
    let draft = match waits_itself {
        true => {
            draft.confirmed_by("time the same call by hand: if it is slow there too, the fault is behind it")
        }
        false => draft,
    };
    let is_pool = hold.takes.is_some() || hold.given.is_some();
    // What there is to do about one that is not the program's own is told with what it is.
    let is_own = !hold.process.is_some_and(known_processes::knows);
    let back_pressure = remedy::of(
        period,
        "code.back_pressure",
        "refuse at the entry what would wait longer than its caller does, and drop what has: gen_server:call/2 and GenServer.call/2 end their \
         caller after 5 s (DBConnection's pools do so by queue_target and queue_interval)",
        "what is done after the caller has given up is done for nobody",
        "time-outs of callers, and throughput, under the same load",
    );
    let (first, last) = if given_up.is_some() { (back_pressure, None) } else { (None, back_pressure) };
    draft
        .fix(first)
        .fix_if(is_pool, || {
            remedy::of(
                period,
                "code.shorter_hold",
                "give back sooner: no call of another service, no sleep and no rendering between taking and giving back",
                "a pool serves its size divided by the time that each holds a part of it",
                "number of waiting processes and throughput under the same load",
            )
        })
        .fix_if(hold.is_node, || {
            remedy::of(
                period,
                "code.more_in_flight",
                "look at that node: whether it is up (net_adm:ping from another one), overloaded (beamtune doctor there) or far; a time-out for each call",
                "whoever calls a node that does not answer waits until the connection is given up (net_ticktime, 60 s)",
                "calls that wait, once that node answers",
            )
        })
        .fix(advice.as_ref().and_then(|(entry, change, why)| {
            let prove = "throughput, and processes that wait, under the same load";
            remedy::of(period, entry, change, why, prove)
        }))
        .fix_if(is_own && !hold.is_node && advice.is_none(), || {
            remedy::of(
                period,
                "code.more_in_flight",
                if is_pool {
                    "a larger pool, if what is behind it has room: the time that each waits falls as its size grows"
                } else if matches!(hold.does, Does::Waits { .. }) {
                    "speed up the call it waits for, give it a timeout, or move it to a separate process and reply later (noreply)"
                } else {
                    "let it answer later without waiting itself (handle_call with noreply, a process for each request), or have several of it"
                },
                "the schedulers are idle meanwhile, so no emulator flag can help",
                "throughput, and processes that wait, with twice as many",
            )
        })
        .fix(last)
}
