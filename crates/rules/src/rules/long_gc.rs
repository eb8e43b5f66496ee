//! BT017: a process stands still while its garbage is collected.

use beamtune_model::{Code, Evidence, Missing, Period, Scale, Unit, metrics};

use crate::events::told;
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};

pub const RULE: Rule = Rule {
    code: Code("BT017"),
    name: "long-gc",
    question: "Does a process stand still for long while its garbage is collected?",
    confirm: "erlang:system_monitor(Pid, [{long_gc, 100}]) for some minutes: the same process must be named again",
    needs: &[&metrics::EVENT_COUNT],
    since: 21,
    judge,
};

/// The longest collection, in seconds.
const LONGEST: Scale = Scale {
    notice: 0.1,
    warning: 0.25,
    critical: 2.0,
    source: "judgement: whoever asks the process waits as long; operators report collections of 100 to 500 ms and more",
};

/// Share of time for which the process that is named stands still: so many of those who ask it wait, however short each collection is.
const STANDS: Scale = Scale {
    notice: 0.01,
    warning: 0.05,
    critical: 0.5,
    source: "judgement: of 20 who ask a process one meets a collection",
};

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let told = told(period, "long_gc")?;
    let Some(score) = LONGEST.score(told.longest) else {
        return Ok(Judgement::Healthy("no collection took 100 ms or more".to_owned()));
    };
    let stands = told.culprit.as_ref().map_or(0.0, |culprit| {
        told.seconds / period.seconds().max(1.0) * culprit.count as f64 / culprit.of.max(1) as f64
    });
    let score = STANDS.score(stands).map_or(score, |of_time| of_time.max(score));
    let hosts = told.may_be_the_hosts(period);
    let score = if hosts { score.min(20.0) } else { score };
    let process = told.culprit.as_ref().and_then(|culprit| {
        period.processes.iter().find(|process| culprit.subject.contains(process.pid.as_str()))
    });
    let queue = process.map_or(0, |process| process.queue_max);
    let draft = Draft::new(
        score,
        match &told.culprit {
            Some(culprit) => format!(
                "{} stands still for up to {:.0} ms while its garbage is collected",
                culprit.subject,
                told.longest * 1e3
            ),
            None => format!(
                "{} collections of 100 ms and more, the longest {:.0} ms",
                told.count,
                told.longest * 1e3
            ),
        },
    )
    .because(
        Evidence::number("longest collection", told.longest, Unit::Seconds)
            .against(LONGEST.warning, LONGEST.source),
    )
    .because(Evidence::number("such collections", told.rate, Unit::PerSecond))
    .because(
        Evidence::number("share of time for which it stands still", stands, Unit::Ratio)
            .against(STANDS.warning, STANDS.source),
    )
    .because_some((queue > 0).then(|| Evidence::number("messages in its queue", queue as f64, Unit::Count)))
    .but_if(hosts, "schedulers waited for a CPU for about as long: on a host with CPU left it may be short");
    Ok(Judgement::found(
        told.blame(draft)
        .fix(remedy::of(
            period,
            "code.less_garbage",
            "keep large data out of the process's heap: ETS, persistent_term or binaries; split the state over several processes",
            "a full collection copies all that is alive, and nobody is answered meanwhile",
            "long_gc events, and p99 of what asks this process, under the same load",
        ))
        .fix_if(queue > 1_000, || {
            remedy::of(
                period,
                "process.message_queue_data",
                "process_flag(message_queue_data, off_heap) in this process",
                "a long queue on the heap is copied by each full collection",
                "long_gc events, with a queue as long",
            )
        }),
    ))
}
