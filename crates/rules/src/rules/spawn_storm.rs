//! BT039: processes are started for so little work that starting and ending them is much of the load of the node.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, SpawnRow, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::new_processes;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT039"),
    name: "spawn-storm",
    question: "Does starting processes cost much CPU?",
    confirm: "handle a hundred pieces per process under the same load (beamtune compare --a-env, --b-env): CPU falls",
    needs: &[&metrics::SPAWNED, &metrics::PROCESS_COUNT, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// CPU time to start and end a process, in microseconds.
const PROCESS_USEC: f64 = 2.0;

const SHARE: Threshold = Threshold::new(
    "spawn-storm.cpu_share",
    "starting and ending processes, share of the schedulers' CPU time",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.75,
        source: "2 µs for each: measured on OTP 23, 25, 27 and 29, spawn and exit alone 0.5 to 1 µs, with a monitor and a message on \
             two schedulers 2.4 to 3.5 µs; the shares are judgement",
    },
);

/// If it takes fewer cores, it is no problem, whatever its share.
const MIN_CORES: f64 = 0.05;

/// Processes with fewer reductions on average are small: this is a tenth of a time slice (4,000 reductions, `CONTEXT_REDS` of ERTS).
const SMALL_REDUCTIONS: f64 = 400.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let rate = view::spawn_rate(period)?;
    // CPU time includes busy wait, and active time includes time that other programs took. So the smaller of both is used.
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER]);
    let busy = cpu.map_or(active, |cpu| cpu.min(active));
    let cores = rate * PROCESS_USEC / 1e6;
    let share = if busy > 0.0 { (cores / busy).min(1.0) } else { 0.0 };
    let Some(severity) = SHARE.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "{} processes started/s, about {:.0} % of the schedulers' CPU time",
            text::rate(rate),
            share * 100.0
        )));
    };
    Ok(Judgement::found(describe(period, severity, rate, share, cores).minor_if(cores < MIN_CORES)))
}

fn describe(period: &Period, severity: f64, rate: f64, share: f64, cores: f64) -> Draft {
    let each = period.rate(&metrics::REDUCTIONS, "").ok().map(|reductions| reductions / rate);
    let origin = new_processes::most(period, rate);
    let total = view::all_reductions(period).unwrap_or(0.0);
    let busiest = period.processes.first().filter(|process| process.reductions > 0 && total > 0.0);
    let is_large = each.is_some_and(|each| each > SMALL_REDUCTIONS);
    let draft = Draft::new(
        severity,
        format!("Starting {} processes/s takes about {:.0} % of CPU time", text::rate(rate), share * 100.0),
    )
    .detail(origin.map_or(String::new(), |row| format!("most are {}", origin_text(row))))
    .detail(
        each.map_or(String::new(), |each| format!("at most {} reductions each", text::number(each.round()))),
    )
    .costs(Cost::CpuCores(cores))
    .evidence(Evidence::number("processes started", rate, Unit::PerSecond))
    .evidence(
        Evidence::number("share of CPU time, at 2 µs each", share, Unit::Ratio)
            .against_scale(SHARE.of(period)),
    )
    .evidence(Evidence::number("CPU time to start and end them", cores, Unit::Cores))
    .because_some(each.map(|each| {
        Evidence::number("reductions of the node per new process", each, Unit::Count)
            .with_text("an upper bound of the mean for one process")
    }))
    .because_some(origin.map(|row| {
        Evidence::text(
            "sampled new processes",
            format!("{} of {} are {}", row.count, row.sample_size, origin_text(row)),
        )
    }))
    .because_some(busiest.map(|process| {
        let share = process.reductions as f64 / total * 100.0;
        let text =
            format!("{}, {share:.0} % of the reductions of processes older than a second", process.title());
        Evidence::text("busiest process", text)
    }));
    let draft = match origin {
        Some(row) => draft.about(Subject::ProcessKind { name: row.kind.clone(), starter: row.creator.clone() }),
        None => draft.counter_evidence(
            "hardly any lived long enough to be sampled: the parent is unknown, likely one of the busiest processes",
        ),
    };
    draft
        .but_if(origin.is_some(), "the sample misses the shortest-lived processes, which may have another parent")
        .but_if(is_large, "each of them may do much work: then the cost of starting it is small")
        .but_if(cores < MIN_CORES, "the node does little work in total: harmless at this rate")
        .remedy(remedy::of(
            period,
            "code.fewer_processes",
            "do small pieces in place (lists:map instead of a process per element, Enum.map instead of Task.async_stream), hundreds of \
             pieces per process, or use a fixed number of workers",
            "a piece takes less CPU than its process",
            "CPU per request under the same load, and vm.spawned",
        ))
}

fn origin_text(row: &SpawnRow) -> String {
    match &row.creator {
        Some(maker) => format!("{}, started by {maker}", row.kind),
        None => row.kind.clone(),
    }
}
