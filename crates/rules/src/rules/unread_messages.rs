//! BT040: messages that no receive of their process takes.
//!
//! A process that waits although messages are there, and that does not stand in a call, waits in a receive that matches none of them.
//! If they were taken at all, their number would move: it stays, or what comes is taken past those that stay.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::process_memory::is_on_heap;
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT040"),
    name: "unread-messages",
    question: "Do messages stay in a queue because no receive takes them?",
    confirm: "process_info(Pid, message_queue_len) some minutes apart, without load: messages that are still there are taken by nobody",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::Delay,
    judge,
    thresholds: &[STAY],
    ..Rule::COMMON
};

/// Messages that stay.
const STAY: Threshold = Threshold::new(
    "unread-messages.messages",
    "messages that no receive takes, in one queue",
    Scale {
        notice: 100.0,
        warning: 1_000.0,
        critical: 1_000_000.0,
        source: "measured on OTP 23, 25, 27 and 29: a receive that looks past 1,000 messages takes 4 to 5 µs for it",
    },
);

/// What a receive takes to look past one message, in seconds: see [`STAY`].
const LOOK_SECONDS: f64 = 4.5e-9;

/// Share of the looks in which it may want to run: who is runnable more often takes messages, or searches them (BT041).
const MOST_RUNNABLE: f64 = 0.3;

/// Looks at a queue below which equal lengths may be chance.
const MIN_LOOKS: usize = 5;

/// By so much of its length a queue may move and yet stay. One that grows by more is BT006's.
const MOVES: f64 = 0.10;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let drafts = period.processes.iter().filter_map(|process| {
        // Those of a process that has ended stay no longer.
        view::queue_now(period, process)?;
        let stay = stay(process)?;
        let severity = STAY.of(period).severity(stay)?;
        Some(describe(period, process, severity, stay))
    });
    Ok(Judgement::found_or_healthy(
        drafts.collect(),
        format!("no process waits beside messages that stay; the longest queue seen held {}", longest.max),
    ))
}

/// How many messages were there in each look at a process that waits for something else.
fn stay(process: &ProcessUse) -> Option<f64> {
    let row = process.row.as_ref()?;
    let waits = row.status.as_deref() == Some("waiting") && stack::wanted_to_run(process)? <= MOST_RUNNABLE;
    let stands_in_call = stack::of(process).is_none_or(stack::is_call);
    let lengths = process.queue.points();
    if !waits || stands_in_call || lengths.len() < MIN_LOOKS {
        return None;
    }
    let least = lengths.iter().map(|point| point.1).min()?;
    let most = lengths.iter().map(|point| point.1).max()?;
    let (first, last) = (lengths.first()?.1, lengths.last()?.1);
    let stays = last >= first && (most - least) as f64 <= MOVES * most as f64;
    stays.then_some(least as f64)
}

fn describe(period: &Period, process: &ProcessUse, severity: f64, stay: f64) -> Draft {
    let row = process.row.as_ref();
    let place = stack::of(process).unwrap_or_default();
    let takes_all = stack::is_loop(place);
    let off_heap = row.and_then(|row| row.message_queue_data.as_deref()) == Some("off_heap");
    let has_aliases = period.facts.otp_release().is_none_or(|release| release >= 24);
    let grown = process.queue.points().last().map_or(0.0, |point| point.1 as f64) - stay;
    let more = if grown >= 1.0 { format!("; {grown:.0} came on top") } else { String::new() };
    Draft::new(
        severity,
        format!(
            "{stay:.0} messages stay in the queue of {}, which waits in {place}: no receive takes them",
            process.title()
        ),
    )
    .about(process.subject())
    .costs(Cost::DelaySeconds(LOOK_SECONDS * stay))
    .because(Evidence::number("messages that stay", stay, Unit::Count).against_scale(STAY.of(period)).with_text(
        format!("the least of {} looks{more}", process.queue.points().len()),
    ))
    .because_some(
        stack::wanted_to_run(process)
            .map(|share| Evidence::number("looks in which it ran or was runnable", share, Unit::Ratio)),
    )
    .because(Evidence::text("where it waits", place))
    .because_some(row.and_then(|row| row.initial_call.as_deref()).map(|f| Evidence::text("started with", f)))
    .because(Evidence::number(
        "what each receive that looks past all of them takes",
        LOOK_SECONDS * stay,
        Unit::Seconds,
    ))
    .because_some(row.and_then(|row| row.message_queue_data.as_deref()).map(|d| Evidence::text("message_queue_data", d)))
    .but_if(!takes_all, "it may hold them back on purpose, until what it waits for has come")
    .but_if(
        takes_all && off_heap,
        "the loop of a behaviour takes whatever comes: on 25.0 to 25.3.2.9 and 26.0 to 26.2.2 a process with its queue off the heap \
         may have missed its wake-up (erlang/otp#8119); sending it anything wakes it",
    )
    .fix_if(!takes_all, || {
        remedy::of(
            period,
            "code.receive_all",
            "a clause in its loop that takes what nobody waits for, and logs or drops it: late answers of calls that were given up, \
             'DOWN' and 'EXIT' messages, answers to a port that is closed",
            "a message that no clause matches stays for as long as the process lives",
            "messages in its queue: 0 in most looks",
        )
    })
    .fix_if(!takes_all && has_aliases, || {
        remedy::of(
            period,
            "code.call_with_alias",
            "monitor(process, P, [{alias, reply_demonitor}]) for calls of its own making, as gen_server:call does by itself from 24 on \
             if both sides are at least that new",
            "what comes after the time-out is dropped by the VM, and never reaches the queue",
            "messages in its queue while the callee is slow",
        )
    })
    .fix_if(takes_all && !row.is_some_and(is_on_heap), || {
        remedy::of(
            period,
            "process.message_queue_data",
            "message_queue_data on_heap in this process, or a release in which this is mended",
            "a process that missed its wake-up sleeps until the next message",
            "messages in its queue: 0 in most looks",
        )
    })
}
