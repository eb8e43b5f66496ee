//! BT074: processes wait in short steps outside the node: name resolution, connecting, a handshake, a sync to disk.
//!
//! Each takes milliseconds at most when all is well, so hardly any process is ever seen there. Many at once are many that are held up, though
//! they wait for no process. So is a single one that is always seen there while messages queue up for it, and one that OTP or a library has for
//! all (`net_kernel`, the code server, a handler of the logger) and that is often seen there: all who need it wait that long.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessUse, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};
use beamtune_stats::{Trend, trend};

use crate::account::waits_with_messages;
use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule, WARNING};
use crate::signals::blocking::{self, FEWEST, WAITING};
use crate::signals::counts::largest_first;
use crate::signals::kinds::Kind;
use crate::signals::known_processes;
use crate::signals::requests::{self, Reads};
use crate::signals::stack;
use crate::signals::steps::{PEER, STEPS, Step};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT074"),
    name: "external-waits",
    question: "Do processes wait for name resolution, connections or the disk?",
    confirm: "time the same step by hand on the host (getent hosts NAME, nc -vz HOST PORT): if it is slow there too, the fault is outside of the node",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[QUEUED],
    ..Rule::COMMON
};

/// Messages in the queue of a process that waits outside.
const QUEUED: Threshold = Threshold::new(
    "external-waits.queue_length",
    "messages in the queue of a process that waits outside of the node",
    Scale {
        notice: 10.0,
        warning: 1_000.0,
        critical: 500_000.0,
        source: "judgement: a process that keeps up with its peer has a few at most",
    },
);

/// From this share of the samples in which it was seen waiting in the midst of something, or running, a process is nearly always there
/// (judgement).
const NEARLY_ALWAYS: f64 = 0.8;

/// From this share of the samples on in which a process that all share is seen in a short step, those who need it notice (judgement).
const OFTEN: f64 = 0.2;

/// Growth of the queue in the time observed that matters, in messages (judgement).
const MIN_GROWN: f64 = 10.0;

/// A queue that grows is a warning at least, whatever its length (judgement): who waits for it waits longer each time.
const GROWS: f64 = WARNING + 5.0;

/// Of so many kinds single processes are told.
const MAX_KINDS: usize = 3;

/// Fewer messages of a process that may just as well wait for its client's next request are nothing (judgement).
const MANY_MESSAGES: f64 = 100.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stands = blocking::looked_at(period)?;
    let total = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let mut crowded = Vec::new();
    let found = STEPS.iter().enumerate().filter_map(|(index, step)| {
        let is_within = |stack: &[String]| STEPS.iter().position(|step| step.is_within(stack)) == Some(index);
        let places: Vec<_> = blocking::waiting(period).filter(|place| is_within(&place.stack)).collect();
        let seen = places.iter().fold(0, |sum: i64, place| sum.saturating_add(place.count));
        let waiting = blocking::of_all(period, total, seen);
        let severity = WAITING.of(period).severity(waiting).filter(|_| seen >= FEWEST)?;
        let callers = places.iter().filter_map(|place| {
            Some((stack::without_fun(stack::caller_of(&place.stack, step.within)?), place.count))
        });
        let caller = largest_first(callers).into_iter().next().map(|(caller, _)| caller);
        let by = caller.as_ref().map_or(String::new(), |caller| format!(", called by {caller}"));
        let piles_up = blocking::piles_up(period, waiting);
        let more = piles_up.map_or(String::new(), |growth| {
            format!(", and {growth:.0} processes more each second: they pile up")
        });
        let draft =
            Draft::new(severity, format!("about {waiting:.0} processes wait for {}{by}{more}", step.what))
                .minor_if(!step.is_short && piles_up.is_none())
                .at_most_warning_if(!step.is_short)
                .signals(piles_up.map(|_| Signal::Backlog))
                .about(caller.map(|name| Subject::Function { name }))
                .costs(Cost::Waiting(waiting))
                .because(
                    Evidence::number("waiting for it at a time", waiting, Unit::Count)
                        .against_scale(WAITING.of(period))
                        .with_text(format!("{seen} of {} looked at by chance", stands.sampled)),
                )
                .because_some(
                    places.iter().max_by_key(|place| place.count).and_then(|place| {
                        Some(Evidence::text("where they wait", place.stack.first()?.as_str()))
                    }),
                )
                .but_if(
                    !step.is_short && piles_up.is_none(),
                    "far or slow peers take a while, and none of that is lost where nobody waits for it",
                )
                .fix(remedy::of(
                    period,
                    "code.more_in_flight",
                    step.change,
                    step.why,
                    "processes that wait, and the time of a request, under the same load",
                ));
        crowded.push(step.what);
        Some(draft)
    });
    let mut drafts: Vec<Draft> = found.collect();
    drafts.extend(without_answer(period, total));
    // Where many wait for the same, that is said already.
    let mut single: Vec<Courier<'_>> = period
        .processes
        .iter()
        .filter_map(|process| Courier::of(period, process))
        .filter(|courier| !crowded.contains(&courier.step.what))
        .collect();
    single.sort_by(|a, b| b.queue.total_cmp(&a.queue));
    let mut kinds: Vec<Option<Kind>> = Vec::new();
    let is_told = |courier: &&Courier<'_>| {
        let kind = Kind::of(courier.process);
        let is_known = kind.is_some() && kinds.contains(&kind);
        if !is_known {
            kinds.push(kind);
        }
        is_known || kinds.len() <= MAX_KINDS
    };
    let single: Vec<(&str, Draft)> = single
        .iter()
        .filter(is_told)
        .filter_map(|courier| Some((&*courier.process.pid, courier.describe(period)?)))
        .collect();
    let shared: Vec<Draft> = period
        .processes
        .iter()
        .filter(|process| single.iter().all(|(pid, _)| *pid != process.pid))
        .filter_map(|process| describe_shared(period, process))
        .collect();
    drafts.extend(single.into_iter().map(|(_, draft)| draft));
    drafts.extend(shared);
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "hardly any process waits for name resolution, for a connection to be set up, or for a sync to disk, and none with a queue{}",
            often_within(period).unwrap_or_default()
        ),
    ))
}

/// So many of those who wait must have a connection on which nothing comes (judgement: nearly all).
const SILENT: f64 = 0.8;

/// Processes that have waited for an answer in all looks, while nothing has come on as many connections to peers for long.
fn without_answer(period: &Period, total: f64) -> Option<Draft> {
    let silent = |address| {
        let peer = str::strip_prefix(address, TO)?;
        let count = period.stat(&metrics::TCP_SILENT, address).ok()?.last.value;
        (count > 0).then_some((peer, count))
    };
    let peers = largest_first(period.entities(Group::HostTcp).into_iter().filter_map(silent));
    let connections: i64 = peers.iter().map(|(_, count)| count).sum();
    let (peer, _) = peers.first()?;
    let places = blocking::waiting(period).filter(|place| requests::asks(&place.stack));
    let places = places.filter(|place| place.looks == period.stands.looks);
    let callers =
        places.filter_map(|place| Some((stack::without_fun(stack::of_program(&place.stack)?), place.count)));
    let (caller, seen) = largest_first(callers).into_iter().next().filter(|(_, seen)| *seen >= FEWEST)?;
    let waiting = blocking::of_all(period, total, seen);
    if waiting < FEWEST as f64 || (connections as f64) < SILENT * waiting {
        return None;
    }
    let others = match peers.len() {
        1 => String::new(),
        more => format!(" and {} more", more - 1),
    };
    Some(
        Draft::new(
            MINOR,
            format!(
                "about {waiting:.0} processes wait in {caller} for answers that do not come: nothing has come on {connections} connections to \
                 {peer}{others} for 10 s or more"
            ),
        )
        .about(Subject::Function { name: caller.clone() })
        .costs(Cost::Waiting(waiting))
        .because(
            Evidence::number("waiting there at a time", waiting, Unit::Count)
                .with_text(format!("{seen} of {} looked at by chance", period.stands.sampled)),
        )
        .because(Evidence::number("connections to peers that have received nothing for 10 s", connections as f64, Unit::Count))
        .but("a long poll, or a subscription for which there is nothing, waits in the same way")
        .fix(remedy::of(
            period,
            "code.read_timeout",
            &format!(
                "a time-out of some seconds for the read in {caller}, and the connection closed then; and no more than a part of these processes \
                 for one peer, so that one that does not answer leaves some for the others"
            ),
            "who waits for an answer does nothing else meanwhile, however long that is",
            "work that these processes do in a minute, while that peer does not answer",
        )),
    )
}

/// Begins the names of peers that the VM has connected to.
const TO: &str = "to ";

/// Who was in such a step in many samples, though nobody was seen to wait for it.
fn often_within(period: &Period) -> Option<String> {
    let within = |process: &ProcessUse| {
        let samples = || process.stood.iter().chain(&process.ran);
        let of = |step: &'static Step| sum(samples().filter(|(stack, _)| step.is_within(stack)));
        let (step, there) = STEPS
            .iter()
            .filter(|step| step.is_short)
            .map(|step| (step, of(step)))
            .max_by_key(|(_, there)| *there)?;
        let all = sum(samples());
        (there >= FEWEST && there as f64 >= OFTEN * all as f64).then(|| {
            (
                there,
                format!(
                    "; but {} was in {there} of {all} samples: it waits for {}",
                    process.title(),
                    step.what
                ),
            )
        })
    };
    period.processes.iter().filter_map(within).max_by_key(|(there, _)| *there).map(|(_, text)| text)
}

/// A process that is nearly always seen waiting outside while messages wait for it.
struct Courier<'a> {
    process: &'a ProcessUse,
    step: &'static Step,
    /// Where it waits.
    stack: &'a [String],
    /// Samples there, of how many; `None` where only the last closer look tells.
    looks: Option<(i64, i64)>,
    /// What it reads, if that is a socket.
    reads: Option<Reads>,
    /// Messages in its queue at the end.
    queue: f64,
    growth: Option<Trend>,
}

impl<'a> Courier<'a> {
    fn of(period: &Period, process: &'a ProcessUse) -> Option<Self> {
        if !waits_with_messages(period, process) {
            return None;
        }
        let stood = sum(process.stood.iter());
        let (stack, step, looks) = if stood >= FEWEST {
            let (stack, _) = process.stood.iter().max_by_key(|(_, looks)| *looks)?;
            let step = Step::of(stack)?;
            let is_there = |stack: &[String]| Step::of(stack).is_some_and(|other| other.what == step.what);
            // Who has just been asked for its stack may be runnable where it waits.
            let samples = || process.stood.iter().chain(&process.ran);
            let there = sum(samples().filter(|(stack, _)| is_there(stack)));
            let all = sum(samples());
            if (there as f64) < NEARLY_ALWAYS * all as f64 {
                return None;
            }
            (stack, step, Some((there, all)))
        } else {
            // Only the busiest are looked at in each sample.
            let stack = &process.row.as_ref()?.stack;
            (stack, Step::of(stack)?, None)
        };
        let points = view::trend_points(&process.queue);
        let length = points.last().zip(points.first()).map_or(0.0, |(last, first)| last.0 - first.0);
        let grows = |trend: &Trend| trend.p < 0.01 && trend.low > 0.0 && trend.slope * length >= MIN_GROWN;
        Some(Courier {
            process,
            step,
            stack,
            looks,
            reads: requests::reads(period, process, stack),
            queue: view::queue_now(period, process)?,
            growth: trend(&points).filter(grows),
        })
    }

    fn describe(&self, period: &Period) -> Option<Draft> {
        let Courier { process, step, queue, growth, .. } = self;
        let may_serve = step.what == PEER.what && self.reads == Some(Reads::Unknown);
        if may_serve && *queue < MANY_MESSAGES && growth.is_none() {
            return None;
        }
        let severity = QUEUED.of(period).severity(*queue)?;
        let severity = if growth.is_some() { severity.max(GROWS) } else { severity };
        let grows =
            growth.as_ref().map_or(String::new(), |trend| format!(", {:.1} more each second", trend.slope));
        let draft = Draft::new(
            severity,
            format!(
                "{} waits for {} while its queue holds {queue:.0} messages{grows}",
                process.title(),
                step.what
            ),
        )
        .minor_if(!step.is_short && growth.is_none())
        .guess_if(self.looks.is_none() || may_serve)
        .about(process.subject())
        .because(
            Evidence::number("messages in its queue", *queue, Unit::Count).against_scale(QUEUED.of(period)),
        )
        .because_some(self.looks.map(|(there, all)| {
            Evidence::number(
                "samples in which it waited there",
                there as f64 / all.max(1) as f64,
                Unit::Ratio,
            )
            .with_text(format!("{there} of {all}"))
        }))
        .because_some(growth.as_ref().map(|trend| {
            Evidence::number("growth", trend.slope, Unit::PerSecond)
                .with_text(format!("95 % interval {:.1} to {:.1}", trend.low, trend.high))
        }))
        .because_some(self.stack.first().map(|at| {
            let by = stack::caller_of(self.stack, step.within);
            let by = by.map_or(String::new(), |by| format!(", called by {by}"));
            Evidence::text("where it waits", format!("{at}{by}"))
        }))
        .but_if(
            self.looks.is_none(),
            "it was not among the busiest processes: where it waits is known of one sample only",
        )
        .but_if(may_serve, "a server that waits for the next request of its client looks the same")
        .but_if(growth.is_none(), "a queue that does not grow may be a burst, or as long as it always is")
        .fix(remedy::of(
            period,
            "code.more_in_flight",
            step.change,
            step.why,
            "the queue of this process, and the time of a message, under the same load",
        ))
        .fix(remedy::of(
            period,
            "code.more_in_flight",
            "do this step in a process of its own for each message, no more than some at a time",
            "one process handles no other message while it waits",
            "the queue of this process under the same load",
        ));
        Some(draft)
    }
}

/// A process that OTP or a library has for all, and that is often seen in a step that should be short: whoever needs it waits meanwhile,
/// with or without messages at the moment.
fn describe_shared(period: &Period, process: &ProcessUse) -> Option<Draft> {
    if !known_processes::knows(process) {
        return None;
    }
    let all = sum(process.stood.iter().chain(&process.ran));
    let (step, there) = STEPS.iter().filter(|step| step.is_short).find_map(|step| {
        let within = process.stood.iter().filter(|(stack, _)| step.is_within(stack));
        Some((step, sum(within))).filter(|(_, there)| *there >= FEWEST)
    })?;
    // One that is not among the busiest of a sample was not looked at: as if it had waited for messages then.
    let looks = i64::from(period.vm_ticks).max(all);
    let share = there as f64 / looks as f64;
    if share < OFTEN {
        return None;
    }
    let (stack, _) =
        process.stood.iter().filter(|(stack, _)| step.is_within(stack)).max_by_key(|(_, looks)| *looks)?;
    let title = process.title();
    let is_of_nodes = process.row.as_ref().and_then(|row| row.name.as_deref()) == Some("net_kernel");
    let so = if is_of_nodes { ": whoever connects to a node waits meanwhile" } else { "" };
    let draft = Draft::new(
        WARNING,
        format!("{title} waits for {} in {there} of {looks} samples{so}", step.what),
    )
    .about(process.subject())
    .because(
        Evidence::number("samples in which it waited there", share, Unit::Ratio)
            .against(OFTEN, "judgement")
            .with_text(format!("{there} of {looks}")),
    )
    .because_some(stack.first().map(|at| Evidence::text("where it waits", at.as_str())))
    .fix_if(is_of_nodes, || {
        remedy::of(
            period,
            "code.around_the_server",
            "find what sends to nodes that are gone (nodes(known) -- nodes(connected)), and take these out of its list; or send with \
             erlang:send(To, Message, [noconnect]), or only to members of nodes()",
            "each message to a node that is not connected has net_kernel resolve its host and connect, one node after the other",
            "time of net_adm:ping/1 to a node that is up",
        )
    })
    .fix(remedy::of(
        period,
        "code.more_in_flight",
        step.change,
        step.why,
        "samples in which this process waits there",
    ));
    Some(known_processes::explain(draft, period, process))
}

/// Samples of some stacks.
fn sum<'a>(stacks: impl Iterator<Item = &'a (Vec<String>, i64)>) -> i64 {
    stacks.fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks))
}
