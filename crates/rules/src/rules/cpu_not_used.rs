//! BT015: why the VM does not use all CPU that it may use.
//!
//! [`crate::account`] divides the unused capacity into causes; this rule reports the largest one.

use beamtune_model::{
    Account, Code, Cost, Evidence, HostPart, Limit, Missing, Period, ProcessUse, Remedy, Signal, Subject,
    Unit, Use, metrics,
};

use crate::account::{self, BLOCKED, SLEEPS, Serial, Unused, YIELDS};
use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::blocking;
use crate::signals::counts::largest_first;
use crate::signals::kinds::Kind;
use crate::signals::lock_suspects;
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT015"),
    name: "cpu-not-used",
    question: "Why is the CPU not used?",
    confirm: "double the load: if throughput rises, the load was the limit; if not, the cause named here limits it",
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

/// A smaller unused share of the capacity needs no explanation.
const MIN_UNUSED_SHARE: f64 = 0.25;

/// With a longer run-queue delay because of others, a node is not idle, whatever it used.
const MIN_DELAY_CORES: f64 = 0.05;

/// The subject, if it is one thing.
fn subject(cause: Use, unused: &Unused<'_>) -> Option<Subject> {
    match cause {
        Use::Quota => Some(Subject::limit(Limit::CpuQuota)),
        Use::Programs => Some(Subject::host(HostPart::Programs)),
        Use::Others => Some(Subject::host(HostPart::Neighbours)),
        Use::Stolen => Some(Subject::host(HostPart::Steal)),
        Use::SerialProcess => unused.serial.as_ref().map(|serial| serial.subject.clone()),
        Use::Outside => match (&unused.hold, &unused.held_up[..]) {
            (Some(hold), _) => Some(hold.subject()),
            (None, [process]) => Some(process.subject()),
            (None, held_up) => {
                kind_of(held_up).map(|kind| Subject::ProcessKind { name: kind.name, starter: None })
            }
        },
        _ => None,
    }
}

/// The kind of the processes that wait with messages queued, if most are of one kind and wait in one place.
fn kind_of(held_up: &[&ProcessUse]) -> Option<Kind> {
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
    if locks.is_none() && !unused.is_quota_used && unused.neighbours + unused.programs < MIN_DELAY_CORES {
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
        Some(_) => Use::Locks,
        None => [
            (unused.nothing, if outside.is_none() { Use::Nothing } else { Use::Outside }),
            (unused.turns, if serial.is_some() { Use::SerialProcess } else { Use::Turns }),
            (unused.stolen, Use::Stolen),
            (unused.programs, Use::Programs),
            (unused.neighbours, Use::Others),
            (unused.stopped, Use::Quota),
        ]
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(Use::Nothing, |(_, cause)| cause),
    };

    let turns_for = unused.turns_for.as_ref().filter(|_| cause == Use::Turns);
    let share = |cores: f64| if unused.cores > 0.0 { cores / unused.cores } else { 0.0 };
    let of_capacity = format!("{} of {} cores", text::cores(unused.cores), text::cores(capacity.cores));
    // With lock counting the lock is known, and contended-locks has the remedy.
    let counted = unused.lock.as_ref().filter(|_| cause == Use::Locks);
    // Without, list the usual suspects: a table that all write, a process that all send to.
    let is_guessed = cause == Use::Locks && counted.is_none();
    let candidates = [lock_suspects::candidates, lock_suspects::metrics, lock_suspects::receiver]
        .into_iter()
        .filter_map(|candidate| candidate(period).filter(|_| is_guessed));
    let bags = if is_guessed { lock_suspects::bags(period) } else { Vec::new() };
    let bag = bags.first().copied();
    // An explanation is a notice; lock contention is more than that.
    let severity = locks.as_ref().map_or(10.0, |(severity, _)| *severity);
    // If only context switches indicate locks, the wait time is unknown.
    let is_timed = cause == Use::Locks && BLOCKED.of(period).severity(unused.blocked_share).is_some();
    let blocked = is_timed.then_some(Cost::CpuCores(unused.blocked));
    let turns = turns_for.map(|turns| Signal::TurnsFor(turns.subject()));
    // A single process gets this signal where findings are joined.
    let kind_signal = match (cause, &unused.hold, &held_up[..]) {
        (Use::Outside, None, [_, _, ..]) => kind_of(held_up).as_ref().and_then(Kind::signal),
        _ => None,
    };
    let signals = [Signal::Unused(cause)].into_iter().chain(turns).chain(kind_signal);
    let functions = waiting_functions(period);
    let (title, detail) = match cause {
        Use::Locks => {
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
        Use::Quota => (format!("{of_capacity} unused: throttled by the CPU quota"), String::new()),
        Use::Programs => (format!("{of_capacity} unused: external programs have the CPUs"), String::new()),
        Use::Others => (format!("{of_capacity} unused: other processes have the CPUs"), String::new()),
        Use::Stolen => (format!("{of_capacity} unused: stolen by the hypervisor"), String::new()),
        Use::SerialProcess => (
            match serial {
                Some(serial) => format!("{of_capacity} idle: only {} works", text::name(&serial.subject)),
                None => format!("{of_capacity} idle: only one process works"),
            },
            serial.as_ref().map(Serial::said).unwrap_or_default(),
        ),
        Use::Turns => (
            format!("{of_capacity} idle: processes run one at a time"),
            turns_for.map(|turns| turns.waited_for()).unwrap_or_default(),
        ),
        Use::Outside => (
            match (&unused.hold, &held_up[..]) {
                (Some(hold), _) => {
                    format!("{of_capacity} idle: processes wait for {}", text::name(&hold.subject()))
                }
                (None, [process]) => {
                    format!(
                        "{of_capacity} idle: {} waits with messages queued",
                        text::name(&process.subject())
                    )
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
        .part(blocked.map(|_| Use::Locks));
    let draft = candidates
        .fold(draft, Draft::because)
        .because(
            Evidence::number("capacity", capacity.cores, Unit::Cores)
                .with_text(account::capacity_text(&capacity)),
        )
        .because(Evidence::number("CPU of the VM", used, Unit::Cores))
        .because(Evidence::number("unused: throttled by the CPU quota", share(unused.stopped), Unit::Ratio))
        .because(Evidence::number("unused: other processes", share(unused.neighbours), Unit::Ratio))
        .because_some(
            (unused.programs > 0.0)
                .then(|| Evidence::number("unused: external programs", share(unused.programs), Unit::Ratio)),
        )
        .because_some(
            (unused.stolen > 0.0)
                .then(|| Evidence::number("unused: steal", share(unused.stolen), Unit::Ratio)),
        )
        .because(Evidence::number("unused: schedulers blocked", share(unused.blocked), Unit::Ratio))
        .because(Evidence::number("unused: one process at a time", share(unused.turns), Unit::Ratio))
        .because(Evidence::number("unused: no runnable process", share(unused.nothing), Unit::Ratio))
        .because_some((unused.among_themselves >= MIN_DELAY_CORES).then(|| {
            Evidence::number("run-queue delay among own threads", unused.among_themselves, Unit::Cores)
        }))
        .because(
            Evidence::number("blocked share of awake time", unused.blocked_share, Unit::Ratio)
                .against_scale(BLOCKED.of(period)),
        )
        .because_some(period.stat(&metrics::ACTIVE_TASKS, "").ok().map(|stat| {
            Evidence::number("running and runnable, with the agent", stat.mean(), Unit::Count)
        }))
        .because_some(held_up.iter().max_by_key(|process| process.queue_max).map(|process| {
            Evidence::text("waits with messages queued", process.title())
                .with_text(format!("{}: up to {} messages", process.title(), process.queue_max))
        }))
        .because_some(turns_for.map(|turns| Evidence::text("possibly take turns for", turns.title.as_str())))
        .because_some(functions.map(|text| {
            let sampled = format!("{text} of {} sampled processes", period.stands.sampled);
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
            cause == Use::Others && is_part_of_host(period, capacity.allowed),
            "the VM may use only some of the host's CPUs, and where others ran is not recorded: its own threads may have had them",
        )
        .but_if(turns_for.is_some(), "workers that ask it for work, while there is none, look the same")
        .but_if(
            cause == Use::Outside,
            "messages that a process never receives look the same: check whether they stay",
        );
    let draft = draft.but_if(bag.is_some(), "a bag with few objects per key is as fast as a set");
    let remedies = if counted.is_some() { Vec::new() } else { remedies(period, cause) };
    let keyed = bag.and_then(|bag| lock_suspects::keyed(period, bag));
    let remedies: Vec<Option<Remedy>> = [keyed].into_iter().filter(Option::is_some).chain(remedies).collect();
    Ok(Judgement::found(remedies.into_iter().fold(draft, Draft::fix)))
}

/// Whether there are CPUs that the VM may not run on.
fn is_part_of_host(period: &Period, allowed: f64) -> bool {
    period.stat(&metrics::CPUS_ONLINE, "").is_ok_and(|online| allowed < online.mean())
}

/// Remedies for a cause, best first.
fn remedies(period: &Period, cause: Use) -> Vec<Option<Remedy>> {
    let of = |entry, change, why, prove| remedy::of(period, entry, change, why, prove);
    match cause {
        Use::Locks => vec![
            of(
                "ets.write_concurrency",
                "most often one ETS table that all write: set {write_concurrency, auto} (25+) or true, or use a table per scheduler",
                "a table has one lock by default",
                "switches a second and throughput under the same load",
            ),
            lock_suspects::metrics_candidates(period),
            of(
                "code.split_process",
                "next most often a process that all send to: use several processes by key, or message_queue_data off_heap (25+)",
                "every send takes the receiver's lock",
                "switches a second and throughput under the same load",
            ),
            of(
                "build.lock_counting",
                "run beamtune locks TARGET: it names the operation; on an emulator that counts locks (beamtune emulator run) also lock and table",
                "the finding contended-locks then has the remedy",
                "the lock with the longest wait time is the one to remove",
            ),
        ],
        Use::SerialProcess | Use::Turns => vec![of(
            "code.split_process",
            if cause == Use::Turns {
                "find what they take turns for (a lock process, a global:trans, a pool of one) and split it by key"
            } else {
                "split the process, see the finding serial-process"
            },
            "one process uses at most one scheduler",
            "throughput under the same load",
        )],
        Use::Quota => vec![of(
            "host.cpu_quota",
            "see the finding cpu-throttled",
            "the kernel throttles the VM",
            "throttled periods stop growing",
        )],
        Use::Programs => vec![of(
            "code.limit_programs",
            "see the finding child-programs",
            "external programs have the CPUs",
            "run-queue delay falls towards 0",
        )],
        Use::Others | Use::Stolen => vec![of(
            "host.cpu_isolation",
            match cause {
                Use::Stolen => "use a machine type with dedicated CPUs, or another host",
                _ => "move the neighbours away, or give the VM its own CPUs (cpuset, a dedicated node pool)",
            },
            "others have the CPUs",
            "run-queue delay falls towards 0",
        )],
        Use::Outside => vec![of(
            "code.more_in_flight",
            "make the awaited service answer sooner, or allow more requests in flight (a larger pool), with a time-out",
            "the schedulers are idle, so no emulator flag can help",
            "throughput with a pool of twice the size",
        )],
        // Whether the node should do more is unknown.
        _ => Vec::new(),
    }
}

/// The application's functions in which most sampled processes wait, with their counts: `lab:handler/4 (81)`.
fn waiting_functions(period: &Period) -> Option<String> {
    let places = blocking::waiting(period).filter_map(|place| {
        let at = stack::of_program(&place.stack).or(place.stack.first().map(String::as_str))?;
        Some((at, place.count))
    });
    let places = largest_first(places);
    let text: Vec<_> = places.iter().take(3).map(|(place, count)| format!("{place} ({count})")).collect();
    (!text.is_empty()).then(|| text.join(", "))
}
