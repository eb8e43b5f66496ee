//! BT056: threads of the async pool (`+A`) that nobody uses; or a pool that a driver keeps busy.
//!
//! Before OTP 21 files were read and written by these threads. Since then that is the dirty I/O schedulers' work, and a pool of 64 or 128
//! threads is what an old configuration has left. Only drivers that are linked in and call `driver_async` use it: of OTP's own that of file
//! descriptors alone, for standard output that may block.

use beamtune_model::{
    Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view::{self, Flag, kind};

pub const RULE: Rule = Rule {
    code: Code("BT056"),
    name: "async-threads",
    question: "Does anything use the async threads, and do they suffice?",
    confirm: "top -H -p PID: the TIME+ of the threads async_N or erts_async_N; without +A, under the same load, nothing may become slower",
    needs: &[&metrics::THREAD_CPU],
    account: Account::CpuUsed,
    judge,
    thresholds: &[BUSY],
    ..Rule::COMMON
};

/// From so many threads on a pool was asked for by somebody: the default has been 1 since OTP 21, and was 10 before.
const MANY: f64 = 30.0;

/// The VM does not start with more (OTP 25 and 29).
const MOST: f64 = 1_024.0;

/// A thread that has done nothing but begin has used less of a CPU, in seconds: 3 to 130 µs were measured (OTP 23, 25, 27, 29).
const BEGUN_SECONDS: f64 = 0.0005;

/// Before this release standard output was a port, which writes by the pool where that may block.
const STANDARD_OUTPUT_APART: u32 = 26;

/// Worth knowing, no more.
const WORTH_KNOWING: f64 = 10.0;

/// Share of the time in which the threads worked, all together.
/// Never critical: what waits for it is the driver's own.
const BUSY: Threshold = Threshold::new(
    "async-threads.busy_share",
    "share of time in which the async threads work",
    Scale { notice: 0.50, warning: 0.85, critical: 1.50, source: "judgement: a pool above 85 % has a queue" },
);

/// Threads of the pool as they were seen.
struct Pool {
    threads: f64,
    /// Threads that worked, on average.
    busy: f64,
    /// What all of them have used of a CPU since the VM was started, in seconds.
    ever_seconds: f64,
}

impl Pool {
    fn of(period: &Period) -> Result<Pool, Missing> {
        let threads = period.fact_number(facts::ASYNC_THREADS)? as f64;
        let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::ASYNC])?;
        // A driver that waits for a disk uses no CPU, and is awake all the same.
        let awake = view::states(period, &[kind::ASYNC]).map_or(0.0, |states| states.awake());
        let since_start = |entity: &str| {
            period.stat(&metrics::THREAD_CPU, entity).map_or(0.0, |stat| stat.last.value as f64 / 1e9)
        };
        let entities = view::entities_of(period, metrics::THREAD_CPU.group, &[kind::ASYNC]);
        Ok(Pool { threads, busy: cpu.max(awake), ever_seconds: entities.into_iter().map(since_start).sum() })
    }

    fn share(&self) -> f64 {
        if self.threads > 0.0 { self.busy / self.threads } else { 0.0 }
    }

    /// Nobody has given them anything to do since the VM was started.
    fn is_unused(&self) -> bool {
        self.ever_seconds < BEGUN_SECONDS * self.threads
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let pool = Pool::of(period)?;
    if let Some(severity) = BUSY.of(period).severity(pool.share()) {
        return Ok(Judgement::found(busy(period, &pool, severity)));
    }
    if pool.threads >= MANY && pool.is_unused() {
        return Ok(Judgement::found(unused(period, &pool)));
    }
    Ok(Judgement::Healthy(format!(
        "async threads: {:.0}, busy in {:.0} % of the time",
        pool.threads,
        pool.share() * 100.0
    )))
}

/// A driver keeps them busy: what it is given waits.
fn busy(period: &Period, pool: &Pool, severity: f64) -> Draft {
    let more = (4.0 * pool.threads).clamp(8.0, MOST);
    Draft::new(
        severity,
        format!(
            "a driver keeps {:.1} of {:.0} async threads busy: what it gives them beyond that waits",
            pool.busy, pool.threads
        ),
    )
    .because(Evidence::number("busy async threads", pool.busy, Unit::Cores).with_text(format!("of {:.0}", pool.threads)))
    .because(Evidence::number("their share of the time", pool.share(), Unit::Ratio).against_scale(BUSY.of(period)))
    .because_some(libraries(period))
    .but("all work of a port may go to the same thread, as its driver wants it: then more threads do not help that port")
    .but_if(
        period.facts.otp_release().is_none_or(|release| release < STANDARD_OUTPUT_APART),
        "that driver may be standard output's: a terminal or a pipe that is slow takes what is printed and logged there",
    )
    .but("files are no reason: they have gone by the dirty I/O schedulers since OTP 21 (dirty-schedulers-saturated)")
    .fix_if(more > pool.threads, || {
        remedy::of(
            period,
            "+A",
            &format!("+A {more:.0}"),
            "jobs of that driver then run beside each other",
            "msacc: the share of sleep of the threads of type async; throughput under the same load",
        )
    })
}

/// What an old configuration has left.
fn unused(period: &Period, pool: &Pool) -> Draft {
    let change = match view::emulator_flag(&period.facts, "+A") {
        Flag::Set(value) => format!("leave out +A {value}: the default is 1"),
        Flag::Unknown | Flag::Default => {
            "take ERL_THREAD_POOL_SIZE out of the environment, or set +A 1".to_owned()
        }
    };
    Draft::new(
        WORTH_KNOWING,
        format!("none of the {:.0} async threads has done anything since the VM was started", pool.threads),
    )
    .about(Subject::Threads { name: "async threads".to_owned() })
    .because(Evidence::number("async threads", pool.threads, Unit::Count).with_text("the default is 1"))
    .because(
        Evidence::number("CPU of all of them since the VM was started", pool.ever_seconds, Unit::Seconds)
            .with_text("what it takes to begin"),
    )
    .because_some(libraries(period))
    .but("it costs little: some kB of memory for each, and room in lists of threads and in msacc's tables")
    .but("a driver that is used seldom may have had nothing to do so far")
    .fix(remedy::of(
        period,
        "+A",
        &change,
        "files have gone by the dirty I/O schedulers since OTP 21: who wants more for files means +SDio",
        "threads of the VM (ls /proc/PID/task | wc -l), and throughput under the same load",
    ))
}

/// Whose driver it may be.
fn libraries(period: &Period) -> Option<Evidence> {
    let list = period.facts.list(facts::NATIVE_LIBRARIES).filter(|list| !list.is_empty())?;
    Some(Evidence::text("libraries that are not the system's", list.join(", ")))
}
