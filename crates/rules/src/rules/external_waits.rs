//! BT074: processes wait in short steps outside the node: name resolution, connecting, a handshake, a sync to disk.
//!
//! A healthy step takes milliseconds, so a sample hardly ever finds a process in it. Many processes in a step are a finding. So is a single
//! process that is nearly always in a step while its message queue is not empty. So is a shared process of OTP or a library (`net_kernel`,
//! the code server, a logger handler) that is often in a step, because its callers wait as long.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessActivity, Scale, Signal, Subject,
    Threshold, Unit, metrics,
};
use beamtune_stats::{Trend, trend};

use crate::account::waits_with_messages;
use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule, WARNING};
use crate::signals::blocking::{self, MIN_SAMPLES, WAITING};
use crate::signals::counts::largest_first;
use crate::signals::kinds::Kind;
use crate::signals::known_processes;
use crate::signals::requests::{self, Reads};
use crate::signals::stack;
use crate::signals::steps::{STEPS, Step};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT074"),
    name: "external-waits",
    question: "Do processes wait for name resolution, connections or the disk?",
    confirm: "time the step on the host (getent hosts NAME, nc -vz HOST PORT): if it is also slow there, the fault is outside the node",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[QUEUED],
    ..Rule::COMMON
};

/// Queue length of a process that waits in a step.
const QUEUED: Threshold = Threshold::new(
    "external-waits.queue_length",
    "queue length of a process that waits outside the node",
    Scale {
        notice: 10.0,
        warning: 1_000.0,
        critical: 500_000.0,
        source: "judgement: a process that keeps up with its peer has a few at most",
    },
);

/// A process is nearly always in a step if at least this share of its samples shows it there, idle samples left out (judgement).
const MIN_SHARE: f64 = 0.8;

/// A shared process is reported if at least this share of the samples shows it in a step (judgement).
const MIN_SHARED_SHARE: f64 = 0.2;

/// Minimum growth of a queue within the period, in messages (judgement).
const MIN_GROWTH: f64 = 10.0;

/// Severity of a growing queue, whatever its length (judgement): each caller waits longer than the one before.
const GROWING: f64 = WARNING + 5.0;

/// Maximum number of kinds of single processes that are reported.
const MAX_KINDS: usize = 3;

/// Shorter queues are ignored if the process may be a server that waits for its client's next request (judgement).
const MIN_SERVER_QUEUE: f64 = 100.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let samples = blocking::wait_samples(period)?;
    let total = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let mut crowded = Vec::new();
    let found = STEPS.iter().enumerate().filter_map(|(index, step)| {
        let is_within = |stack: &[String]| STEPS.iter().position(|step| step.is_within(stack)) == Some(index);
        let places: Vec<_> = blocking::waiting(period).filter(|place| is_within(&place.stack)).collect();
        let seen = places.iter().fold(0, |sum: i64, place| sum.saturating_add(place.count));
        let waiting = blocking::of_all(period, total, seen);
        let severity = WAITING.of(period).severity(waiting).filter(|_| seen >= MIN_SAMPLES)?;
        let callers = places.iter().filter_map(|place| {
            Some((stack::without_fun(stack::caller_of(&place.stack, step.within)?), place.count))
        });
        let caller = largest_first(callers).into_iter().next().map(|(caller, _)| caller);
        let piles_up = blocking::growth_of_waiters(period, waiting);
        let processes = text::counted(waiting.round(), "process waits", "processes wait");
        let draft = Draft::new(severity, format!("{processes} for {}", step.what))
            .detail(caller.as_ref().map_or(String::new(), |caller| format!("called by {caller}")))
            .detail(
                piles_up.map_or(String::new(), |growth| {
                    format!("growing by {} processes/s", text::number(growth))
                }),
            )
            .minor_if(!step.is_short && piles_up.is_none())
            .at_most_warning_if(!step.is_short)
            .signals(piles_up.map(|_| Signal::Backlog))
            .about(caller.map(|name| Subject::Function { name }))
            .costs(Cost::Waiting(waiting))
            .evidence(
                Evidence::number("waiting processes", waiting, Unit::Count)
                    .against_scale(WAITING.of(period))
                    .with_text(format!("{seen} of {} sampled", samples.sampled)),
            )
            .because_some(
                places.iter().max_by_key(|place| place.count).and_then(|place| {
                    Some(Evidence::text("current function", place.stack.first()?.as_str()))
                }),
            )
            .but_if(
                !step.is_short && piles_up.is_none(),
                "distant or slow peers take this long; that matters only if something waits for the result",
            )
            .remedy(remedy::of(
                period,
                "code.more_in_flight",
                step.change,
                step.why,
                "waiting processes and request latency under the same load",
            ));
        crowded.push(step.what);
        Some(draft)
    });
    let mut drafts: Vec<Draft> = found.collect();
    drafts.extend(without_answer(period, total));
    // Processes in a step in which many processes wait are covered by the finding about that step.
    let mut single: Vec<StepWait<'_>> = period
        .processes
        .iter()
        .filter_map(|process| StepWait::of(period, process))
        .filter(|wait| !crowded.contains(&wait.step.what))
        .collect();
    single.sort_by(|a, b| b.queue.total_cmp(&a.queue));
    let mut kinds: Vec<Option<Kind>> = Vec::new();
    let is_reported = |wait: &&StepWait<'_>| {
        let kind = Kind::of(wait.process);
        let is_known = kind.is_some() && kinds.contains(&kind);
        if !is_known {
            kinds.push(kind);
        }
        is_known || kinds.len() <= MAX_KINDS
    };
    let single: Vec<(&str, Draft)> = single
        .iter()
        .filter(is_reported)
        .filter_map(|wait| Some((&*wait.process.pid, wait.describe(period)?)))
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
            "few processes wait for DNS, a connection or a sync to disk, none with queued messages{}",
            often_within(period).unwrap_or_default()
        ),
    ))
}

/// Minimum number of silent connections for each waiting process (judgement: nearly all).
const MIN_SILENT: f64 = 0.8;

/// Drafts a finding about processes that waited for a reply in all samples, while about as many connections to peers received nothing.
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
    let places = places.filter(|place| place.samples == period.wait_samples.samples);
    let callers =
        places.filter_map(|place| Some((stack::without_fun(stack::of_program(&place.stack)?), place.count)));
    let (caller, seen) =
        largest_first(callers).into_iter().next().filter(|(_, seen)| *seen >= MIN_SAMPLES)?;
    let waiting = blocking::of_all(period, total, seen);
    if waiting < MIN_SAMPLES as f64 || (connections as f64) < MIN_SILENT * waiting {
        return None;
    }
    let others = match peers.len() {
        1 => String::new(),
        more => format!(" and {} more", more - 1),
    };
    let processes = text::counted(waiting.round(), "process waits", "processes wait");
    Some(
        Draft::new(MINOR, format!("{processes} in {caller} on silent connections"))
            .detail(format!("{connections} connections to {peer}{others} received nothing for 10 s or more"))
            .about(Subject::Function { name: caller.clone() })
            .costs(Cost::Waiting(waiting))
            .evidence(
                Evidence::number("waiting processes", waiting, Unit::Count)
                    .with_text(format!("{seen} of {} sampled", period.wait_samples.sampled)),
            )
            .evidence(Evidence::number("connections silent for 10 s or more", connections as f64, Unit::Count))
            .counter_evidence("a long poll, or a subscription without events, waits in the same way")
            .remedy(remedy::of(
                period,
                "code.read_timeout",
                &format!(
                    "give the read in {caller} a timeout of some seconds and close the connection when it expires; \
                     limit the number of these processes for each peer"
                ),
                "a process that waits for a reply does nothing else, and one silent peer can block all of them",
                "work done per minute while that peer does not reply",
            )),
    )
}

/// Prefix of the entities of connections that the VM has opened.
const TO: &str = "to ";

/// Describes the process most often sampled in a short step although it has no queued messages. For the "healthy" text.
fn often_within(period: &Period) -> Option<String> {
    let within = |process: &ProcessActivity| {
        let samples = || process.wait_stacks.iter().chain(&process.run_stacks);
        let of = |step: &'static Step| sum(samples().filter(|(stack, _)| step.is_within(stack)));
        let (step, there) = STEPS
            .iter()
            .filter(|step| step.is_short)
            .map(|step| (step, of(step)))
            .max_by_key(|(_, there)| *there)?;
        let all = sum(samples());
        (there >= MIN_SAMPLES && there as f64 >= MIN_SHARED_SHARE * all as f64).then(|| {
            let waits = format!("; but {} waits for {}", process.title(), step.what);
            (there, format!("{waits} in {there} of {all} samples"))
        })
    };
    period.processes.iter().filter_map(within).max_by_key(|(there, _)| *there).map(|(_, text)| text)
}

/// A process with queued messages that nearly always waits in a step.
struct StepWait<'a> {
    process: &'a ProcessActivity,
    step: &'static Step,
    /// Call stack in the step.
    stack: &'a [String],
    /// Samples in the step, and all samples; `None` if only its last row shows the stack.
    samples: Option<(i64, i64)>,
    /// What it reads, if that is a socket.
    reads: Option<Reads>,
    /// Queue length at the end of the period.
    queue: f64,
    growth: Option<Trend>,
}

impl<'a> StepWait<'a> {
    fn of(period: &Period, process: &'a ProcessActivity) -> Option<Self> {
        if !waits_with_messages(period, process) {
            return None;
        }
        let stood = sum(process.wait_stacks.iter());
        let (stack, step, samples) = if stood >= MIN_SAMPLES {
            let (stack, _) = process.wait_stacks.iter().max_by_key(|(_, count)| *count)?;
            let step = Step::of(stack)?;
            let is_there = |stack: &[String]| Step::of(stack).is_some_and(|other| other.what == step.what);
            // The request for its stack may itself have made it runnable.
            let samples = || process.wait_stacks.iter().chain(&process.run_stacks);
            let there = sum(samples().filter(|(stack, _)| is_there(stack)));
            let all = sum(samples());
            if (there as f64) < MIN_SHARE * all as f64 {
                return None;
            }
            (stack, step, Some((there, all)))
        } else {
            // Stacks of each sample exist for the busiest processes only.
            let stack = &process.row.as_ref()?.stack;
            (stack, Step::of(stack)?, None)
        };
        let points = view::trend_points(&process.queue);
        let length = points.last().zip(points.first()).map_or(0.0, |(last, first)| last.0 - first.0);
        let grows = |trend: &Trend| trend.p < 0.01 && trend.low > 0.0 && trend.slope * length >= MIN_GROWTH;
        Some(StepWait {
            process,
            step,
            stack,
            samples,
            reads: requests::reads(period, process, stack),
            queue: view::queue_now(period, process)?,
            growth: trend(&points).filter(grows),
        })
    }

    fn describe(&self, period: &Period) -> Option<Draft> {
        let StepWait { process, step, queue, growth, .. } = self;
        let may_serve = step.is_peer() && self.reads == Some(Reads::Unknown);
        if may_serve && *queue < MIN_SERVER_QUEUE && growth.is_none() {
            return None;
        }
        let severity = QUEUED.of(period).severity(*queue)?;
        let severity = if growth.is_some() { severity.max(GROWING) } else { severity };
        let subject = process.subject();
        let queued = text::counted(*queue, "message queued", "messages queued");
        let peers = blocking::peers(period, &[&process.pid]);
        let address = peers.first().copied().filter(|_| step.is_peer() && peers.len() == 1);
        let what = address.map_or(step.what.to_owned(), |address| format!("a reply from {address}"));
        let at = self.stack.first().map(|at| {
            let by = stack::caller_of(self.stack, step.within);
            format!("{at}{}", by.map_or(String::new(), |by| format!(", called by {by}")))
        });
        let draft = Draft::new(severity, format!("{} waits for {what}, {queued}", text::name(&subject)))
            .detail(text::pid(&subject))
            .detail(growth.as_ref().map_or(String::new(), |trend| format!("queue {}", text::growth(trend))))
            .detail(at.as_ref().map_or(String::new(), |at| format!("in {at}")))
            .minor_if(!step.is_short && growth.is_none())
            .guess_if(self.samples.is_none() || may_serve)
            .about(subject)
            .evidence(Evidence::number("queue length", *queue, Unit::Count).against_scale(QUEUED.of(period)))
            .because_some(self.samples.map(|(there, all)| {
                let share = there as f64 / all.max(1) as f64;
                Evidence::number("samples in this step", share, Unit::Ratio)
                    .with_text(format!("{there} of {all}"))
            }))
            .because_some(growth.as_ref().map(|trend| {
                Evidence::number("queue growth", trend.slope, Unit::PerSecond)
                    .with_text(format!("[{:.1}, {:.1}]", trend.low, trend.high))
            }))
            .because_some(at.map(|at| Evidence::text("current function", at)))
            .but_if(self.samples.is_none(), "its stack is known from one sample only")
            .but_if(may_serve, "a server that waits for the next request of its client looks the same")
            .but_if(growth.is_none(), "a queue that does not grow may be a burst, or its usual length")
            .remedy(remedy::of(
                period,
                "code.more_in_flight",
                &step.change_at(address),
                step.why,
                "queue length and time per message under the same load",
            ))
            .remedy(remedy::of(
                period,
                "code.more_in_flight",
                "start a process per message for this step, and limit the number of such processes",
                "one process handles no other message while it waits",
                "queue length under the same load",
            ));
        Some(draft)
    }
}

/// Drafts a finding about a shared process of OTP or a library that is often sampled in a step that should be short. Its callers wait as
/// long, whether or not messages are queued at that moment.
fn describe_shared(period: &Period, process: &ProcessActivity) -> Option<Draft> {
    if !known_processes::knows(process) {
        return None;
    }
    let all = sum(process.wait_stacks.iter().chain(&process.run_stacks));
    let (step, there) = STEPS.iter().filter(|step| step.is_short).find_map(|step| {
        let within = process.wait_stacks.iter().filter(|(stack, _)| step.is_within(stack));
        Some((step, sum(within))).filter(|(_, there)| *there >= MIN_SAMPLES)
    })?;
    // Samples without a stack count as idle: the process was then not among the busiest.
    let samples = i64::from(period.vm_ticks).max(all);
    let share = there as f64 / samples as f64;
    if share < MIN_SHARED_SHARE {
        return None;
    }
    let (stack, _) = process
        .wait_stacks
        .iter()
        .filter(|(stack, _)| step.is_within(stack))
        .max_by_key(|(_, count)| *count)?;
    let subject = process.subject();
    let connects = process.row.as_ref().and_then(|row| row.name.as_deref()) == Some("net_kernel");
    let name = text::name(&subject);
    let draft =
        Draft::new(WARNING, format!("{name} waits for {} in {:.0} % of samples", step.what, share * 100.0))
            .detail(text::pid(&subject))
            .detail(if connects { "connection attempts to other nodes wait for it" } else { "its callers wait as long" })
            .about(subject)
            .evidence(
                Evidence::number("samples in this step", share, Unit::Ratio)
                    .against(MIN_SHARED_SHARE, "judgement")
                    .with_text(format!("{there} of {samples}")),
            )
            .because_some(stack.first().map(|at| Evidence::text("current function", at.as_str())))
            .fix_if(connects, || {
                remedy::of(
                    period,
                    "code.around_the_server",
                    "stop sending to nodes that are gone (nodes(known) -- nodes(connected)): send to members of nodes() only, or with \
                     erlang:send(To, Message, [noconnect])",
                    "for each message to an unconnected node net_kernel resolves its host and connects, one node after the other",
                    "time of net_adm:ping/1 to a node that is up",
                )
            })
            .remedy(remedy::of(
                period,
                "code.more_in_flight",
                step.change,
                step.why,
                "share of samples in this step under the same load",
            ));
    Some(known_processes::explain(draft, period, process))
}

/// Number of samples with these stacks.
fn sum<'a>(stacks: impl Iterator<Item = &'a (Vec<String>, i64)>) -> i64 {
    stacks.fold(0, |sum: i64, (_, count)| sum.saturating_add(*count))
}
