//! BT040: messages that no receive of their process matches.
//!
//! A process that waits although it has messages, and is not in a call, waits in a receive that matches none of them. If it received them,
//! the queue length would change. It stays constant, or later messages are received while these stay.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::process_memory::is_on_heap;
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT040"),
    name: "unread-messages",
    question: "Do messages stay in a queue because no receive takes them?",
    confirm: "call process_info(Pid, message_queue_len) minutes apart, without load: no receive takes messages that are still there",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::Delay,
    explains_as_notice: true,
    judge,
    thresholds: &[STAY],
    ..Rule::COMMON
};

const STAY: Threshold = Threshold::new(
    "unread-messages.messages",
    "messages in one queue that no receive takes",
    Scale {
        notice: 100.0,
        warning: 1_000.0,
        critical: 1_000_000.0,
        source: "measured on OTP 23, 25, 27 and 29: a receive takes 4 to 5 µs to skip 1,000 messages",
    },
);

/// Time for a receive to skip one message, in seconds: see [`STAY`].
const SKIP_SECONDS: f64 = 4.5e-9;

/// A process that is runnable in a larger share of its samples receives messages, or searches them (BT041).
const MAX_RUNNABLE: f64 = 0.3;

/// Equal queue lengths in fewer samples may be chance.
const MIN_SAMPLES: usize = 5;

/// Maximum change of a queue whose messages stay, as a share of its length. A queue that grows by more is reported by BT006.
const MAX_CHANGE: f64 = 0.10;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let drafts = period.processes.iter().filter_map(|process| {
        // The queue of a process that has ended is gone.
        view::queue_now(period, process)?;
        let staying = staying(process)?;
        let severity = STAY.of(period).severity(staying)?;
        Some(describe(period, process, severity, staying))
    });
    Ok(Judgement::found_or_healthy(
        drafts.collect(),
        format!("no unread messages; longest message queue: {}", text::number(longest.max as f64)),
    ))
}

/// Returns the number of messages that were in the queue in every sample, for a process that waits for something else.
fn staying(process: &ProcessActivity) -> Option<f64> {
    let row = process.row.as_ref()?;
    let is_waiting =
        row.status.as_deref() == Some("waiting") && stack::runnable_share(process)? <= MAX_RUNNABLE;
    let is_in_call = stack::current_function_of(process).is_none_or(stack::is_call);
    let lengths = process.queue.points();
    if !is_waiting || is_in_call || lengths.len() < MIN_SAMPLES {
        return None;
    }
    let min = lengths.iter().map(|point| point.1).min()?;
    let max = lengths.iter().map(|point| point.1).max()?;
    let (first, last) = (lengths.first()?.1, lengths.last()?.1);
    let stays = last >= first && (max - min) as f64 <= MAX_CHANGE * max as f64;
    stays.then_some(min as f64)
}

fn describe(period: &Period, process: &ProcessActivity, severity: f64, staying: f64) -> Draft {
    let row = process.row.as_ref();
    let function = stack::current_function_of(process).unwrap_or_default();
    let takes_all = stack::is_loop(function);
    let is_off_heap = row.and_then(|row| row.message_queue_data.as_deref()) == Some("off_heap");
    let has_aliases = period.facts.otp_release().is_none_or(|release| release >= 24);
    let growth = process.queue.points().last().map_or(0.0, |point| point.1 as f64) - staying;
    let more = if growth >= 1.0 { format!("; {growth:.0} more at the end") } else { String::new() };
    let subject = process.subject();
    Draft::new(
        severity,
        format!(
            "{} messages stay unread in the queue of {}",
            text::number(staying),
            text::name(&subject)
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("waits in {}", row.and_then(stack::current_function).unwrap_or_else(|| function.to_owned())))
    .detail(if growth >= 1.0 { format!("{} more arrived in the period", text::number(growth)) } else { String::new() })
    .about(subject)
    .costs(Cost::DelaySeconds(SKIP_SECONDS * staying))
    .evidence(
        Evidence::number("unread messages", staying, Unit::Count)
            .against_scale(STAY.of(period))
            .with_text(format!("minimum of {} samples{more}", process.queue.points().len())),
    )
    .because_some(
        stack::runnable_share(process)
            .map(|share| Evidence::number("samples running or runnable", share, Unit::Ratio)),
    )
    .evidence(Evidence::text("current function", function))
    .because_some(row.and_then(|row| row.initial_call.as_deref()).map(|f| Evidence::text("initial call", f)))
    .evidence(Evidence::number(
        "time per receive that skips them all",
        SKIP_SECONDS * staying,
        Unit::Seconds,
    ))
    .because_some(
        row.and_then(|row| row.message_queue_data.as_deref())
            .map(|d| Evidence::text("message_queue_data", d)),
    )
    .but_if(!takes_all, "it may leave them queued on purpose, until something else has arrived")
    .but_if(
        takes_all && is_off_heap,
        "a behaviour's loop takes every message: on 25.0 to 25.3.2.9 and 26.0 to 26.2.2 a process with an off-heap queue may have missed its \
         wake-up (erlang/otp#8119); any message wakes it",
    )
    .fix_if(!takes_all, || {
        remedy::of(
            period,
            "code.receive_all",
            "find what is queued (on a test node: process_info(Pid, messages)); add the missing clause, and a last one that logs or drops the rest: \
             late replies, 'DOWN' and 'EXIT' messages, replies of a closed port",
            "a message that no clause matches stays as long as the process lives",
            "queue length: 0 in most samples",
        )
    })
    .fix_if(!takes_all && has_aliases, || {
        remedy::of(
            period,
            "code.call_with_alias",
            "use monitor(process, P, [{alias, reply_demonitor}]) in your own calls; gen_server:call does from OTP 24 on both sides",
            "the VM then drops late replies, so they never reach the queue",
            "queue length while the callee is slow",
        )
    })
    .fix_if(takes_all && !row.is_some_and(is_on_heap), || {
        remedy::of(
            period,
            "process.message_queue_data",
            "set message_queue_data to on_heap in this process, or upgrade to a release with the fix",
            "a process that missed its wake-up sleeps until the next message",
            "queue length: 0 in most samples",
        )
    })
}
