//! BT005: one process that everything has to pass through.
//!
//! A process runs on one scheduler at a time. When one is always runnable, has messages waiting and the
//! other schedulers have little to do, more cores change nothing: the process has to be split.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Signal, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Role, Rule};
use crate::signals::blocking::{self, Askers, Hold};
use crate::signals::chains::{self, Last};
use crate::signals::hot_code;
use crate::signals::stack;
use crate::signals::{known_processes, lock_suspects};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT005"),
    name: "serial-process",
    question: "Does everything pass through one process?",
    confirm: "twice the load: throughput that stays, while this process is always runnable, confirms it; a second instance of it must raise it",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUnused,
    role: Role::Symptom,
    judge,
    thresholds: &[SATURATION],
    ..Rule::COMMON
};

/// Share of the looks at the process in which it ran or was runnable.
const SATURATION: Threshold = Threshold::new(
    "serial-process.busy_share",
    "share of samples in which the process was running or runnable",
    Scale {
        notice: 0.70,
        warning: 0.85,
        critical: 0.97,
        source: "judgement: a server above 85 % use queues",
    },
);

/// Looks at a process below which its saturation says little.
const MIN_LOOKS: u32 = 5;

/// Share of all reductions below which a process is not the one that carries the node.
const MIN_SHARE: f64 = 0.10;

/// Below this activity of the normal schedulers, in cores, no process on them is a bottleneck of CPU.
const MIN_ACTIVE: f64 = 0.5;

/// More processes than this are not "one".
const MOST: usize = 2;

/// Less garbage collection than this explains nothing, in cores (judgement).
const WORTH_COLLECTING: f64 = 0.1;

/// Messages through which whoever is asked for its memory goes in about a millisecond (measured: 0.02 µs for each, OTP 23 to 29).
const LONG_QUEUE: f64 = 50_000.0;

/// So many that wait for one answer are far more than a full node keeps waiting anyway (judgement: 10 times the callers of a finding).
const MANY_CALLERS: f64 = 100.0;

/// From this share of the looks on it is what the process does (judgement).
const MOSTLY: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?;
    let active = view::activity(period, kind::SCHEDULER)?;
    let online = active.shares.len() as f64;
    if online < 2.0 {
        return Ok(Judgement::Healthy(
            "only one scheduler is online, so no process keeps others from running beside it".to_owned(),
        ));
    }
    let holds = blocking::holds(period).unwrap_or_default();
    let (always, often): (Vec<_>, Vec<_>) = period
        .processes
        .iter()
        .filter_map(|process| Server::new(period, process, total, &active, &holds))
        .partition(|server| SATURATION.of(period).severity(server.looks).is_some());
    // Several that are always busy run beside each other: none of them holds up the others.
    let always = if always.len() > MOST { Vec::new() } else { always };
    let servers = always.into_iter().chain(often).take(MOST);
    let drafts: Vec<_> = servers.map(|server| describe(period, &server, total, &active)).collect();
    let busiest = period.processes.first().filter(|_| total > 0.0).map_or(String::new(), |process| {
        format!(
            "; the busiest process, {}, did {:.0} % of the reductions",
            process.title(),
            (process.reductions as f64 / total).min(1.0) * 100.0
        )
    });
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("no process was busy all the time with messages waiting{busiest}"),
    ))
}

/// A process that wants to run in most looks at it, or for which many wait.
struct Server<'a> {
    process: &'a ProcessUse,
    severity: f64,
    /// Share of the looks in which it ran or was runnable.
    looks: f64,
    /// Who waits for its answer, if many do.
    callers: Option<&'a Hold<'a>>,
    /// For whom many wait that wait for it themselves.
    asked_by: Option<&'a Hold<'a>>,
}

impl<'a> Server<'a> {
    fn new(
        period: &Period,
        process: &'a ProcessUse,
        total: f64,
        active: &view::Activity,
        holds: &'a [Hold<'a>],
    ) -> Option<Self> {
        let is_it = |hold: &&Hold<'_>| hold.process.is_some_and(|held| held.pid == process.pid);
        let callers = holds.iter().find(is_it);
        let is_behind = callers.is_some_and(Hold::is_behind);
        let carries = process.reductions as f64 >= MIN_SHARE * total;
        if process.judged < MIN_LOOKS || total <= 0.0 || !(carries || is_behind) {
            return None;
        }
        let looks = f64::from(process.runnable) / f64::from(process.judged);
        let idle = active.shares.len() as f64 - active.cores();
        // With all schedulers busy, the node is short of CPU rather than of parallelism; with none busy, the process is
        // "running" on a dirty scheduler, waiting for a disk, which matters where callers wait for it. And busy alone may be one
        // job that runs by itself: only those who wait make it a bottleneck.
        let has_queue = active.cores() >= MIN_ACTIVE && view::mean_queue(process) >= 1.0;
        // Where so many wait for its answer, it is the bottleneck whoever else has work to do.
        let is_awaited = callers.is_some_and(|hold| hold.is_behind() && hold.waiting >= MANY_CALLERS);
        let holds_up = (idle >= 0.5 && (has_queue || is_behind)) || is_awaited;
        let severity = match SATURATION.of(period).severity(looks) {
            Some(severity) if holds_up => severity,
            Some(severity) => severity.min(MINOR),
            None if holds_up && is_behind => MINOR,
            None => return None,
        };
        let waits_for_it = |hold: &&Hold<'_>| {
            let first = hold.process.filter(|first| first.pid != process.pid);
            first.is_some_and(|first| chains::of(period, first).iter().any(|next| next.pid == process.pid))
        };
        let asked_by = holds.iter().find(waits_for_it);
        Some(Self { process, severity, looks, callers, asked_by })
    }
}

fn describe(period: &Period, server: &Server<'_>, total: f64, active: &view::Activity) -> Draft {
    let &Server { process, severity, looks, callers, asked_by } = server;
    let online = active.shares.len() as f64;
    let queue = view::mean_queue(process);
    let waits = match callers {
        Some(hold) if hold.waiting > queue => {
            format!(", with about {:.0} processes waiting for its answer", hold.waiting)
        }
        _ if queue >= 1.5 => format!(", with {queue:.0} messages waiting"),
        _ if queue >= 1.0 => ", with a message waiting".to_owned(),
        _ => String::new(),
    };
    let row = process.row.as_ref();
    // Who writes to a bag is seen after each write, not in it.
    let bag = lock_suspects::bags(period)
        .into_iter()
        .find(|bag| bag.owner == process.pid && bag.protection != "public");
    let in_bag = bag.map_or(String::new(), |bag| {
        format!("; most likely in its ETS table {}, a bag with {} objects", bag.name, bag.objects)
    });
    // The VM calls it running, while the disk has it in hand.
    let on_disk = Last::of(period, process).filter(Last::is_on_disk);
    let disk = on_disk.as_ref().map_or(String::new(), |last| format!("; it {}", last.does()));
    let copied = lock_suspects::copied_by(period, process);
    let copies = copied.map_or(String::new(), |(table, each, (copies, all))| {
        format!(
            "; in {copies} of {all} samples it copies objects of ETS table {}, {:.0} kB each",
            table.name,
            each / 1e3
        )
    });
    let goes_through_all = stack::goes_through_all(process).filter(|share| *share >= MOSTLY);
    let draft = Draft::new(
        severity,
        format!(
            "the process {} was busy in {:.0} % of the looks at it{waits}, while {:.1} of {online:.0} schedulers were idle{in_bag}{disk}{copies}",
            process.title(),
            looks * 100.0,
            online - active.cores(),
        ),
    )
    .about(process.subject())
    .costs(Cost::Waiting(callers.map_or(queue, |hold| hold.waiting.max(queue))))
    .because(
        Evidence::number("looks in which it ran or was runnable", looks, Unit::Ratio)
            .against_scale(SATURATION.of(period))
            .with_text(format!("{} of {}", process.runnable, process.judged)),
    )
    .because(Evidence::number("its share of all reductions", (process.reductions as f64 / total).min(1.0), Unit::Ratio))
    .because(Evidence::number("messages in its queue, mean", queue, Unit::Count))
    .because(Evidence::number("messages in its queue, most", process.queue_max as f64, Unit::Count))
    .because_some(callers.map(|hold| {
        Evidence::number("processes that wait for its answer", hold.waiting, Unit::Count)
            .with_text(format!("{} of {} looked at by chance", hold.seen.0, hold.seen.1))
    }))
    .because(Evidence::number("schedulers active", active.cores(), Unit::Cores).with_text(format!("of {online:.0} online")))
    .because_some(stack::evidence(process))
    .signals(goes_through_all.map(|_| Signal::ScansOwnState))
    .because_some(goes_through_all.map(|share| {
        Evidence::number("looks at it running in which it went through all elements of something", share, Unit::Ratio)
    }))
    .because_some(row.and_then(|row| row.initial_call.as_deref()).map(|f| Evidence::text("started with", f)))
    .because_some(row.and_then(|row| row.application.as_deref()).map(|a| Evidence::text("application", a)))
    .because_some(asked_by.map(|hold| Evidence::text("who waits for it", format!("{}, for which {:.0} wait", hold.title, hold.waiting))))
    .but_if(queue < 1.0 && callers.is_none() && asked_by.is_none(), "no messages wait for it: it may be one long job that holds up nobody")
    .but_if(
        SATURATION.of(period).severity(looks).is_none(),
        "it does not run all the time: another one, to which it hands each job, may be what is slow",
    )
    .but_if(
        active.cores() < MIN_ACTIVE && on_disk.is_none(),
        match collecting_dirty(period) {
            Some(cores) => format!("much of its time may be garbage collection of its heap on dirty CPU schedulers ({cores:.2} cores)"),
            None => "it uses hardly any CPU: it waits for a disk or a device on a dirty scheduler".to_owned(),
        },
    )
    .but_if(online - active.cores() < 0.5, "the other schedulers are busy too: splitting it gains little before there is more CPU");
    let asked = Askers::of(period).filter(|_| queue >= LONG_QUEUE);
    let draft = match &asked {
        Some(askers) => draft
            .because(
                Evidence::number("processes that wait for what process_info tells of another one", askers.count, Unit::Count)
                    .with_text(askers.from.as_deref().map_or(String::new(), |from| format!("most of them in {from}"))),
            )
            .but("whom they ask is not known, but whoever is asked for its memory counts all messages in its queue, in its own time"),
        None => draft,
    };
    let draft = draft.fix(asked.and_then(|_| {
        remedy::of(
            period,
            "code.ask_from_outside",
            "ask this process for message_queue_len alone and seldom, or keep a count: memory, and most else, it has to answer itself, between two \
             messages, and for memory it goes through its whole queue",
            "what it does for those who ask, it does not do for its messages",
            "messages handled a second under the same load, without the questions",
        )
    }));
    // Nobody splits a process of OTP's, or of a product: what there is to do instead is known.
    let is_own = !known_processes::knows(process);
    known_processes::explain(draft, period, process)
    .but_if(bag.is_some(), "a bag with few objects for each key is as fast as a set")
    .fix(bag.and_then(|bag| lock_suspects::keyed(period, bag)))
    .fix(on_disk.as_ref().and_then(Last::advice).and_then(|(entry, change, why)| {
        let prove = "throughput under the same load, and messages in its queue";
        remedy::of(period, entry, &change, why, prove)
    }))
    .fix_if(is_own && bag.is_none(), || {
        remedy::of(
            period,
            "code.split_process",
            "split it by key into several processes, or let callers read from ETS or persistent_term without asking it",
            "one process uses one scheduler at most",
            "throughput under the same load should rise with the number of parts; run beamtune diff on both recordings",
        )
    })
    .fix_if(is_own && on_disk.is_none(), || {
        remedy::of(
            period,
            "code.cheaper_callback",
            &format!("make each message cheaper: {}", profiled(process)),
            "what it does for each message bounds the whole node",
            "reductions per message of the process",
        )
    })
}

/// What of it is to be changed: what is known of the function of OTP that it mostly runs, else the program's own that it mostly runs.
fn profiled(process: &ProcessUse) -> String {
    let instead = stack::most_at(process).and_then(hot_code::instead);
    let current = stack::of(process).filter(|function| !stack::is_machinery(function));
    let own = stack::most_of_program(process).or(current).unwrap_or("its callbacks");
    match instead {
        Some(instead) => format!("in {own}, {instead}"),
        None => format!("profile {own}"),
    }
}

/// Garbage collection on dirty CPU schedulers, in cores, if it is worth telling.
fn collecting_dirty(period: &Period) -> Option<f64> {
    let gc = view::collecting(period, &[kind::DIRTY_CPU]).ok()?.gc;
    (gc >= WORTH_COLLECTING).then_some(gc)
}
