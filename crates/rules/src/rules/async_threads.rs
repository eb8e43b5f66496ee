//! BT056: an async thread pool (`+A`) that nothing uses, or one that a driver keeps busy.
//!
//! Before OTP 21 these threads read and wrote files. Now dirty I/O schedulers do that, and a pool of 64 or 128 threads is a leftover of an
//! old configuration. Only linked-in drivers that call `driver_async` use the pool. OTP has one such driver, the one for file descriptors,
//! for standard output that may block.

use beamtune_model::{
    Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view::{self, Flag, kind};

pub const RULE: Rule = Rule {
    code: Code("BT056"),
    name: "async-threads",
    question: "Are the async threads used, and are there enough of them?",
    confirm: "run top -H -p PID and see TIME+ of the threads async_N or erts_async_N; without +A nothing gets slower under the same load",
    needs: &[&metrics::THREAD_CPU],
    account: Account::CpuUsed,
    judge,
    thresholds: &[BUSY],
    ..Rule::COMMON
};

/// A pool of at least this size was configured: the default is 1 since OTP 21, and was 10 before.
const MIN_CONFIGURED_THREADS: f64 = 30.0;

/// Maximum size of the pool with which the VM starts (OTP 25 and 29).
const MAX_THREADS: f64 = 1_024.0;

/// A thread that was only started has used less CPU: 3 to 130 µs were measured (OTP 23, 25, 27, 29).
const START_SECONDS: f64 = 0.0005;

/// Before this release, standard output was a port, which writes through the pool if writing may block.
const STANDARD_OUTPUT_IS_NO_PORT: u32 = 26;

const NOTICE: f64 = 10.0;

/// Share of the time in which the threads of the pool were busy. Never critical: only the driver's own work waits for them.
const BUSY: Threshold = Threshold::new(
    "async-threads.busy_share",
    "share of time in which the async threads are busy",
    Scale { notice: 0.50, warning: 0.85, critical: 1.50, source: "judgement: a pool above 85 % has a queue" },
);

/// The async thread pool.
struct Pool {
    threads: f64,
    /// Mean number of busy threads.
    busy: f64,
    /// CPU time of all threads since the VM started.
    total_cpu_seconds: f64,
}

impl Pool {
    fn of(period: &Period) -> Result<Pool, Missing> {
        let threads = period.fact_number(facts::ASYNC_THREADS)? as f64;
        let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::ASYNC])?;
        // A driver that waits for a disk uses no CPU, but its thread is awake.
        let awake = view::states(period, &[kind::ASYNC]).map_or(0.0, |states| states.awake());
        let since_start = |entity: &str| {
            period.stat(&metrics::THREAD_CPU, entity).map_or(0.0, |stat| stat.last.value as f64 / 1e9)
        };
        let entities = view::entities_of(period, metrics::THREAD_CPU.group, &[kind::ASYNC]);
        let total_cpu_seconds = entities.into_iter().map(since_start).sum();
        Ok(Pool { threads, busy: cpu.max(awake), total_cpu_seconds })
    }

    fn share(&self) -> f64 {
        if self.threads > 0.0 { self.busy / self.threads } else { 0.0 }
    }

    /// Whether the pool has had no job since the VM started.
    fn is_unused(&self) -> bool {
        self.total_cpu_seconds < START_SECONDS * self.threads
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let pool = Pool::of(period)?;
    if let Some(severity) = BUSY.of(period).severity(pool.share()) {
        return Ok(Judgement::found(busy(period, &pool, severity)));
    }
    if pool.threads >= MIN_CONFIGURED_THREADS && pool.is_unused() {
        return Ok(Judgement::found(unused(period, &pool)));
    }
    let threads = text::counted(pool.threads, "async thread", "async threads");
    Ok(Judgement::Healthy(format!("{threads}: {:.0} % busy", pool.share() * 100.0)))
}

/// Drafts the finding that a driver keeps the pool busy, so that its jobs wait.
fn busy(period: &Period, pool: &Pool, severity: f64) -> Draft {
    let more = (4.0 * pool.threads).clamp(8.0, MAX_THREADS);
    let threads = text::counted(pool.threads, "async thread", "async threads");
    Draft::new(severity, format!("{:.1} of {threads} busy: jobs of a driver wait", pool.busy))
        .detail(format!("pool busy {:.0} % of the time", pool.share() * 100.0))
        .evidence(
            Evidence::number("busy async threads", pool.busy, Unit::Cores)
                .with_text(format!("of {:.0}", pool.threads)),
        )
        .evidence(
            Evidence::number("busy share of the pool", pool.share(), Unit::Ratio)
                .against_scale(BUSY.of(period)),
        )
        .because_some(libraries(period))
        .counter_evidence("a driver may give all jobs of a port to one thread; more threads then do not help that port")
        .but_if(
            period.facts.otp_release().is_none_or(|release| release < STANDARD_OUTPUT_IS_NO_PORT),
            "the driver may be the one for standard output, with a slow terminal or pipe",
        )
        .counter_evidence("files are not the cause: since OTP 21 they use dirty I/O schedulers (dirty-schedulers-saturated)")
        .fix_if(more > pool.threads, || {
            remedy::of(
                period,
                "+A",
                &format!("+A {more:.0}"),
                "jobs of the driver then run in parallel",
                "msacc: more sleep in threads of type async; throughput under the same load",
            )
        })
}

/// Drafts the finding that the pool is a leftover of an old configuration.
fn unused(period: &Period, pool: &Pool) -> Draft {
    let change = match view::emulator_flag(&period.facts, "+A") {
        Flag::Set(value) => format!("remove +A {value}: the default is 1"),
        Flag::Unknown | Flag::Default => "unset ERL_THREAD_POOL_SIZE, or set +A 1".to_owned(),
    };
    let cpu = 1e3 * pool.total_cpu_seconds;
    Draft::new(NOTICE, format!("{:.0} async threads, unused since the VM started", pool.threads))
        .detail(format!("{cpu:.1} ms of CPU in total, as needed to start them"))
        .about(Subject::Threads { name: "async threads".to_owned() })
        .evidence(Evidence::number("async threads", pool.threads, Unit::Count).with_text("the default is 1"))
        .evidence(
            Evidence::number("CPU time since the VM started", pool.total_cpu_seconds, Unit::Seconds)
                .with_text("what it takes to start them"),
        )
        .because_some(libraries(period))
        .counter_evidence(
            "the cost is small: some kB of memory per thread, and entries in thread lists and msacc tables",
        )
        .counter_evidence("a rarely used driver may have had no job yet")
        .remedy(remedy::of(
            period,
            "+A",
            &change,
            "since OTP 21 files use dirty I/O schedulers; +SDio adds threads for files",
            "number of VM threads (ls /proc/PID/task | wc -l), and throughput under the same load",
        ))
}

/// Native libraries, which may contain the driver.
fn libraries(period: &Period) -> Option<Evidence> {
    let list = period.facts.list(facts::NATIVE_LIBRARIES).filter(|list| !list.is_empty())?;
    Some(Evidence::text("native libraries", list.join(", ")))
}
