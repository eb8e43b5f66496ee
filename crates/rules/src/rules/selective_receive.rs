//! BT041: a process spends its time searching its own message queue.
//!
//! Each time a receive finds no match, it has scanned all messages, at one reduction per message. A process with a long queue that waits
//! for one kind of message gets slower as its queue grows, and the queue never empties.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::largest_first;
use crate::signals::stack;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT041"),
    name: "selective-receive",
    question: "Does a process spend its time searching its own message queue?",
    confirm: "call process_info(Pid, current_stacktrace) several times: the same receive each time; with an empty queue the work is fast",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::CpuUsed,
    judge,
    thresholds: &[LENGTH],
    ..Rule::COMMON
};

const LENGTH: Threshold = Threshold::new(
    "selective-receive.queue_length",
    "minimum queue length of a process that searches its queue",
    Scale {
        notice: 500.0,
        warning: 1_000.0,
        critical: 10_000.0,
        source: "measured on OTP 23, 25, 27 and 29: a receive that skips 1,000 messages takes 4 to 5 µs, 10,000 33 to 50 µs",
    },
);

/// Share of samples in which the process must be running or runnable.
const MIN_RUNNABLE: f64 = 0.85;

/// Range of reductions per second of CPU time that fits a search, in which each message takes one reduction. Measured in queues of 1,000 to
/// 1,000,000 messages: 80 to 130 million on a host with other load (OTP 25 and 29). On a quiet host, it was 200 to 300 million (OTP 23 to
/// 29). In other work, each reduction is a function call, which takes longer (20 to 60 million a second) …
const MIN_SEARCH_REDUCTIONS_PER_S: f64 = 65e6;
/// … except in a tight loop: 440 to 530 million a second (measured on OTP 25 and 29).
const MAX_SEARCH_REDUCTIONS_PER_S: f64 = 400e6;
/// With this many samples of the running process, most must show the same function: a search calls no other function (judgement).
const MIN_SAMPLES: i64 = 5;
/// Share of these samples that must show the same function.
const MIN_SAME_FUNCTION: f64 = 0.8;

/// Socket sends, whose receive of the reply from the driver scanned the whole queue …
const SENDS: [&str; 2] = ["prim_inet:do_sendto/", "prim_inet:send"];
/// … before this release (erlang/otp#6455, prim_inet.erl).
const SENDS_BY_REFERENCE: u32 = 26;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let drafts = period.processes.iter().filter_map(|process| {
        let search = Search::of(period, process)?;
        let severity = LENGTH.of(period).severity(search.length)?;
        // In a call that is always runnable, only the search takes time. A function of the program may contain a tight loop instead.
        Some(describe(period, process, severity, &search).inferred_if(!search.is_call))
    });
    Ok(Judgement::found_or_healthy(
        drafts.collect(),
        format!(
            "no process searches a long queue; longest message queue: {}",
            text::number(longest.max as f64)
        ),
    ))
}

struct Search {
    /// Minimum queue length.
    length: f64,
    /// Reductions per second of CPU time, a lower bound.
    reductions_per_s: f64,
    /// Whether its current function is a call, whose receive waits for one reply.
    is_call: bool,
    /// Whether its current function is a socket send, whose receive is known to search.
    is_send: bool,
    /// Share of samples in which it was running or runnable.
    runnable: f64,
}

impl Search {
    fn of(period: &Period, process: &ProcessActivity) -> Option<Search> {
        let runnable = stack::runnable_share(process).filter(|share| *share >= MIN_RUNNABLE)?;
        let length = process.queue.points().iter().map(|point| point.1).min()? as f64;
        // The process had no more CPU time than all schedulers together, and never more than one of them.
        let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])
            .map_or(1.0, |cpu| cpu.min(1.0));
        let recorded = f64::from(process.ticks) / f64::from(period.vm_ticks.max(1));
        let seconds = period.seconds() * recorded * cpu;
        let reductions_per_s = if seconds > 0.0 { process.reductions as f64 / seconds } else { 0.0 };
        let function = stack::current_function_of(process)?;
        let is_call = stack::is_receive_of_call(function);
        // The driver sends in another function. In this function the process only searches, however slow the host is.
        let is_send = period.facts.otp_release().is_some_and(|release| release < SENDS_BY_REFERENCE)
            && stack::begins(function, &SENDS)
            && samples_running(process) >= MIN_SAMPLES;
        let is_search_rate =
            (MIN_SEARCH_REDUCTIONS_PER_S..MAX_SEARCH_REDUCTIONS_PER_S).contains(&reductions_per_s);
        let searches = (is_send || is_search_rate) && !stack::is_loop(function) && runs_one_function(process);
        searches.then_some(Search { length, reductions_per_s, is_call, is_send, runnable })
    }
}

/// Whether nearly all samples of the running process show the same function; true if there are too few samples.
fn runs_one_function(process: &ProcessActivity) -> bool {
    let functions = largest_first(process.run_stacks.iter().map(|(stack, looks)| (stack.first(), *looks)));
    let all = samples_running(process);
    let most = functions.first().map_or(0, |(_, looks)| *looks);
    all < MIN_SAMPLES || most as f64 >= MIN_SAME_FUNCTION * all as f64
}

fn samples_running(process: &ProcessActivity) -> i64 {
    process.run_stacks.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks))
}

fn describe(period: &Period, process: &ProcessActivity, severity: f64, search: &Search) -> Draft {
    let function = stack::current_function_of(process).unwrap_or_default();
    let subject = process.subject();
    let likely = if search.is_call { "" } else { "likely " };
    Draft::new(
        severity,
        format!(
            "{} {likely}searches its queue of {} messages",
            text::name(&subject),
            text::number(search.length)
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("in {function}"))
    .detail(format!("running or runnable in {:.0} % of samples", search.runnable * 100.0))
    .about(subject)
    .costs(Cost::Waiting(search.length))
    .evidence(
        Evidence::number("minimum queue length", search.length, Unit::Count)
            .against_scale(LENGTH.of(period)),
    )
    .evidence(match search.is_send {
        true => Evidence::text(
            "what it searches for",
            "the driver's answer to each send: before OTP 26 that receive scans the whole queue (erlang/otp#6455)",
        ),
        false => Evidence::number("reductions", search.reductions_per_s / 1e6, Unit::Count)
            .against(
                MIN_SEARCH_REDUCTIONS_PER_S / 1e6,
                "measured on OTP 23, 25, 27 and 29: a search of a queue takes 80 to 300 million a second, function calls 20 to 60",
            )
            .with_text("million per second of CPU time, at least"),
    })
    .evidence(Evidence::number("samples running or runnable", search.runnable, Unit::Ratio))
    .evidence(Evidence::text("current function", function))
    .but_if(
        !search.is_call,
        "a tight loop has as many reductions: see whether that function has a receive in it",
    )
    .fix_if(search.is_send, || {
        remedy::of(
            period,
            "code.no_selective_receive",
            "empty the mailbox first (receive … after 0, into a queue in the state), then send; or send from a process of its own; drop what \
             is too old",
            "each send takes time in proportion to the sender's message queue",
            "messages sent per second with a long queue",
        )
    })
    .fix_if(search.is_send, || {
        remedy::of(
            period,
            "build.otp_version",
            "upgrade to OTP 26 or later",
            "sends there wait for their answer by a reference, and skip the queue (erlang/otp#6455)",
            "messages sent per second with a long queue",
        )
    })
    .fix_if(!search.is_send, || {
        remedy::of(
            period,
            "code.no_selective_receive",
            "receive messages in the order of arrival, in one receive, and keep early ones in the state; use a flag in ETS, \
             persistent_term or atomics for \"stop\" and \"cancel\"",
            "each receive that does not match scans the whole queue",
            "messages handled per second with a long queue, and reductions per message",
        )
    })
    .fix_if(!search.is_send, || {
        remedy::of(
            period,
            "code.receive_by_reference",
            "for calls: make_ref(), monitor/2 or alias/1 in the function of the receive, with the reference in all its clauses; or make each \
             call in a process of its own",
            "the receive then skips older messages (from OTP 24 on the compiler reports it with +recv_opt_info)",
            "messages handled per second with a long queue",
        )
    })
    .remedy(remedy::of(
        period,
        "code.back_pressure",
        "limit its message queue",
        "the longer the queue, the slower the process: it never catches up after a burst",
        "queue length after a burst under the same load",
    ))
}
