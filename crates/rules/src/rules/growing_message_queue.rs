//! BT006: a process receives messages faster than it handles them.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Threshold, Unit, metrics,
};
use beamtune_stats::trend::MIN_POINTS;
use beamtune_stats::{Trend, trend};

use crate::remedy;
use crate::rule::{Draft, FAR_SECONDS, Judgement, Role, Rule, WARNING};
use crate::signals::blocking;
use crate::signals::known_processes;
use crate::signals::memory;
use crate::signals::process_memory::{HEAD_BYTES, is_on_heap, off_heap};
use crate::signals::queue_wait::{Cause, QueueWait};
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT006"),
    name: "growing-message-queue",
    question: "Does a process receive messages faster than it handles them?",
    confirm: "call process_info(Pid, message_queue_len) twice, a minute apart: a queue that has shrunk was a burst",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[LENGTH],
    ..Rule::COMMON
};

const LENGTH: Threshold = Threshold::new(
    "growing-message-queue.queue_length",
    "length of a message queue",
    Scale {
        notice: 1_000.0,
        warning: 5_000.0,
        critical: 500_000.0,
        source: "a queue above 5,000 makes a process suspect (practice of RabbitMQ's and EMQX's operators)",
    },
);

/// Minimum growth within the period, as a share of the final queue length.
const MIN_GROWTH: f64 = 0.10;
/// Growth in messages that suffices for very long queues.
const MIN_GROWTH_MESSAGES: f64 = 1_000.0;

/// A queue below this share of its maximum was emptied within the period, and is not growing.
const MIN_SHARE_OF_MAX: f64 = 0.5;

/// Number of scans of all processes after which the longest queue is known, if a scan takes several samples.
const MIN_ROUNDS: u32 = 3;

/// A queue of this length is a warning even if it does not grow: it takes memory, and each GC of its process scans or copies it.
const LONG: f64 = 100_000.0;

/// Minimum severity of a growing queue, whatever its length (judgement).
const GROWING: f64 = WARNING + 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let mut drafts = Vec::new();
    for process in period.processes.iter().filter(|p| p.queue_max as f64 >= LENGTH.of(period).notice) {
        let Some(last) = view::queue_now(period, process) else { continue };
        let Some(severity) = LENGTH.of(period).severity(last) else { continue };
        let points = view::trend_points(&process.queue);
        let is_at_its_end = last >= MIN_SHARE_OF_MAX * process.queue_max as f64;
        match trend(&points).filter(|trend| is_at_its_end && grows(trend, &points)) {
            Some(trend) => drafts.push(growing(period, process, severity.max(GROWING), last, &trend)),
            // A process that empties its queue from time to time has a long queue in between.
            None if last < LONG && view::is_emptied_again(process) => {}
            None => drafts.push(
                steady(period, process, if last >= LONG { severity.max(GROWING) } else { severity }, last)
                    .inferred_if(last >= LONG)
                    .guess_if(last < LONG),
            ),
        }
    }
    let reached = period.stat(&metrics::SCAN_COVERAGE, "").map_or(1_000.0, |stat| stat.mean());
    if drafts.is_empty() && reached < 999.0 && longest.samples < MIN_ROUNDS {
        return Ok(Judgement::NotJudged {
            reason: format!(
                "only {:.0} % of the processes are sampled per second to limit the cost; none had a long queue",
                reached / 10.0
            ),
            next: "record for longer: --for 60s".to_owned(),
        });
    }
    let longest = longest.max as f64;
    let is_long = LENGTH.of(period).severity(longest).is_some();
    let since = if is_long { " messages, since emptied" } else { "" };
    let sentence = format!("longest message queue: {}{since}", text::number(longest));
    Ok(Judgement::found_or_healthy(drafts, sentence))
}

/// Whether the growth is significant and large enough. A queue that rises and falls does not grow.
fn grows(trend: &Trend, points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let grown = trend.slope * (last.0 - first.0);
    trend.p < 0.01 && trend.low > 0.0 && grown >= MIN_GROWTH_MESSAGES.min(MIN_GROWTH * last.1)
}

/// Drafts a finding about a queue that grows.
fn growing(period: &Period, process: &ProcessActivity, severity: f64, last: f64, trend: &Trend) -> Draft {
    let subject = process.subject();
    let wait = QueueWait::of(period, process);
    let (name, growth) = (text::name(&subject), text::number(trend.slope));
    let title = match wait {
        Some(_) => format!("{name} waits while its queue grows by {growth} messages/s"),
        None => format!("Message queue of {name} grows by {growth} messages/s"),
    };
    let does = match &wait {
        Some(wait) => wait.sentence(),
        None => stack::mostly_in(process).unwrap_or_default(),
    };
    let draft = Draft::new(severity, title)
        .detail(text::pid(&subject))
        .detail(format!("{} messages now", text::number(last)))
        .detail(does)
        .detail(callers(period, process))
        .detail(time_left(period, process, trend.slope));
    // Operators cannot change the code of OTP or a product, only what is sent to it.
    let is_own = !known_processes::knows(process);
    let draft = known_processes::explain(evidence(draft, period, process, last), period, process).evidence(
        Evidence::number("queue growth", trend.slope, Unit::PerSecond)
            .with_text(format!("[{:.0}, {:.0}]", trend.low, trend.high)),
    );
    let draft = match &wait {
        Some(wait) => advise_waiting(draft, period, wait, is_own),
        None => advise_busy(draft, period, is_own),
    };
    // A process that waits does not lose its time to GC.
    draft.fix_if(is_own && wait.is_none() && process.row.as_ref().is_some_and(is_on_heap), || {
        off_heap(
            period,
            "each fullsweep copies a long on-heap queue; this stops the growth only if GC takes most of the process's time",
            "GC share (BT011) and memory of the process",
        )
    })
}

/// Describes the processes that wait for its replies. Senders that do not wait are not recorded.
fn callers(period: &Period, process: &ProcessActivity) -> String {
    let holds = blocking::blocking_processes(period).unwrap_or_default();
    let hold = holds.iter().find(|hold| hold.process.is_some_and(|server| server.pid == process.pid));
    hold.map_or(String::new(), |hold| {
        let count = text::counted(hold.waiting.round(), "caller", "callers");
        let at = hold.wait_function.as_ref().map_or(String::new(), |at| format!(" in {at}"));
        format!("about {count} waiting{at}")
    })
}

/// Describes when the messages of the process will use up the remaining memory, if that is soon. Binaries that they refer to may make it
/// sooner.
fn time_left(period: &Period, process: &ProcessActivity, per_second: f64) -> String {
    let weighed = period.messages.receivers.iter().filter(|(pid, _)| *pid == process.pid);
    let (messages, bytes) = weighed.fold((0, 0), |(messages, bytes), (_, size)| {
        (size.messages.saturating_add(messages), size.bytes.saturating_add(bytes))
    });
    let (messages, bytes) = match (&process.queued_messages, messages) {
        (Some(mail), 0) => (mail.messages, mail.min_bytes()),
        _ => (messages, bytes),
    };
    let Some(room) = memory::room(period).filter(|_| messages > 0) else { return String::new() };
    let each = bytes as f64 / messages as f64 + HEAD_BYTES;
    let seconds = room.bytes / (each * per_second);
    match seconds < FAR_SECONDS {
        true => format!("memory lasts at most {} at this rate", view::duration_text(seconds)),
        false => String::new(),
    }
}

const BOUNDED: &str = "the queue stays bounded under the same load";

/// Adds remedies for a process that waits. Calls instead of casts do not help: callers would wait for the same thing, and so would the
/// processes that they serve.
fn advise_waiting(draft: Draft, period: &Period, wait: &QueueWait, is_own: bool) -> Draft {
    let place = &wait.place;
    let limit = || {
        remedy::of(
            period,
            "code.back_pressure",
            "limit messages in flight, or drop old ones when the queue is long",
            "without back-pressure the queue grows until memory is used up",
            BOUNDED,
        )
    };
    match wait.cause {
        Cause::Send => draft.remedy(remedy::of(
            period,
            "code.back_pressure",
            "drop or merge messages for a receiver that is behind (keep the latest value only), or terminate it when its queue exceeds a limit; \
             do not replace casts with calls: the sender would wait for the slowest peer",
            "nothing limits what is sent to a process that waits for its peer",
            BOUNDED,
        )),
        Cause::Within => draft
            .fix_if(is_own, || {
                remedy::of(
                    period,
                    "code.more_in_flight",
                    &format!("see what it waits for in {place}: set a timeout, or do that step in a process for each message, and limit their number"),
                    "it handles no other message while it waits",
                    "messages handled per second under the same load",
                )
            })
            .remedy(limit()),
        Cause::Receive => draft
            .confirmed_by("call process_info(Pid, messages) on a test node: no clause of the receive that it waits in matches the oldest ones")
            .fix_if(is_own, || {
                remedy::of(
                    period,
                    "code.receive_all",
                    &format!("see what {place} waits for: add the missing receive clause; to wait for a time, use erlang:send_after/3, not a receive"),
                    "the CPU is idle while messages wait: this receive matches none of them",
                    "queue length: 0 in most samples",
                )
            })
            .fix_if(!is_own, limit),
    }
}

/// Adds remedies for a process that works all the time.
fn advise_busy(draft: Draft, period: &Period, is_own: bool) -> Draft {
    draft
        .remedy(remedy::of(
            period,
            "code.back_pressure",
            "make senders wait (call instead of cast), limit messages in flight, or drop messages when the queue is long",
            "without back-pressure the queue grows until memory is used up",
            BOUNDED,
        ))
        .fix_if(is_own, || {
            remedy::of(
                period,
                "code.split_process",
                "split the process by key, or make its callback cheaper",
                "it handles fewer messages than arrive",
                "messages handled per second under the same load",
            )
        })
}

/// Drafts a finding about a long queue that does not grow.
fn steady(period: &Period, process: &ProcessActivity, severity: f64, last: f64) -> Draft {
    // A queue is recorded only while it is among the longest, and while its process answers.
    let is_known = process.queue.points().len() >= MIN_POINTS;
    let subject = process.subject();
    let messages = text::counted(last, "message", "messages");
    let draft = Draft::new(severity, format!("Message queue of {} holds {messages}", text::name(&subject)))
        .detail(text::pid(&subject))
        .detail(if is_known { "does not grow" } else { "" })
        .detail(QueueWait::of(period, process).map_or(String::new(), |wait| wait.sentence()));
    known_processes::explain(evidence(draft, period, process, last), period, process)
        .counter_evidence(if is_known {
            "it did not grow within the period"
        } else {
            "too few samples to tell whether it grows"
        })
        .remedy(remedy::of(
            period,
            "code.back_pressure",
            "find out why messages stay: a selective receive that never matches, or intentionally delayed work",
            "a selective receive takes time in proportion to the queue length",
            "record for longer: beamtune record --for 10m",
        ))
}

fn evidence(draft: Draft, period: &Period, process: &ProcessActivity, last: f64) -> Draft {
    let row = process.row.as_ref();
    draft
        .about(process.subject())
        .costs(Cost::Waiting(last))
        .evidence(Evidence::number("queue length", last, Unit::Count).against_scale(LENGTH.of(period)))
        .because_some(
            stack::runnable_share(process)
                .map(|share| Evidence::number("samples running or runnable", share, Unit::Ratio)),
        )
        .because_some(stack::evidence(process))
        .because_some(
            row.and_then(|row| row.initial_call.as_deref()).map(|f| Evidence::text("initial call", f)),
        )
        .because_some(row.map(|row| Evidence::number("process memory", row.memory_bytes as f64, Unit::Bytes)))
        .because_some(
            row.and_then(|row| row.message_queue_data.as_deref())
                .map(|d| Evidence::text("message_queue_data", d)),
        )
}
