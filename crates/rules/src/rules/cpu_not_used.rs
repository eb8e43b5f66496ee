//! BT015: why the VM does not use all CPU that it may use.
//!
//! [`crate::account`] divides the unused capacity into causes; this rule reports the largest one.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, HostPart, Limit, Missing, Period, ProcessActivity, Remedy, Signal,
    Subject, Unit, metrics,
};

use crate::account::{self, BLOCKED, SLEEPS, Serial, Unused, YIELDS};
use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::blocking::{self, BlockingProcess};
use crate::signals::counts::largest_first;
use crate::signals::hot_code::{HotCode, What};
use crate::signals::kinds::Kind;
use crate::signals::lock_suspects;
use crate::signals::queue_wait::{Cause, QueueWait};
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT015"),
    name: "cpu-not-used",
    question: "Why is the CPU not used?",
    confirm: "double the load: if throughput rises, there was too little load; otherwise the cause named here is the bottleneck",
    needs: &[
        &metrics::SCHEDULER_ACTIVE,
        &metrics::THREAD_CPU,
        &metrics::THREAD_WAIT,
        &metrics::CPUS_ALLOWED,
        &metrics::PROCESS_USER,
    ],
    account: Account::CpuUnused,
    role: Role::Symptom,
    topics: &[Topic::Locks],
    explains_as_notice: true,
    judge,
    thresholds: &[BLOCKED, YIELDS, SLEEPS],
    ..Rule::COMMON
};

/// A node that uses less than this share of its capacity is idle, and needs no explanation.
const IDLE_SHARE: f64 = 0.05;

/// Minimum unused share of the capacity that needs an explanation.
const MIN_UNUSED_SHARE: f64 = 0.25;

/// With a longer run-queue delay because of other OS processes, a node is not idle, however little CPU it used.
const MIN_DELAY_CORES: f64 = 0.05;

/// A delay below this share of the capacity needs no explanation either (judgement).
const MIN_DELAY_SHARE: f64 = 0.05;

/// The subject, if the cause is a single thing.
fn subject(cause: CpuUse, unused: &Unused<'_>) -> Option<Subject> {
    match cause {
        CpuUse::Quota => Some(Subject::limit(Limit::CpuQuota)),
        CpuUse::ExternalPrograms => Some(Subject::host(HostPart::Programs)),
        CpuUse::Neighbours => Some(Subject::host(HostPart::Neighbours)),
        CpuUse::Steal => Some(Subject::host(HostPart::Steal)),
        CpuUse::SerialProcess => unused.serial.as_ref().map(|serial| serial.subject.clone()),
        CpuUse::WaitingForReplies => match (&unused.hold, &unused.held_up[..]) {
            (Some(hold), _) => Some(hold.subject()),
            (None, [process]) => Some(process.subject()),
            (None, held_up) => {
                kind_of(held_up).map(|kind| Subject::ProcessKind { name: kind.name, starter: None })
            }
        },
        _ => None,
    }
}

/// The kind of the processes that wait with queued messages, if most of them are of one kind and wait in the same place.
fn kind_of(held_up: &[&ProcessActivity]) -> Option<Kind> {
    let kinds: Vec<Kind> = held_up.iter().filter_map(|process| Kind::of(process)).collect();
    let count = |kind: &Kind| kinds.iter().filter(|other| *other == kind).count();
    let most = kinds.iter().max_by_key(|kind| count(kind)).filter(|kind| 2 * count(kind) > held_up.len());
    most.cloned()
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)?;
    let used = view::process_cores(period)?;
    let unused = Unused::of(period, &capacity, used)?;
    let Unused { locks, held_up, serial, .. } = &unused;
    let outside = unused.outside();
    let min_delay = MIN_DELAY_CORES.max(MIN_DELAY_SHARE * capacity.cores);
    if locks.is_none() && !unused.is_quota_used && unused.neighbours + unused.programs < min_delay {
        if used < IDLE_SHARE * capacity.cores && outside.is_none() {
            return Ok(Judgement::Healthy(format!(
                "idle: {used:.2} of {:.2} cores used, no thread waited for a CPU",
                capacity.cores
            )));
        }
        if unused.cores < MIN_UNUSED_SHARE * capacity.cores {
            return Ok(Judgement::Healthy(format!("{used:.2} of {:.2} cores used", capacity.cores)));
        }
    }
    let cause = match locks {
        Some(_) => CpuUse::Locks,
        None => [
            (unused.nothing, if outside.is_none() { CpuUse::NoRunnable } else { CpuUse::WaitingForReplies }),
            (unused.turns, if serial.is_some() { CpuUse::SerialProcess } else { CpuUse::TakingTurns }),
            (unused.stolen, CpuUse::Steal),
            (unused.programs, CpuUse::ExternalPrograms),
            (unused.neighbours, CpuUse::Neighbours),
            (unused.stopped, CpuUse::Quota),
        ]
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(CpuUse::NoRunnable, |(_, cause)| cause),
    };

    let turns_for = unused.turns_for.as_ref().filter(|_| cause == CpuUse::TakingTurns);
    let share = |cores: f64| if unused.cores > 0.0 { cores / unused.cores } else { 0.0 };
    let of_capacity = format!("{} of {} cores", text::cores(unused.cores), text::cores(capacity.cores));
    let taken = |taken: f64, by: &str| {
        format!("{} of {} cores used by {by}", text::cores(taken), text::cores(capacity.cores))
    };
    // With lock counting, the lock is known, and contended-locks has the remedy.
    let counted = unused.lock.as_ref().filter(|_| cause == CpuUse::Locks);
    // Without it, list the usual suspects: a table that all processes write, a process that all send to.
    let is_guessed = cause == CpuUse::Locks && counted.is_none();
    let candidates = [lock_suspects::candidates, lock_suspects::metrics, lock_suspects::receiver]
        .into_iter()
        .filter_map(|candidate| candidate(period).filter(|_| is_guessed));
    let bags = if is_guessed { lock_suspects::bags(period) } else { Vec::new() };
    let bag = bags.first().copied();
    // An explanation is a notice; lock contention is more severe.
    let severity = locks.as_ref().map_or(10.0, |(severity, _)| *severity);
    // If only context switches indicate locks, the wait time is unknown.
    let is_timed = cause == CpuUse::Locks && BLOCKED.of(period).severity(unused.blocked_share).is_some();
    let blocked = is_timed.then_some(Cost::CpuCores(unused.blocked));
    let turns = turns_for.map(|turns| Signal::TurnsFor(turns.subject()));
    // A single process gets this signal when findings are joined.
    let kind_signal = match (cause, &unused.hold, &held_up[..]) {
        (CpuUse::WaitingForReplies, None, [_, _, ..]) => kind_of(held_up).as_ref().and_then(Kind::signal),
        _ => None,
    };
    let signals = [Signal::Unused(cause)].into_iter().chain(turns).chain(kind_signal);
    let functions = waiting_functions(period);
    let (title, detail) = match cause {
        CpuUse::Locks => {
            let what = bag.map_or_else(|| "locks".to_owned(), |bag| format!("ETS bag {}", bag.name));
            let blocked_percent = 100.0 * unused.blocked_share;
            match is_timed {
                true => (
                    format!("Schedulers blocked {blocked_percent:.0} % of busy time, likely by {what}"),
                    format!("{of_capacity} unused"),
                ),
                false => (
                    format!("Schedulers give up the CPU while busy, likely for {what}"),
                    locks.as_ref().map(|(_, sign)| sign.clone()).unwrap_or_default(),
                ),
            }
        }
        CpuUse::Quota => (format!("{of_capacity} unused: throttled by the CPU quota"), String::new()),
        CpuUse::ExternalPrograms => (taken(unused.programs, "external programs of the node"), String::new()),
        CpuUse::Neighbours => (taken(unused.neighbours, "other OS processes"), String::new()),
        CpuUse::Steal => (format!("{of_capacity} unused: stolen by the hypervisor"), String::new()),
        CpuUse::SerialProcess => (
            match serial {
                Some(serial) => format!("{of_capacity} idle: only {} works", text::name(&serial.subject)),
                None => format!("{of_capacity} idle: only one process works"),
            },
            serial.as_ref().map(Serial::said).unwrap_or_default(),
        ),
        CpuUse::TakingTurns => (
            match turns_for {
                Some(turns) => {
                    format!("{of_capacity} idle: likely serialized by {}", text::name(&turns.subject()))
                }
                None => format!("{of_capacity} idle: processes run one at a time"),
            },
            serial_work(period, turns_for),
        ),
        CpuUse::WaitingForReplies => (
            match (&unused.hold, &held_up[..]) {
                (Some(hold), _) => format!("{of_capacity} idle: processes wait for {}", waited_for(hold)),
                (None, [process]) => {
                    let name = text::name(&process.subject());
                    let is_send =
                        QueueWait::of(period, process).is_some_and(|wait| wait.cause == Cause::Send);
                    let does = if is_send { "is blocked in a send" } else { "waits with messages queued" };
                    format!("{of_capacity} idle: {name} {does}")
                }
                (None, _) => format!("{of_capacity} idle: processes wait with messages queued"),
            },
            outside.clone().unwrap_or_default(),
        ),
        _ => (
            format!("{of_capacity} idle: no runnable process"),
            match (unused.none_waits_of, &functions) {
                (Some(of), _) => {
                    format!("of {of} sampled processes, none waited for a reply, a socket or a timer")
                }
                (None, Some(functions)) => format!("processes wait in {functions}"),
                (None, None) => String::new(),
            },
        ),
    };
    let about = bag.map(|bag| Subject::table(&bag.name)).or_else(|| subject(cause, &unused));
    let draft = Draft::new(severity, title)
        .detail(detail)
        .detail(bag.map_or_else(String::new, |bag| {
            format!("{} is a bag with {} objects", bag.name, text::number(bag.objects as f64))
        }))
        .detail(counted.map_or_else(String::new, |lock| format!("most wait for {lock} (contended-locks)")))
        .about(about)
        .signals(signals)
        .costs(blocked)
        .part(blocked.map(|_| CpuUse::Locks));
    let draft = candidates
        .fold(draft, Draft::evidence)
        .evidence(
            Evidence::number("capacity", capacity.cores, Unit::Cores)
                .with_text(account::capacity_text(&capacity)),
        )
        .evidence(Evidence::number("CPU of the VM", used, Unit::Cores))
        .evidence(Evidence::number("unused: throttled by the CPU quota", share(unused.stopped), Unit::Ratio))
        .evidence(Evidence::number("unused: other OS processes", share(unused.neighbours), Unit::Ratio))
        .because_some(
            (unused.programs > 0.0)
                .then(|| Evidence::number("unused: external programs", share(unused.programs), Unit::Ratio)),
        )
        .because_some(
            (unused.stolen > 0.0)
                .then(|| Evidence::number("unused: steal", share(unused.stolen), Unit::Ratio)),
        )
        .evidence(Evidence::number("unused: schedulers blocked", share(unused.blocked), Unit::Ratio))
        .evidence(Evidence::number("unused: only one runnable process", share(unused.turns), Unit::Ratio))
        .evidence(Evidence::number("unused: no runnable process", share(unused.nothing), Unit::Ratio))
        .because_some((unused.among_themselves >= MIN_DELAY_CORES).then(|| {
            Evidence::number("run-queue delay between the VM's own threads", unused.among_themselves, Unit::Cores)
        }))
        .evidence(
            Evidence::number("blocked share of awake time", unused.blocked_share, Unit::Ratio)
                .against_scale(BLOCKED.of(period)),
        )
        .because_some(period.stat(&metrics::ACTIVE_TASKS, "").ok().map(|stat| {
            Evidence::number("running and runnable processes, agent included", stat.mean(), Unit::Count)
        }))
        .because_some(held_up.iter().max_by_key(|process| process.queue_max).map(|process| {
            Evidence::text("waits with messages queued", process.title())
                .with_text(format!("{}: up to {} messages", process.title(), process.queue_max))
        }))
        .because_some(turns_for.map(|turns| Evidence::text("possibly serialized by", turns.title.as_str())))
        .because_some(functions.map(|text| {
            let sampled = format!("{text} of {} sampled processes", period.wait_samples.sampled);
            Evidence::text("functions where processes wait", sampled)
        }))
        .because_some(counted.map(|lock| {
            Evidence::text("most contended lock", format!("{lock}: see the finding contended-locks"))
        }))
        .but_if(
            is_guessed,
            "blocking native code, page faults and interrupts look the same; only a lock-counting emulator names the lock",
        )
        .but_if(
            cause == CpuUse::Neighbours && is_part_of_host(period, capacity.allowed),
            "the VM may use only some of the host's CPUs, and where other processes ran is not recorded: its own threads may have used these CPUs",
        )
        .but_if(turns_for.is_some(), "idle workers that wait for work from it look the same")
        .but_if(
            cause == CpuUse::WaitingForReplies,
            "messages that a process never receives look the same: check whether they stay",
        );
    let draft = draft.but_if(bag.is_some(), "a bag with few objects per key is as fast as a set");
    let remedies = match cause {
        _ if counted.is_some() => Vec::new(),
        CpuUse::TakingTurns => vec![for_turns(period, turns_for)],
        CpuUse::WaitingForReplies => vec![for_waits(period, &unused)],
        _ => remedies(period, cause),
    };
    let keyed = bag.and_then(|bag| lock_suspects::keyed(period, bag));
    let remedies: Vec<Option<Remedy>> = [keyed].into_iter().filter(Option::is_some).chain(remedies).collect();
    Ok(Judgement::found(remedies.into_iter().fold(draft, Draft::remedy)))
}

/// Maximum number of named processes that take turns.
const MAX_RUNNING: usize = 3;

/// A process with a smaller share of all reductions is not among those that take turns (judgement).
const MIN_TURN_SHARE: f64 = 0.02;

/// Describes the process that others wait for, and the processes that take turns, those with the most reductions first.
fn serial_work(period: &Period, turns_for: Option<&BlockingProcess<'_>>) -> String {
    let waits = turns_for.map(|hold| {
        let at = hold.wait_function.as_ref().map_or(String::new(), |at| format!(" in {at}"));
        format!("{}{at}", hold.waiting_text())
    });
    let granted_by = turns_for.and_then(|hold| hold.process).map(|process| process.pid.as_str());
    let runs = |process: &&ProcessActivity| {
        Some(process.pid.as_str()) != granted_by
            && view::reductions_share(period, &[process]).is_some_and(|share| share >= MIN_TURN_SHARE)
    };
    let mut running: Vec<&ProcessActivity> = period.processes.iter().filter(runs).collect();
    running.sort_by_key(|process| std::cmp::Reverse(process.reductions));
    let names: Vec<String> =
        running.iter().take(MAX_RUNNING).map(|process| text::name(&process.subject())).collect();
    let more = running.len().saturating_sub(MAX_RUNNING);
    let runs = (!names.is_empty()).then(|| match more {
        0 => format!("take turns: {}", names.join(", ")),
        more => format!("take turns: {} and {more} more", names.join(", ")),
    });
    [waits, runs, hot_code(period).map(|code| format!("they run {code}"))]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; ")
}

/// Names the code that takes most of the CPU time: `functions of shop, called by shop:work/2`.
fn hot_code(period: &Period) -> Option<String> {
    let hot = HotCode::of(period).ok().flatten()?;
    let what = match &hot.what {
        What::Function(name) => name.clone(),
        What::Module(module) => format!("functions of {module}"),
        What::Library(name) => (*name).to_owned(),
        // The processes are named already.
        What::Kind(_) => return None,
    };
    Some(match hot.callers.first() {
        Some(caller) => format!("{what}, called by {caller}"),
        None => what,
    })
}

/// Names what others wait for, for a title.
fn waited_for(hold: &BlockingProcess<'_>) -> String {
    match hold.process.filter(|_| !hold.is_one()) {
        Some(first) => format!("{} and others", text::name(&first.subject())),
        None => text::name(&hold.subject()),
    }
}

/// Whether there are CPUs that the VM may not run on.
fn is_part_of_host(period: &Period, allowed: f64) -> bool {
    period.stat(&metrics::CPUS_ONLINE, "").is_ok_and(|online| allowed < online.mean())
}

/// Remedies for a cause, best first.
fn remedies(period: &Period, cause: CpuUse) -> Vec<Option<Remedy>> {
    let of = |entry, change, why, prove| remedy::of(period, entry, change, why, prove);
    match cause {
        CpuUse::Locks => vec![
            of(
                "ets.write_concurrency",
                "usually an ETS table that all processes write: set {write_concurrency, auto} (25+) or true, or use a table per scheduler",
                "a table has one lock by default",
                "context switches per second and throughput under the same load",
            ),
            lock_suspects::metrics_candidates(period),
            of(
                "code.split_process",
                "less often, a process that everything sends to: use several processes by key, or message_queue_data off_heap (25+)",
                "every send takes the receiver's lock",
                "context switches per second and throughput under the same load",
            ),
            of(
                "build.lock_counting",
                "run beamtune locks TARGET: it names the operation; on an emulator that counts locks (beamtune emulator run) also lock and table",
                "the finding contended-locks then has the remedy",
                "the lock with the longest wait time is the one to remove",
            ),
        ],
        CpuUse::SerialProcess => vec![of(
            "code.split_process",
            "split the process, see the finding serial-process",
            "one process uses at most one scheduler",
            "throughput under the same load",
        )],
        CpuUse::Quota => vec![of(
            "host.cpu_quota",
            "see the finding cpu-throttled",
            "the kernel throttles the VM",
            "throttled periods stop growing",
        )],
        CpuUse::ExternalPrograms => vec![of(
            "code.limit_programs",
            "see the finding child-programs",
            "external programs use the CPUs",
            "run-queue delay falls towards 0",
        )],
        CpuUse::Neighbours | CpuUse::Steal => vec![of(
            "host.cpu_isolation",
            match cause {
                CpuUse::Steal => "use a machine type with dedicated CPUs, or another host",
                _ => {
                    "move the other processes to another host, or give the VM its own CPUs (cpuset, a dedicated node pool)"
                }
            },
            "other OS processes use the CPUs",
            "run-queue delay falls towards 0",
        )],
        // It is unknown whether the node should do more.
        _ => Vec::new(),
    }
}

/// The remedy for work that is done in turns.
fn for_turns(period: &Period, turns_for: Option<&BlockingProcess<'_>>) -> Option<Remedy> {
    let change = match turns_for {
        Some(hold) => format!(
            "split {} by key into several, or move work out of the section that it serializes",
            text::name(&hold.subject())
        ),
        None => {
            "find what serializes them (a lock process, global:trans, a pool of one), and split it by key"
                .to_owned()
        }
    };
    let (why, prove) = ("serialized work uses only one scheduler", "throughput under the same load");
    remedy::of(period, "code.split_process", &change, why, prove)
}

/// The remedy for processes that wait with messages queued, by what they wait in.
fn for_waits(period: &Period, unused: &Unused<'_>) -> Option<Remedy> {
    let is_each = |cause: Cause| {
        let waits = || unused.held_up.iter().map(|process| QueueWait::of(period, process));
        unused.hold.is_none() && waits().all(|wait| wait.is_some_and(|wait| wait.cause == cause))
    };
    let why = "the schedulers are idle, so no emulator flag can help";
    if is_each(Cause::Receive) {
        return remedy::of(
            period,
            "code.receive_all",
            "check what its receive waits for, and add a clause for the queued messages",
            why,
            "queue length: 0 in most samples",
        );
    }
    if is_each(Cause::Send) {
        return remedy::of(
            period,
            "socket.send_timeout",
            "see why the peer does not read; set {send_timeout, Ms} and {send_timeout_close, true}",
            why,
            "queue length of the sender",
        );
    }
    remedy::of(
        period,
        "code.more_in_flight",
        "make the service reply faster, or allow more requests in flight (a larger pool), with a timeout",
        why,
        "throughput with a pool of twice the size",
    )
}

/// Functions of the application in which most sampled processes wait, with their counts: `lab:handler/4 (81)`.
fn waiting_functions(period: &Period) -> Option<String> {
    let places = blocking::waiting(period).filter_map(|place| {
        let at = stack::of_program(&place.stack).or(place.stack.first().map(String::as_str))?;
        Some((at, place.count))
    });
    let places = largest_first(places);
    let text: Vec<_> = places.iter().take(3).map(|(place, count)| format!("{place} ({count})")).collect();
    (!text.is_empty()).then(|| text.join(", "))
}
