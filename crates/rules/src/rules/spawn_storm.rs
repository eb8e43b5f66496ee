//! BT039: processes are started for so little that starting and ending them is much of what the node does.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, SpawnRow, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::new_processes;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT039"),
    name: "spawn-storm",
    question: "Are more processes started than the work needs?",
    confirm: "the same pieces in chunks of a hundred to a process, under the same load: CPU must fall (beamtune compare --a-env, --b-env)",
    needs: &[&metrics::SPAWNED, &metrics::PROCESS_COUNT, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// What a process costs beyond its work, in microseconds of a CPU.
const PROCESS_USEC: f64 = 2.0;

/// Share of the schedulers' CPU time that starting and ending processes takes.
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

/// Below so many cores it is no trouble, whatever its share.
const WORTH_CORES: f64 = 0.05;

/// Processes whose work is below this on the average are small: a tenth of a time slice (4,000 reductions, `CONTEXT_REDS` of ERTS).
const SMALL_REDUCTIONS: f64 = 400.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let rate = view::spawn_rate(period)?;
    // Busy waiting is in their CPU time, and what others took from them is in their active time.
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER]);
    let busy = cpu.map_or(active, |cpu| cpu.min(active));
    let cores = rate * PROCESS_USEC / 1e6;
    let share = if busy > 0.0 { (cores / busy).min(1.0) } else { 0.0 };
    let Some(severity) = SHARE.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "{rate:.0} processes are started in a second: about {:.0} % of the schedulers' CPU time",
            share * 100.0
        )));
    };
    let small = cores < WORTH_CORES;
    Ok(Judgement::found(describe(period, severity, rate, share, cores).minor_if(small)))
}

fn describe(period: &Period, severity: f64, rate: f64, share: f64, cores: f64) -> Draft {
    let each = period.rate(&metrics::REDUCTIONS, "").ok().map(|reductions| reductions / rate);
    let origin = new_processes::most(period, rate);
    let from = origin.map_or(String::new(), |row| format!(", mostly {}", origin_text(row)));
    let total = view::all_reductions(period).unwrap_or(0.0);
    let busiest = period.processes.first().filter(|process| process.reductions > 0 && total > 0.0);
    let large = each.is_some_and(|each| each > SMALL_REDUCTIONS);
    let draft = Draft::new(
        severity,
        format!(
            "{rate:.0} processes are started in a second{from}: about {:.0} % of the schedulers' CPU time goes into starting and \
             ending them",
            share * 100.0
        ),
    )
    .costs(Cost::CpuCores(cores))
    .because(Evidence::number("processes started", rate, Unit::PerSecond))
    .because(
        Evidence::number("share of the schedulers' CPU time, at 2 µs each", share, Unit::Ratio)
            .against_scale(SHARE.of(period)),
    )
    .because(Evidence::number("which is", cores, Unit::Cores))
    .because_some(each.map(|each| {
        Evidence::number("reductions of the whole node for each of them", each, Unit::Count)
            .with_text("no process can have had more on the average")
    }))
    .because_some(origin.map(|row| {
        Evidence::text("of those seen alive", format!("{} of {} are {}", row.count, row.of, origin_text(row)))
    }))
    .because_some(busiest.map(|process| {
        let share = process.reductions as f64 / total * 100.0;
        let text = format!("{}, with {share:.0} % of the reductions of all that lived longer than a second", process.title());
        Evidence::text("the busiest process", text)
    }));
    let draft = match origin {
        Some(row) => draft.about(Subject::ProcessKind { name: row.kind.clone(), starter: row.maker.clone() }),
        None => draft.but(
            "hardly any of them lived long enough to be seen: who starts them is likely among the busiest processes, but not known",
        ),
    };
    draft
        .but_if(
            origin.is_some(),
            "who starts them is told by those that are alive when they are looked at: the shortest ones escape that",
        )
        .but_if(large, "each of them may have done much: then what it costs to start them is little beside that")
        .but_if(
            cores < WORTH_CORES,
            "the node does little else, and little of it: it is no trouble at this rate",
        )
        .fix(remedy::of(
            period,
            "code.fewer_processes",
            "do small pieces where they arise (lists:map in place of a process for each element, Enum.map in place of Task.async_stream), \
             some hundreds of pieces to a process, or a fixed number of workers that take them",
            "what a piece takes is less than its process costs",
            "CPU for each request under the same load, and vm.spawned",
        ))
}

fn origin_text(row: &SpawnRow) -> String {
    match &row.maker {
        Some(maker) => format!("{}, started by {maker}", row.kind),
        None => row.kind.clone(),
    }
}
