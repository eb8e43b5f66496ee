//! BT006: a process gets messages faster than it handles them.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Threshold, Unit, metrics,
};
use beamtune_stats::trend::MIN_POINTS;
use beamtune_stats::{Trend, trend};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, WARNING};
use crate::signals::kinds::{self, Kind};
use crate::signals::known_processes;
use crate::signals::process_memory::{is_on_heap, off_heap};
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT006"),
    name: "growing-message-queue",
    question: "Does a process get messages faster than it handles them?",
    confirm: "process_info(Pid, message_queue_len) twice, a minute apart and without the burst: a queue that shrinks was a burst",
    needs: &[&metrics::SCAN_LONGEST_QUEUE],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[LENGTH],
    ..Rule::COMMON
};

/// Messages in one queue.
const LENGTH: Threshold = Threshold::new(
    "growing-message-queue.queue_length",
    "messages in one queue",
    Scale {
        notice: 1_000.0,
        warning: 5_000.0,
        critical: 500_000.0,
        source: "a queue above 5,000 makes a process suspect (practice of RabbitMQ's and EMQX's operators)",
    },
);

/// Growth in the time observed that matters, as a share of the queue's length at its end …
const MIN_GROWTH: f64 = 0.10;
/// … or in messages: a very long queue need not grow by much.
const MIN_GROWN: f64 = 1_000.0;

/// A queue that has grown and holds less than this share of its largest length has been emptied meanwhile: what it grew by is gone.
const STILL_THERE: f64 = 0.5;

/// Where a look at all processes takes several samples, so many such looks say something.
const WHOLE_ROUNDS: u32 = 3;

/// A queue of this length is worth a warning even if it only lies there: it is memory, and every collection of its
/// owner goes through it.
const LONG: f64 = 100_000.0;

/// A queue that grows is a warning at least, whatever its length (judgement).
const GROWS: f64 = WARNING + 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let mut drafts = Vec::new();
    for process in period.processes.iter().filter(|p| p.queue_max as f64 >= LENGTH.of(period).notice) {
        let Some(last) = view::queue_now(period, process) else { continue };
        let Some(severity) = LENGTH.of(period).severity(last) else { continue };
        let points = view::trend_points(&process.queue);
        let is_at_its_end = last >= STILL_THERE * process.queue_max as f64;
        match trend(&points).filter(|trend| is_at_its_end && grows(trend, &points)) {
            Some(trend) => drafts.push(growing(period, process, severity.max(GROWS), last, &trend)),
            // Who takes all that has come, again and again, has a long queue in between.
            None if last < LONG && view::is_emptied_again(process) => {}
            None => drafts.push(
                steady(period, process, if last >= LONG { severity.max(GROWS) } else { severity }, last)
                    .inferred_if(last >= LONG)
                    .guess_if(last < LONG),
            ),
        }
    }
    let reached = period.stat(&metrics::SCAN_COVERAGE, "").map_or(1_000.0, |stat| stat.mean());
    // The longest queue of all is known when a round through all processes has ended.
    if drafts.is_empty() && reached < 999.0 && longest.samples < WHOLE_ROUNDS {
        return Ok(Judgement::NotJudged {
            reason: format!(
                "only {:.0} % of the processes could be looked at each second without costing the node too much; none of them had a long queue",
                reached / 10.0
            ),
            next: "record for longer, so that all are reached: --for 60s".to_owned(),
        });
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        match LENGTH.of(period).severity(longest.max as f64) {
            Some(_) => {
                format!("the longest message queue seen held {} messages, and they are gone", longest.max)
            }
            None => format!(
                "the longest message queue seen held {} messages, and none grew past {:.0}",
                longest.max,
                LENGTH.of(period).notice
            ),
        },
    ))
}

/// Growth beyond doubt that matters: a queue that swings does not count.
fn grows(trend: &Trend, points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let grown = trend.slope * (last.0 - first.0);
    trend.p < 0.01 && trend.low > 0.0 && grown >= MIN_GROWN.min(MIN_GROWTH * last.1)
}

fn growing(period: &Period, process: &ProcessUse, severity: f64, last: f64, trend: &Trend) -> Draft {
    let draft = Draft::new(
        severity,
        format!(
            "the message queue of {} grows by {:.0} messages a second and holds {last:.0}",
            process.title(),
            trend.slope
        ),
    );
    // Code of OTP's, or of a product, is not to be changed by whoever runs it; who sends to it is another matter.
    let is_own = !known_processes::knows(process);
    let draft = known_processes::explain(evidence(draft, period, process, last), period, process).because(
        Evidence::number("growth", trend.slope, Unit::PerSecond)
            .with_text(format!("95 % interval {:.0} to {:.0}", trend.low, trend.high)),
    );
    let draft = match HeldUp::of(process) {
        Some(held_up) => held_up.advise(draft, period, is_own),
        None => advise_busy(draft, period, is_own),
    };
    draft.fix_if(is_own && process.row.as_ref().is_some_and(is_on_heap), || {
        off_heap(
            period,
            "a long queue on the heap is copied by each full collection; this cures what collections cost, and the growth only where they \
             are what it has no time for messages for",
            "gc share of the schedulers (BT011) and the process's memory",
        )
    })
}

const BOUNDED: &str = "the queue must stay bounded under the same load";

/// A process that waits for something else while its queue grows.
enum HeldUp {
    /// For a peer to take what it sends.
    Send,
    /// In the midst of something, in this function.
    At(String),
}

impl HeldUp {
    fn of(process: &ProcessUse) -> Option<HeldUp> {
        let status = process.row.as_ref()?.status.as_deref();
        // Where it was found running says nothing of where it waits.
        if process.stood.is_empty() && !matches!(status, Some("waiting" | "suspended")) {
            return None;
        }
        let place = Kind::of(process)?.place?;
        let (at, stack) = stack::stands(process)?;
        let is_in_midst = if stack.is_empty() { stack::is_call(at) } else { stack::is_in_midst(stack) };
        match (kinds::is_send(&place), is_in_midst) {
            (true, _) => Some(HeldUp::Send),
            (false, true) => Some(HeldUp::At(place)),
            (false, false) => None,
        }
    }

    /// Senders that wait for an answer wait for what holds it up, too, and with them all whom they serve.
    fn advise(&self, draft: Draft, period: &Period, is_own: bool) -> Draft {
        match self {
            HeldUp::Send => draft.fix(remedy::of(
                period,
                "code.back_pressure",
                "drop or merge what waits for a receiver that is behind (keep the latest value only), or end it when its queue passes a limit; \
                 no call in place of the cast: the sender would wait for the slowest peer, and all others with it",
                "nothing limits what is sent to a process that waits for its peer",
                BOUNDED,
            )),
            HeldUp::At(place) => draft
                .fix(remedy::of(
                    period,
                    "code.back_pressure",
                    "limit what is in flight, or drop what is old when its queue is long; a call in place of a cast only where the sender has \
                     nobody else to serve: it waits for the same then",
                    "without it the queue grows until memory ends",
                    BOUNDED,
                ))
                .fix_if(is_own, || {
                    remedy::of(
                        period,
                        "code.more_in_flight",
                        &format!(
                            "find out why it waits so long in {place}: a time-out there, or that step in a process of its own for each \
                             message, no more than some at a time"
                        ),
                        "it handles no other message while it waits",
                        "messages handled per second under the same load",
                    )
                }),
        }
    }
}

fn advise_busy(draft: Draft, period: &Period, is_own: bool) -> Draft {
    draft
        .fix(remedy::of(
            period,
            "code.back_pressure",
            "let senders wait for an answer (call instead of cast), or limit what is in flight, or drop when the queue is long",
            "without it the queue grows until memory ends",
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

fn steady(period: &Period, process: &ProcessUse, severity: f64, last: f64) -> Draft {
    // Who is behind may be read too seldom: its queue is told only while it is among the longest, or it does not answer.
    let is_known = process.queue.points().len() >= MIN_POINTS;
    let grows = if is_known { ", but does not grow" } else { "" };
    let draft = Draft::new(
        severity,
        format!("the message queue of {} holds {last:.0} messages{grows}", process.title()),
    );
    known_processes::explain(evidence(draft, period, process, last), period, process)
        .but(if is_known { "it did not grow in the time observed" } else { "whether it grows is not known: it was read too seldom" })
        .fix(remedy::of(
            period,
            "code.back_pressure",
            "find out why messages lie there: a selective receive that never matches, or work held back on purpose",
            "each receive that looks through a long queue takes time in its length",
            "record for longer: beamtune record --for 10m",
        ))
}

fn evidence(draft: Draft, period: &Period, process: &ProcessUse, last: f64) -> Draft {
    let row = process.row.as_ref();
    draft
        .about(process.subject())
        .costs(Cost::Waiting(last))
        .because(
            Evidence::number("messages in its queue", last, Unit::Count).against_scale(LENGTH.of(period)),
        )
        .because_some(
            stack::wanted_to_run(process)
                .map(|share| Evidence::number("looks in which it ran or was runnable", share, Unit::Ratio)),
        )
        .because_some(stack::evidence(process))
        .because_some(
            row.and_then(|row| row.initial_call.as_deref()).map(|f| Evidence::text("started with", f)),
        )
        .because_some(row.map(|row| Evidence::number("its memory", row.memory_bytes as f64, Unit::Bytes)))
        .because_some(
            row.and_then(|row| row.message_queue_data.as_deref())
                .map(|d| Evidence::text("message_queue_data", d)),
        )
}
