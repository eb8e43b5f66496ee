//! BT053: processes wait for a process that does not reply: an exhausted pool, or a process that itself waits.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Signal, Subject, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking::{self, BlockingProcess, State, WAITING};
use crate::signals::chains::{self, ChainEnd};
use crate::signals::{known_processes, stack};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT053"),
    name: "waiting-callers",
    question: "Do processes wait for one that is not busy?",
    confirm: "double the resource that they wait for (a larger pool): fewer processes wait, and throughput rises; otherwise check what blocks it",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[WAITING],
    ..Rule::COMMON
};

/// Severity of a deadlock: no process in it continues before its call times out (judgement).
const DEADLOCK_SEVERITY: f64 = 80.0;

/// Maximum number of findings: further ones appear when these are fixed.
const MAX_FINDINGS: usize = 2;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let samples = blocking::wait_samples(period)?;
    // A process that works is behind, which other rules report.
    let holds: Vec<BlockingProcess<'_>> =
        blocking::blocking_processes(period)?.into_iter().filter(|hold| hold.state != State::Works).collect();
    let found = holds.iter().filter_map(|hold| {
        let severity = WAITING.of(period).severity(hold.waiting)?;
        Some(describe(period, hold, severity).guess_if(!hold.is_certain()))
    });
    let waiting = blocking::waiting(period).fold(0, |sum: i64, place| sum.saturating_add(place.count));
    Ok(Judgement::found_or_healthy(
        found.take(MAX_FINDINGS).collect(),
        format!(
            "{waiting} of {} sampled processes waiting within a call, at most {:.0} of all for the same process",
            samples.sampled,
            holds.first().map_or(0.0, |hold| hold.waiting).ceil()
        ),
    ))
}

/// Returns the title of a process, or of several similar ones, without the pid, unless it is only a pid.
fn short(title: &str) -> &str {
    title.strip_suffix(">)").and_then(|title| title.rsplit_once(" (<")).map_or(title, |(name, _)| name)
}

fn describe(period: &Period, hold: &BlockingProcess<'_>, severity: f64) -> Draft {
    let (seen, sampled) = hold.sampled;
    let given_up = hold.abandoned_requests();
    let at = hold.wait_function.as_deref();
    let is_deadlock = !hold.deadlock.is_empty();
    let is_pool = hold.pool_function.is_some() || hold.holders.is_some();
    let chain =
        hold.process.filter(|_| !is_deadlock).map(|process| chains::of(period, process)).unwrap_or_default();
    let waits_itself = matches!(hold.state, State::Waits { .. }) && !hold.is_node;
    let last = chain.last().copied().or(hold.process).filter(|_| waits_itself && !is_deadlock);
    let last = last.and_then(|process| ChainEnd::of(period, process));
    let Reason { title, detail } = Reason::of(hold, &chain, last.as_ref());
    let end = chain.last().filter(|_| last.is_none()).map_or(String::new(), |process| {
        let title = process.title();
        match blocking::state(period, &process.pid) {
            State::Waits { at, .. } => format!("{} waits in {at}", short(&title)),
            State::Works => format!("{} is at work", short(&title)),
            _ => String::new(),
        }
    });
    let address = hold.peer().filter(|_| waits_for_peer(hold));
    let draft = Draft::new(if is_deadlock { severity.max(DEADLOCK_SEVERITY) } else { severity }, title)
        .detail(members(hold))
        .detail(at.map_or(String::new(), |at| format!("callers wait in {at}")))
        .detail(detail)
        .detail(address.as_ref().map_or(String::new(), |_| answers(period, hold)))
        .detail(hold.holders.as_ref().map_or(String::new(), |(place, _)| format!("holders are in {place}")))
        .detail(end)
        .about(hold.subject())
        .signals(given_up.map(|_| Signal::GaveUp))
        .signals(hold.waits_for_subject().map(Signal::WaitsFor))
        .signals(blocking::growth_of_waiters(period, hold.waiting).map(|_| Signal::Backlog))
        .signals(chain.iter().map(|process| Signal::WaitsFor(process.subject())))
        .signals(
            hold.members.iter().filter(|_| !hold.is_one()).map(|process| Signal::Member(process.subject())),
        )
        .costs(Cost::Waiting(hold.waiting))
        .evidence(
            Evidence::number("processes waiting", hold.waiting, Unit::Count)
                .against_scale(WAITING.of(period))
                .with_text(format!("{seen} of {sampled} sampled")),
        )
        .because_some(hold.pool_function.as_deref().or(at).map(|place| Evidence::text("they wait in", place)))
        .because_some(hold.pool_function.as_deref().and(at).map(|place| Evidence::text("called by", place)))
        .because_some(hold.holders.as_ref().map(|(place, count)| {
            Evidence::number("sampled holders", *count as f64, Unit::Count).with_text(format!("in {place}"))
        }))
        .because_some(match &hold.state {
            State::Waits { at, .. } if !chain.is_empty() => Some(Evidence::text("it waits in", at.as_str())),
            _ => None,
        })
        .because_some(hold.peer().map(|peer| Evidence::text("connected to", peer)))
        .because_some(given_up.map(|requests| {
            Evidence::number("requests without a waiting caller", requests, Unit::Count)
                .with_text("of callers that have given up, unless they are casts")
        }))
        .because_some((hold.share_with_messages > 0.0).then(|| {
            Evidence::number("waiting processes with queued messages", hold.share_with_messages, Unit::Ratio)
        }))
        .but_if(
            !hold.is_certain(),
            "idle workers that request work look the same: check whether work is waiting",
        )
        .counter_evidence("a process may keep a monitor while it waits for something else");
    let draft = match hold.process {
        Some(process) => known_processes::explain(draft, period, process),
        None => draft,
    };
    if is_deadlock {
        return draft
            .confirmed_by("call process_info(Pid, current_stacktrace) for each, twice: they are in the same calls")
            .remedy(remedy::of(
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
    let advice = last.as_ref().and_then(ChainEnd::advice);
    let draft = match waits_itself {
        true => {
            draft.confirmed_by("measure the same call manually: if it is slow, too, the callee is the cause")
        }
        false => draft,
    };
    // For a process that is not the program's own, the remedies come with its description.
    let is_own = !hold.process.is_some_and(known_processes::knows);
    let is_db_connection =
        [hold.pool_function.as_deref(), at].into_iter().flatten().any(|at| at.starts_with(DB_CONNECTION));
    let back_pressure = remedy::of(
        period,
        "code.back_pressure",
        match is_db_connection {
            true => {
                "set queue_target and queue_interval of the DBConnection pool to what callers tolerate: it then rejects the rest at once"
            }
            false => {
                "reject requests at the entry that would wait longer than the caller's timeout, and drop those that have"
            }
        },
        "gen_server:call/2 and GenServer.call/2 end their caller after 5 s; work after that is wasted",
        "call timeouts and throughput under the same load",
    );
    // If the cause is known, its remedy comes first.
    let is_first = given_up.is_some() && advice.is_none();
    let (first, last) = if is_first { (back_pressure, None) } else { (None, back_pressure) };
    draft
        .remedy(first)
        .fix_if(is_pool, || {
            remedy::of(
                period,
                "code.shorter_hold",
                "check in sooner: call no other service, do not sleep and do not render while a pool member is checked out",
                "a pool's throughput is its size divided by the time that each member is checked out",
                "number of waiting processes and throughput under the same load",
            )
        })
        .fix_if(hold.is_node, || {
            remedy::of(
                period,
                "code.more_in_flight",
                "check that node: is it up (net_adm:ping from another one), overloaded (beamtune doctor there) or far away? Set a timeout for \
                 each call",
                "a caller waits for a node that does not answer until the connection is given up (net_ticktime, 60 s)",
                "waiting calls, once that node answers",
            )
        })
        .remedy(advice.as_ref().and_then(|(entry, change, why)| {
            let prove = "throughput, and number of waiting processes, under the same load";
            remedy::of(period, entry, change, why, prove)
        }))
        .fix_if(is_own && !hold.is_node && advice.is_none(), || {
            remedy::of(
                period,
                "code.more_in_flight",
                if is_pool {
                    "enlarge the pool, if the backend has capacity: waiting time falls as its size grows"
                } else if matches!(hold.state, State::Waits { .. }) {
                    "speed up the call it waits for, give it a timeout, or move it to a separate process and reply later (noreply)"
                } else {
                    "let it reply later without waiting (handle_call with noreply, a process per request), or run several of it"
                },
                "the schedulers are idle meanwhile, so no emulator flag helps",
                "throughput and number of waiting processes after doubling it",
            )
        })
        .remedy(last)
}

/// Prefix of the modules of the pool that Ecto and its drivers use.
const DB_CONNECTION: &str = "Elixir.DBConnection";

/// Maximum number of processes that a detail names.
const MAX_MEMBERS: usize = 2;

/// Formats the pid of a single process, or the names and pids of several.
fn members(hold: &BlockingProcess<'_>) -> String {
    match (&hold.members[..], hold.is_one()) {
        ([one], true) if short(&hold.title) != hold.title => one.pid.clone(),
        (_, true) => String::new(),
        (members, false) => {
            let titles: Vec<String> = members.iter().map(|process| process.title()).collect();
            text::names(&titles, MAX_MEMBERS)
        }
    }
}

/// Whether it waits for the peer of a connection.
fn waits_for_peer(hold: &BlockingProcess<'_>) -> bool {
    matches!(&hold.state, State::Waits { at, on: None } if stack::is_for_peer(at))
}

/// Formats whether the peers send anything, by the sampled connections.
fn answers(period: &Period, hold: &BlockingProcess<'_>) -> String {
    let silent = hold.peers.iter().filter_map(|address| {
        Some(period.stat(&metrics::TCP_SILENT, &format!("to {address}")).ok()?.last.value)
    });
    match silent.reduce(i64::saturating_add) {
        None => String::new(),
        Some(0) => "each connection has received something within the last 10 s".to_owned(),
        Some(count) => {
            let connections = text::counted(count as f64, "connection", "connections");
            format!("no data on {connections} for 10 s or more")
        }
    }
}

/// Maximum length of a title in characters, if possible (as for all titles).
const MAX_TITLE: usize = 72;

/// Why the process does not reply, for the title and for the detail.
struct Reason {
    title: String,
    detail: String,
}

impl Reason {
    fn of(hold: &BlockingProcess<'_>, chain: &[&ProcessActivity], last: Option<&ChainEnd<'_>>) -> Reason {
        let count = text::counted(hold.waiting.round(), "caller", "callers");
        let verb = if hold.waiting.round() == 1.0 { "waits" } else { "wait" };
        let waiting = format!("{count} {verb} for");
        let name = short(&hold.title);
        let (itself, it_waits, it_has) = match hold.is_one() {
            true => ("itself", "it waits", "it has"),
            false => ("themselves", "they wait", "they have"),
        };
        // The detail names several processes.
        let titled = |end: String| {
            let title = format!("{waiting} {name}{end}");
            match !hold.is_one() && title.chars().count() > MAX_TITLE {
                true => format!("{waiting} {} processes{end}", hold.count),
                false => title,
            }
        };
        // The delay can be removed only at the end of the chain.
        if let (Some(last), Some(end)) = (last, chain.last()) {
            let titles: Vec<String> = chain.iter().map(|process| process.title()).collect();
            let end_title = end.title();
            let end = short(&end_title);
            return Reason {
                title: titled(format!(", blocked by {end}")),
                detail: format!("{it_waits} for {}; {end} {}", titles.join(", that for "), last.text()),
            };
        }
        if !hold.deadlock.is_empty() {
            let names: Vec<String> = hold.deadlock.iter().map(text::name).collect();
            let titles: Vec<String> = hold.deadlock.iter().map(Subject::to_string).collect();
            let title = match &names[..] {
                [one, other] => format!("Deadlock: {one} and {other} wait for each other"),
                names => format!("Deadlock: {} processes wait for each other", names.len()),
            };
            let detail = format!("{} wait for each other; {count} {verb} for {name}", titles.join(", "));
            return Reason { title, detail };
        }
        if let State::Waits { at, .. } = &hold.state {
            return match hold.waits_for() {
                Some(target) => Reason {
                    title: titled(match waits_for_peer(hold) {
                        true => format!(" blocked on {target}"),
                        false => format!(", blocked by {}", short(&target)),
                    }),
                    detail: format!("{it_waits} for {target} in {at}"),
                },
                None => Reason {
                    title: titled(format!(", {itself} waiting")),
                    detail: format!("{it_waits} in {at}"),
                },
            };
        }
        if hold.pool_function.is_some() || hold.holders.is_some() {
            return Reason {
                title: titled(", an exhausted pool".to_owned()),
                detail: format!("{it_has} no free member left"),
            };
        }
        let blocker = &hold.title;
        match hold.is_node {
            true if blocker.contains('@') => {
                Reason { title: format!("{waiting} node {name}"), detail: String::new() }
            }
            true => Reason { title: format!("{waiting} {name}"), detail: "another node".to_owned() },
            false => Reason {
                title: format!("{waiting} a reply of {name}"),
                detail: format!("{it_has} taken their messages and not replied yet"),
            },
        }
    }
}
