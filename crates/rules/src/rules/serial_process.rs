//! BT005: one process that all work passes through.
//!
//! A process runs on one scheduler at a time. If a process is always runnable and has queued messages, while the other schedulers are
//! mostly idle, more cores change nothing. The process has to be split.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Signal, Threshold, Unit, metrics,
};
use beamtune_stats::trend;

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Role, Rule};
use crate::signals::blocking::{self, BlockingProcess, InfoCallers};
use crate::signals::chains::{self, ChainEnd};
use crate::signals::hot_code;
use crate::signals::stack;
use crate::signals::{known_processes, lock_suspects};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT005"),
    name: "serial-process",
    question: "Does all work pass through one process?",
    confirm: "double the load: throughput stays the same while this process is always runnable; a second instance of it raises throughput",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUnused,
    role: Role::Symptom,
    judge,
    thresholds: &[BUSY],
    ..Rule::COMMON
};

const BUSY: Threshold = Threshold::new(
    "serial-process.busy_share",
    "share of samples in which the process was running or runnable",
    Scale {
        notice: 0.70,
        warning: 0.85,
        critical: 0.97,
        source: "judgement: a server above 85 % utilization has a queue",
    },
);

/// A process with fewer samples is not judged.
const MIN_SAMPLES: u32 = 5;

/// A process with a smaller share of all reductions does not determine the throughput of the node.
const MIN_REDUCTIONS_SHARE: f64 = 0.10;

/// If the normal schedulers are active for less than this, in cores, no process on them is a CPU bottleneck.
const MIN_ACTIVE_CORES: f64 = 0.5;

/// With fewer idle schedulers the node is short of CPU.
const MIN_IDLE: f64 = 0.5;

/// More processes than this are not a single bottleneck.
const MAX_FINDINGS: usize = 2;

/// With less garbage collection, in cores, it explains nothing (judgement).
const MIN_GC_CORES: f64 = 0.1;

/// At or above this number of queued messages, process_info(Pid, memory) takes the process about a millisecond (measured: 0.02 µs per
/// message, OTP 23 to 29).
const SLOW_MEMORY_INFO_MESSAGES: f64 = 50_000.0;

/// At or above this number of callers, there are far more than on any busy node (judgement: 10 times the callers of a finding).
const BLOCKING_CALLERS: f64 = 100.0;

/// A process that iterates over whole collections in this share of its samples mostly does that (judgement).
const MIN_SCAN_SHARE: f64 = 0.5;

/// Maximum p-value of growth: above it, the growth may be chance.
const MAX_P: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?;
    let active = view::activity(period, kind::SCHEDULER)?;
    let online = active.shares.len() as f64;
    if online < 2.0 {
        return Ok(Judgement::Healthy("only 1 scheduler online".to_owned()));
    }
    let holds = blocking::blocking_processes(period).unwrap_or_default();
    let (always, often): (Vec<_>, Vec<_>) = period
        .processes
        .iter()
        .filter_map(|process| Server::new(period, process, total, &active, &holds))
        .partition(|server| BUSY.of(period).severity(server.busy).is_some());
    // Several processes that are always busy run in parallel: none is the bottleneck.
    let always = if always.len() > MAX_FINDINGS { Vec::new() } else { always };
    let servers = always.into_iter().chain(often).take(MAX_FINDINGS);
    let drafts: Vec<_> = servers.map(|server| describe(period, &server, total, &active)).collect();
    let busiest = period.processes.first().filter(|_| total > 0.0).map_or(String::new(), |process| {
        format!(
            "; busiest: {}, {:.0} % of reductions",
            process.title(),
            (process.reductions as f64 / total).min(1.0) * 100.0
        )
    });
    Ok(Judgement::found_or_healthy(drafts, format!("no bottleneck process{busiest}")))
}

/// A process that is runnable in most samples, or that many processes wait for.
struct Server<'a> {
    process: &'a ProcessActivity,
    severity: f64,
    /// Share of samples in which it was running or runnable.
    busy: f64,
    /// The processes that wait for its reply, if there are many.
    callers: Option<&'a BlockingProcess<'a>>,
    /// A process that many processes wait for, and that waits for this one.
    blocked: Option<&'a BlockingProcess<'a>>,
}

impl<'a> Server<'a> {
    fn new(
        period: &Period,
        process: &'a ProcessActivity,
        total: f64,
        active: &view::Activity,
        holds: &'a [BlockingProcess<'a>],
    ) -> Option<Self> {
        let is_it = |hold: &&BlockingProcess<'_>| hold.process.is_some_and(|held| held.pid == process.pid);
        let callers = holds.iter().find(is_it);
        let is_behind = callers.is_some_and(BlockingProcess::is_behind);
        let carries = process.reductions as f64 >= MIN_REDUCTIONS_SHARE * total;
        if process.status_samples < MIN_SAMPLES || total <= 0.0 || !(carries || is_behind) {
            return None;
        }
        let busy = f64::from(process.runnable) / f64::from(process.status_samples);
        let idle = active.shares.len() as f64 - active.cores();
        // If all schedulers are busy, the node is short of CPU, not of parallelism. If none is busy, the process "runs" on a dirty
        // scheduler and waits for a disk, which matters only if callers wait for it. A busy process alone may be a single job: it is a
        // bottleneck only if other processes wait.
        let has_queue = active.cores() >= MIN_ACTIVE_CORES && view::mean_queue(process) >= 1.0;
        // With so many callers, it is the bottleneck, whatever else the node does.
        let is_awaited = callers.is_some_and(|hold| hold.is_behind() && hold.waiting >= BLOCKING_CALLERS);
        let is_bottleneck = (idle >= MIN_IDLE && (has_queue || is_behind)) || is_awaited;
        let severity = match BUSY.of(period).severity(busy) {
            Some(severity) if is_bottleneck => severity,
            Some(severity) => severity.min(MINOR),
            None if is_bottleneck && is_behind => MINOR,
            None => return None,
        };
        let waits_for_it = |hold: &&BlockingProcess<'_>| {
            let first = hold.process.filter(|first| first.pid != process.pid);
            first.is_some_and(|first| chains::of(period, first).iter().any(|next| next.pid == process.pid))
        };
        let blocked = holds.iter().find(waits_for_it);
        Some(Self { process, severity, busy, callers, blocked })
    }
}

fn describe(period: &Period, server: &Server<'_>, total: f64, active: &view::Activity) -> Draft {
    let &Server { process, severity, busy, callers, blocked } = server;
    let online = active.shares.len() as f64;
    let idle = online - active.cores();
    let queue = view::mean_queue(process);
    let waiting = match callers {
        Some(hold) if hold.waiting > queue => {
            format!(", {} waiting", text::counted(hold.waiting.round(), "caller", "callers"))
        }
        _ if queue >= 1.0 => format!(", {} queued", text::counted(queue.round(), "message", "messages")),
        _ => String::new(),
    };
    let row = process.row.as_ref();
    // Samples show a process after its writes to a bag, not within them.
    let bag = lock_suspects::bags(period)
        .into_iter()
        .find(|bag| bag.owner == process.pid && bag.protection != "public");
    let in_bag = bag.map_or(String::new(), |bag| {
        format!(
            "likely in its ETS table {}, a bag with {}",
            bag.name,
            text::counted(bag.objects as f64, "object", "objects")
        )
    });
    // The VM reports a process as running while it waits for the disk.
    let on_disk = ChainEnd::of(period, process).filter(ChainEnd::is_on_disk);
    let disk = on_disk.as_ref().map_or(String::new(), ChainEnd::text);
    let copies =
        lock_suspects::copied_by(period, process).map_or(String::new(), |(table, each, (copies, all))| {
            format!(
                "in {copies} of {all} samples it copies objects of ETS table {}, {:.0} kB each",
                table.name,
                each / 1e3
            )
        });
    // A bag, a disk or a table is more informative than the function.
    let says_more = !(in_bag.is_empty() && disk.is_empty() && copies.is_empty());
    let does = stack::mostly_in(process).filter(|_| !says_more);
    let scans = stack::iteration_share(process).filter(|share| *share >= MIN_SCAN_SHARE);
    let subject = process.subject();
    let draft = Draft::new(
        severity,
        format!("{} busy in {:.0} % of samples{waiting}", text::name(&subject), busy * 100.0),
    )
    .detail(text::pid(&subject))
    .detail(does.unwrap_or_default())
    .detail(queue_trend(process))
    .detail(format!("{idle:.1} of {online:.0} schedulers idle"))
    .detail(in_bag)
    .detail(disk)
    .detail(copies)
    .about(subject)
    .costs(Cost::Waiting(callers.map_or(queue, |hold| hold.waiting.max(queue))))
    .evidence(
        Evidence::number("samples running or runnable", busy, Unit::Ratio)
            .against_scale(BUSY.of(period))
            .with_text(format!("{} of {}", process.runnable, process.status_samples)),
    )
    .evidence(Evidence::number(
        "share of reductions",
        (process.reductions as f64 / total).min(1.0),
        Unit::Ratio,
    ))
    .evidence(Evidence::number("queue length, mean", queue, Unit::Count))
    .evidence(Evidence::number("queue length, maximum", process.queue_max as f64, Unit::Count))
    .because_some(callers.map(|hold| {
        Evidence::number("processes waiting for its answer", hold.waiting, Unit::Count)
            .with_text(format!("{} of {} sampled", hold.sampled.0, hold.sampled.1))
    }))
    .evidence(
        Evidence::number("active schedulers", active.cores(), Unit::Cores)
            .with_text(format!("of {online:.0} online")),
    )
    .because_some(stack::evidence(process))
    .signals(scans.map(|_| Signal::ScansOwnState))
    .because_some(
        scans.map(|share| Evidence::number("samples iterating over a whole collection", share, Unit::Ratio)),
    )
    .because_some(row.and_then(|row| row.initial_call.as_deref()).map(|f| Evidence::text("initial call", f)))
    .because_some(row.and_then(|row| row.application.as_deref()).map(|a| Evidence::text("application", a)))
    .because_some(blocked.map(|hold| {
        Evidence::text(
            "process that it blocks",
            format!("{}, with {:.0} processes waiting", hold.title, hold.waiting),
        )
    }))
    .but_if(
        queue < 1.0 && callers.is_none() && blocked.is_none(),
        "no messages wait: it may be one long job that blocks nobody",
    )
    .but_if(
        BUSY.of(period).severity(busy).is_none(),
        "it is not always busy: the process that it delegates to may be the slow one",
    )
    .but_if(
        active.cores() < MIN_ACTIVE_CORES && on_disk.is_none(),
        match dirty_gc_cores(period) {
            Some(cores) => format!("much of its time may be GC on dirty CPU schedulers ({cores:.2} cores)"),
            None => "it uses hardly any CPU: it waits for a disk or a device on a dirty scheduler".to_owned(),
        },
    )
    .but_if(
        idle < MIN_IDLE,
        "the other schedulers are busy too: without more CPU, splitting it gains little",
    );
    let askers = InfoCallers::of(period).filter(|_| queue >= SLOW_MEMORY_INFO_MESSAGES);
    let draft = match &askers {
        Some(askers) => draft
            .evidence(
                Evidence::number("processes waiting in process_info/2", askers.count, Unit::Count).with_text(
                    askers.from.as_deref().map_or(String::new(), |from| format!("most of them in {from}")),
                ),
            )
            .counter_evidence(
                "which process they call is unknown; a process scans its own queue to report its memory",
            ),
        None => draft,
    };
    let draft = draft.remedy(askers.and_then(|_| {
        remedy::of(
            period,
            "code.ask_from_outside",
            "ask this process for message_queue_len only, and rarely, or keep a counter: it answers memory and most other items itself, \
             and for memory it scans its whole queue",
            "it handles no message while it replies to these calls",
            "messages handled per second under the same load, without these calls",
        )
    }));
    // Operators cannot split a process of OTP or of a product. For these, an alternative is known.
    let is_own = !known_processes::knows(process);
    known_processes::explain(draft, period, process)
    .but_if(bag.is_some(), "a bag with few objects per key is as fast as a set")
    .remedy(bag.and_then(|bag| lock_suspects::keyed(period, bag)))
    .remedy(on_disk.as_ref().and_then(ChainEnd::advice).and_then(|(entry, change, why)| {
        let prove = "throughput under the same load, and its queue length";
        remedy::of(period, entry, &change, why, prove)
    }))
    .fix_if(is_own && bag.is_none(), || {
        remedy::of(
            period,
            "code.split_process",
            match callers {
                Some(_) => "split it by key into several processes, or let callers read from ETS or persistent_term without calling it",
                None => "split it by key into several processes",
            },
            "a process uses one scheduler at most",
            "throughput under the same load rises with the number of parts",
        )
    })
    .fix_if(is_own && on_disk.is_none(), || {
        remedy::of(
            period,
            "code.cheaper_callback",
            &format!("make each message cheaper: {}", advice(process)),
            "its time per message limits the throughput of the node",
            "reductions per message of the process",
        )
    })
}

/// Formats whether the queue grows, by its 95 % interval. Empty if the process has no queue, or too few samples.
fn queue_trend(process: &ProcessActivity) -> String {
    let points = view::trend_points(&process.queue);
    match trend(&points) {
        _ if view::mean_queue(process) < 1.0 => String::new(),
        Some(trend) if trend.p < MAX_P && trend.low > 0.0 => {
            format!("its queue grows by {}/s", text::number(trend.slope))
        }
        Some(_) => "its queue does not grow".to_owned(),
        None => String::new(),
    }
}

/// Returns what to change: the known alternative to the OTP function that it mostly runs, or else the function to profile.
fn advice(process: &ProcessActivity) -> String {
    let instead = stack::most_at(process).and_then(hot_code::instead);
    let current = stack::current_function_of(process).filter(|function| !stack::is_machinery(function));
    let own = stack::most_of_program(process).or(current).unwrap_or("its callbacks");
    match instead {
        Some(instead) => format!("in {own}, {instead}"),
        None => format!("profile {own}"),
    }
}

/// Returns the garbage collection on dirty CPU schedulers, in cores; `None` if it is negligible.
fn dirty_gc_cores(period: &Period) -> Option<f64> {
    let gc = view::gc(period, &[kind::DIRTY_CPU]).ok()?.gc;
    (gc >= MIN_GC_CORES).then_some(gc)
}
