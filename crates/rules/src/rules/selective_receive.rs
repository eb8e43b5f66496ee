//! BT041: a process spends its time searching its own queue.
//!
//! A receive that does not match goes through all messages, each time, at one reduction for each. So a process with a long queue
//! that looks for one kind of message in it gets slower by the length of its queue, and the queue does not go away.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::largest_first;
use crate::signals::stack;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT041"),
    name: "selective-receive",
    question: "Does a process spend its time searching its own message queue?",
    confirm: "process_info(Pid, current_stacktrace) some times: the same receive each time; with an empty queue the same work must be fast",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::CpuUsed,
    judge,
    thresholds: &[LENGTH],
    ..Rule::COMMON
};

/// Messages in the queue of a process that is always runnable, and whose reductions are those of a search.
const LENGTH: Threshold = Threshold::new(
    "selective-receive.queue_length",
    "fewest messages in the queue of a process that searches it",
    Scale {
        notice: 500.0,
        warning: 1_000.0,
        critical: 10_000.0,
        source: "measured on OTP 23, 25, 27 and 29: a receive that looks past 1,000 messages takes 4 to 5 µs, past 10,000 33 to 50 µs",
    },
);

/// Share of the looks in which it wanted to run.
const RUNNABLE: f64 = 0.85;

/// Reductions in a second of CPU time from which they may be those of a search, which takes one for each message: 80 to 130 million a second in
/// queues of 1,000 to 1,000,000 messages on a machine that others used (measured on OTP 25 and 29), 200 to 300 million on a quiet one (OTP 23
/// to 29). Of other work a reduction takes longer, since each is a call of a function (20 to 60 million a second) …
const SEARCH_PER_SECOND: f64 = 65e6;
/// … but for a loop that does nothing else, which has more: 440 to 530 million a second (measured on OTP 25 and 29).
const LOOP_PER_SECOND: f64 = 400e6;
/// From this many looks at it running on, nearly all of them must be in the same function: a search has no other (judgement).
const FEWEST_LOOKS: i64 = 5;
/// See [`FEWEST_LOOKS`].
const SAME_PLACE: f64 = 0.8;

/// Sends of sockets, whose receive for the driver's answer looked at the whole queue …
const SENDS: [&str; 2] = ["prim_inet:do_sendto/", "prim_inet:send"];
/// … before this release (erlang/otp#6455, prim_inet.erl).
const SENDS_BY_REFERENCE: u32 = 26;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let drafts = period.processes.iter().filter_map(|process| {
        let search = Search::of(period, process)?;
        let severity = LENGTH.of(period).severity(search.length)?;
        // In a call that is always runnable nothing else takes time; a loop of the program's own may be what costs.
        Some(describe(period, process, severity, &search).inferred_if(!search.in_call))
    });
    Ok(Judgement::found_or_healthy(
        drafts.collect(),
        format!(
            "no process with a long queue was busy with searching it; the longest queue seen held {} messages",
            longest.max
        ),
    ))
}

struct Search {
    /// The least that was seen in its queue.
    length: f64,
    /// Reductions in a second of CPU time, at least.
    reductions: f64,
    /// It stands in a call, whose receive waits for one answer.
    in_call: bool,
    /// It stands in a send of a socket, whose receive is known to search.
    in_send: bool,
    runnable: f64,
}

impl Search {
    fn of(period: &Period, process: &ProcessUse) -> Option<Search> {
        let runnable = stack::wanted_to_run(process).filter(|share| *share >= RUNNABLE)?;
        let length = process.queue.points().iter().map(|point| point.1).min()? as f64;
        // It had no more CPU than all schedulers together, and never more than one of them.
        let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])
            .map_or(1.0, |cpu| cpu.min(1.0));
        let told = f64::from(process.ticks) / f64::from(period.vm_ticks.max(1));
        let seconds = period.seconds() * told * cpu;
        let reductions = if seconds > 0.0 { process.reductions as f64 / seconds } else { 0.0 };
        let place = stack::of(process)?;
        let in_call = stack::is_receive_of_call(place);
        // What it sends is done by the driver, in another function: here it only searches, however slow the machine is.
        let in_send = period.facts.otp_release().is_some_and(|release| release < SENDS_BY_REFERENCE)
            && stack::begins(place, &SENDS)
            && looks_running(process) >= FEWEST_LOOKS;
        let searches = (in_send || (SEARCH_PER_SECOND..LOOP_PER_SECOND).contains(&reductions))
            && !stack::is_loop(place)
            && runs_in_one_place(process);
        searches.then_some(Search { length, reductions, in_call, in_send, runnable })
    }
}

/// Whether it was seen running in one function only, nearly; true of too few looks.
fn runs_in_one_place(process: &ProcessUse) -> bool {
    let places = largest_first(process.ran.iter().map(|(stack, looks)| (stack.first(), *looks)));
    let of = looks_running(process);
    let most = places.first().map_or(0, |(_, looks)| *looks);
    of < FEWEST_LOOKS || most as f64 >= SAME_PLACE * of as f64
}

fn looks_running(process: &ProcessUse) -> i64 {
    process.ran.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks))
}

fn describe(period: &Period, process: &ProcessUse, severity: f64, search: &Search) -> Draft {
    let place = stack::of(process).unwrap_or_default();
    Draft::new(
        severity,
        format!(
            "{} is {}busy with searching its own queue: it is in {place}, with {:.0} messages in its queue and more",
            process.title(),
            if search.in_call { "" } else { "most likely " },
            search.length
        ),
    )
    .about(process.subject())
    .costs(Cost::Waiting(search.length))
    .because(
        Evidence::number("messages in its queue, at least", search.length, Unit::Count)
            .against_scale(LENGTH.of(period)),
    )
    .because(match search.in_send {
        true => Evidence::text("what it searches for", "the driver's answer to each send: before OTP 26 that receive looks at the whole queue (erlang/otp#6455)"),
        false => Evidence::number("its reductions", search.reductions / 1e6, Unit::Count)
            .against(
                SEARCH_PER_SECOND / 1e6,
                "measured on OTP 23, 25, 27 and 29: searching a queue takes 80 to 300 million a second, calls of functions 20 to 60",
            )
            .with_text("millions in a second of CPU time, at least"),
    })
    .because(Evidence::number("looks in which it ran or was runnable", search.runnable, Unit::Ratio))
    .because(Evidence::text("where it was", place))
    .but_if(
        !search.in_call,
        "a tight loop in its callback has as many reductions: see whether that function has a receive in it",
    )
    .fix_if(search.in_send, || {
        remedy::of(
            period,
            "code.no_selective_receive",
            "take all messages out of the mailbox first (receive … after 0, into a queue in the state), then send; or send from a process of its own \
             that has no other messages; drop what is too old",
            "a send costs as much as there are messages in the sender's mailbox",
            "messages sent in a second with a long queue",
        )
    })
    .fix_if(search.in_send, || {
        remedy::of(
            period,
            "build.otp_version",
            "OTP 26 or later",
            "sends there wait for their answer by a reference, behind what is in the queue (erlang/otp#6455)",
            "messages sent in a second with a long queue",
        )
    })
    .fix_if(!search.in_send, || remedy::of(
        period,
        "code.no_selective_receive",
        "take messages in the order in which they come, in one receive; keep what is not its turn in the state; a flag in ETS, \
         persistent_term or atomics for \"stop\" and \"cancel\"",
        "each receive that does not match looks at the whole queue",
        "messages handled in a second with a long queue, and its reductions for each",
    ))
    .fix_if(!search.in_send, || remedy::of(
        period,
        "code.receive_by_reference",
        "where it asks somebody: make_ref(), monitor/2 or alias/1 in the same function as the receive, with the reference in all of \
         its clauses; or a process of its own for each call, with an empty queue",
        "then the receive begins behind what was there when the reference was made (the compiler says so with +recv_opt_info, from 24 on)",
        "messages handled in a second with a long queue",
    ))
    .fix(remedy::of(
        period,
        "code.back_pressure",
        "a limit of what may wait for it",
        "the longer its queue, the slower it is: what a burst has left it never gets rid of",
        "messages in its queue after a burst under the same load",
    ))
}
