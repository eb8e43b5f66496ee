//! BT012: all dirty schedulers are busy, and jobs wait for them.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Signal, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT012"),
    name: "dirty-schedulers-saturated",
    question: "Does work wait for the dirty schedulers?",
    confirm: "start more dirty schedulers under the same load (+SDio, +SDcpu): calls that waited for one get faster",
    needs: &[&metrics::SCHEDULER_ACTIVE, &metrics::RUN_QUEUE],
    account: Account::CpuUsed,
    role: Role::Symptom,
    text: Some("the output of scheduler:utilization(10)"),
    judge,
    thresholds: &[USE],
    ..Rule::COMMON
};

const USE: Threshold = Threshold::new(
    "dirty-schedulers-saturated.busy_share",
    "mean share of time in which the dirty schedulers of a kind are busy",
    Scale { notice: 0.75, warning: 0.90, critical: 0.99, source: "judgement: above 90 % work queues" },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let mut drafts = Vec::new();
    let mut healthy = Vec::new();
    for (kind, queue, io) in [(kind::DIRTY_CPU, "dirty_cpu", false), (kind::DIRTY_IO, "dirty_io", true)] {
        let activity = match view::activity(period, kind) {
            Ok(activity) => activity,
            // scheduler:utilization prints no dirty I/O schedulers.
            Err(_) if io && period.is_imported() => continue,
            Err(missing) => return Err(missing),
        };
        let waiting = match view::run_queue(period, queue) {
            Ok(waiting) => Some(waiting),
            // Nor does it print run queues.
            Err(_) if period.is_imported() => None,
            Err(missing) => return Err(missing),
        };
        let name = if io { "dirty I/O schedulers" } else { "dirty CPU schedulers" };
        healthy.push(format!("{name} busy {:.0} %", activity.mean() * 100.0));
        let Some(severity) = USE.of(period).severity(activity.mean()) else { continue };
        // If no jobs wait, busy threads are fully used, but there are enough of them.
        let has_queue = waiting.is_some_and(|waiting| waiting >= 0.5);
        drafts.push(describe(period, severity, name, &activity, waiting, io).minor_if(!has_queue));
    }
    Ok(Judgement::found_or_healthy(drafts, healthy.join(", ")))
}

/// A thread that sleeps less often per second does not wait for a disk: each disk access is a sleep, and the agent causes fewer
/// (judgement).
const MIN_SLEEPS_PER_S: f64 = 0.2;

/// A thread that uses less CPU does no work (judgement), in cores.
const MIN_CORES: f64 = 0.01;

/// Whether dirty I/O schedulers are always busy, but neither use a CPU nor wake up: each is blocked in one call.
fn calls_do_not_return(period: &Period, threads: usize) -> bool {
    let each = |rate: Result<f64, Missing>| rate.ok().map(|rate| rate / threads.max(1) as f64);
    let sleeps = each(view::thread_rate(period, &metrics::VOLUNTARY_SWITCHES, &[kind::DIRTY_IO]));
    let cores = each(view::thread_cores(period, &metrics::THREAD_CPU, &[kind::DIRTY_IO]));
    sleeps.is_some_and(|sleeps| sleeps < MIN_SLEEPS_PER_S) && cores.is_some_and(|cores| cores < MIN_CORES)
}

fn describe(
    period: &Period,
    severity: f64,
    name: &str,
    activity: &view::Activity,
    waiting: Option<f64>,
    io: bool,
) -> Draft {
    let threads = activity.shares.len();
    let total = period.facts.number(facts::DIRTY_CPU_SCHEDULERS).map_or(threads, |n| n.max(0) as usize);
    let useful = max_useful(period).unwrap_or(0);
    let gc = view::states(period, &[kind::DIRTY_CPU]).map(|states| states.gc()).unwrap_or(0.0);
    let by_gc = !io && gc > activity.cores() / 2.0;
    let running = period
        .processes
        .iter()
        .filter_map(|process| process.row.as_ref())
        .filter(|row| row.status.as_deref() == Some("running"))
        .find_map(|row| Some((row.title()?.to_owned(), row.current_function.clone()?)));
    let running = running.map(|(title, function)| format!("{title} in {function}"));
    let stuck = io && calls_do_not_return(period, threads);
    let all = match threads {
        1 => format!("The only {}", name.trim_end_matches('s')),
        _ => format!("All {threads} {name}"),
    };
    let rest = match (stuck, waiting) {
        (true, _) => ", each blocked in one call".to_owned(),
        (false, Some(jobs)) if jobs >= 0.5 => {
            format!(", {}", text::counted(jobs, "job waits", "jobs wait"))
        }
        (false, _) => String::new(),
    };
    Draft::new(severity, format!("{all} {:.0} % busy{rest}", activity.mean() * 100.0))
        .detail(waiting.map_or(String::new(), |jobs| format!("mean run queue {}", text::number(jobs))))
        .detail(if by_gc { "mostly GC of large heaps" } else { "" })
        .detail(running.as_ref().map_or(String::new(), |running| format!("running: {running}")))
        .about(Subject::Threads { name: name.to_owned() })
        .signals(by_gc.then_some(Signal::Collects))
        .costs(waiting.map(Cost::Waiting))
        .evidence(
            Evidence::number("mean utilization", activity.mean(), Unit::Ratio).against_scale(USE.of(period)),
        )
        .because_some(waiting.map(|jobs| Evidence::number("mean run queue", jobs, Unit::Count)))
        .evidence(Evidence::number("threads", threads as f64, Unit::Count))
        .because_some(by_gc.then(|| Evidence::number("of those GC of large heaps", gc, Unit::Cores)))
        .because_some(running.map(|running| Evidence::text("a running process", running)))
        .but_if(
            waiting.is_some_and(|jobs| jobs < 0.5),
            "no jobs wait: the threads are fully used, but there are enough of them",
        )
        .but_if(
            waiting.is_none(),
            "run queues unknown: see the last two of erlang:statistics(run_queue_lengths_all)",
        )
        .but_if(
            io && !stuck,
            "calls that never return (a FIFO without a peer, a hung network file system) block any number of threads",
        )
        .fix_if(stuck, || {
            remedy::of(
                period,
                "code.no_blocking_files",
                "find the file that does not respond (FIFO, device, network file system); access it from a port program, or with a timeout",
                "more threads would block as well",
                "file:open/2 of a regular file returns at once; the dirty I/O run queue is empty",
            )
        })
        .fix_if(io && !stuck, || {
            remedy::of(
                period,
                "+SDio",
                &format!("+SDio {}", (threads * 2).min(1024)),
                "these threads mostly wait for a disk or a device; more of them wait in parallel",
                "dirty_io run queue and file latency under the same load",
            )
        })
        .fix_if(!io && by_gc && view::shares_dirty_allocators(&period.facts), || {
            remedy::of(
                period,
                "+Mdai",
                "+Mdai max",
                "by default dirty schedulers share one locked allocator instance",
                "throughput under the same load; a lock-counting emulator shows alcu_allocator",
            )
        })
        .fix_if(!io && threads < useful, || {
            remedy::of(
                period,
                "+SDcpu",
                &format!("+SDcpu {useful}:{useful}"),
                "there are fewer dirty CPU schedulers than the VM can use",
                "dirty_cpu run queue and throughput under the same load",
            )
        })
        .fix_if(!io && threads < total.min(useful), || {
            remedy::of(
                period,
                "system_flag.dirty_cpu_schedulers_online",
                &format!("erlang:system_flag(dirty_cpu_schedulers_online, {})", total.min(useful)),
                "some of them are not online",
                "dirty_cpu run queue; run beamtune doctor again",
            )
        })
        .fix_if(!io, || {
            remedy::of(
                period,
                "code.shorter_dirty_work",
                if by_gc {
                    "make heaps smaller: split the state, keep large data out of processes"
                } else {
                    "make fewer or shorter CPU-bound NIF calls; limit how many run at once"
                },
                "more of these threads than CPUs would not help",
                "dirty_cpu run queue under the same load",
            )
        })
}

/// Number of dirty CPU schedulers that can be useful: at most as many as normal schedulers online, and as CPUs. The VM reduces a higher
/// number, or refuses it with badarg.
fn max_useful(period: &Period) -> Result<usize, Missing> {
    let cores =
        view::capacity(period).map(|capacity| capacity.cores).or_else(|_| view::schedulers_online(period))?;
    Ok(cores.max(1.0) as usize)
}
