//! BT081: Mnesia dumps its transaction log to the tables' files all the time.
//!
//! Each transaction that changes a `disc_copies` or `disc_only_copies` table is written to the log. After `dump_log_write_threshold` writes
//! (1,000 by default) the log is dumped: Mnesia reads it and writes the changes to each table's file (mnesia_dumper.erl). With a low
//! threshold, or very many writes, one dump follows another.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::{mnesia, products};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT081"),
    name: "mnesia-log-dumps",
    question: "Does Mnesia dump its log too often?",
    confirm: "raise the threshold under the same load: the log no longer says \"Mnesia is overloaded: {dump_log, write_threshold}\", and CPU and disk writes fall",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[DUMPS],
    ..Rule::COMMON
};

const DUMPS: Threshold = Threshold::new(
    "mnesia-log-dumps.dumps_per_s",
    "dumps of the transaction log due per second",
    Scale {
        notice: 0.5,
        warning: 5.0,
        critical: 1_000_000.0,
        source: "judgement: a dump opens and syncs the file of each changed table, some 10 ms of a disk; Mnesia reports an overload if one is \
             due before the last one has ended",
    },
);

/// Mnesia's default since OTP 21 (mnesia_monitor.erl, `default_env`).
const DEFAULT_WRITES: f64 = 1_000.0;

/// With the advised threshold, one dump is due in this time (judgement) …
const ADVISED_SECONDS: f64 = 10.0;
/// … unless that exceeds the highest usual threshold.
const MAX_ADVISED_WRITES: f64 = 100_000.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !mnesia::runs(period)? {
        return Ok(Judgement::Healthy(mnesia::NOT_STARTED.to_owned()));
    }
    let writes = period.rate(&metrics::MNESIA_LOG_WRITES, "")?;
    let threshold = (period.stat(&metrics::MNESIA_LOG_THRESHOLD, "")?.last.value as f64).max(1.0);
    let due = writes / threshold;
    let Some(severity) = DUMPS.of(period).severity(due) else {
        return Ok(Judgement::Healthy(format!(
            "Mnesia log: {} writes/s, dump after {}",
            text::rate(writes),
            text::number(threshold)
        )));
    };
    Ok(Judgement::found(describe(period, severity, writes, threshold)))
}

fn describe(period: &Period, severity: f64, writes: f64, threshold: f64) -> Draft {
    let advised = (writes * ADVISED_SECONDS).clamp(DEFAULT_WRITES, MAX_ADVISED_WRITES);
    // One significant digit, because the load changes.
    let magnitude = 10_f64.powf(advised.log10().floor());
    let advised = ((advised / magnitude).ceil() * magnitude).min(MAX_ADVISED_WRITES);
    let change = match products::name(period) {
        Some("RabbitMQ") => {
            format!("{{mnesia, [{{dump_log_write_threshold, {advised:.0}}}]}} in advanced.config")
        }
        Some("ejabberd") => {
            format!("-mnesia dump_log_write_threshold {advised:.0} in ERL_OPTIONS of ejabberdctl.cfg")
        }
        _ => format!("-mnesia dump_log_write_threshold {advised:.0}, or the same in sys.config"),
    };
    let dirty_io = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::DIRTY_IO]).ok();
    let dumped = period.rate(&metrics::MNESIA_LOG_DUMPED, "").ok();
    Draft::new(
        severity,
        format!("Mnesia log dumps are due {} times per second", text::rate(writes / threshold)),
    )
    .detail(format!("{} writes/s", text::number(writes.round())))
    .detail(format!("dump_log_write_threshold {}", text::number(threshold)))
    .about(Subject::Flag { name: "dump_log_write_threshold".to_owned() })
    .evidence(
        Evidence::number("dumps due", writes / threshold, Unit::PerSecond).against_scale(DUMPS.of(period)),
    )
    .evidence(Evidence::number("writes to the log", writes, Unit::PerSecond))
    .evidence(
        Evidence::number("dump_log_write_threshold", threshold, Unit::Count)
            .with_text(format!("{DEFAULT_WRITES:.0} by default")),
    )
    .because_some(dumped.map(|dumped| Evidence::number("writes covered by dumps", dumped, Unit::PerSecond)))
    .because_some(dirty_io.map(|cores| Evidence::number("CPU of dirty I/O schedulers", cores, Unit::Cores)))
    .but_if(
        threshold >= DEFAULT_WRITES,
        "the threshold is not low: a burst of writes, such as an import, looks the same",
    )
    .remedy(remedy::of(
        period,
        "mnesia.dump_log_write_threshold",
        &change,
        "the log alone makes a transaction durable; a dump only keeps it short",
        "dumps due, CPU and bytes written under the same load",
    ))
}
