//! BT015: why the VM does not use the CPU that it could use.
//!
//! What is left of the capacity is split into causes in [`crate::account`], and the largest one is told.

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
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT015"),
    name: "cpu-not-used",
    question: "Why is the CPU not used?",
    confirm: "twice the load: if throughput rises, the load was the limit; if not, what is named here holds it back",
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

/// Below this share of the capacity a node is called idle, and nothing is explained.
const IDLE: f64 = 0.05;

/// Left-over capacity below this share needs no explanation.
const UNUSED: f64 = 0.25;

/// Kept waiting by others for more than this, in cores, a node is not idle, whatever it used.
const WAITING: f64 = 0.05;

/// What the finding is about, where that is one thing.
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

/// What those are that are held up, where most are of one kind and wait in one place.
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
    if locks.is_none() && !unused.is_quota_used && unused.neighbours + unused.programs < WAITING {
        if used < IDLE * capacity.cores && outside.is_none() {
            return Ok(Judgement::Healthy(format!(
                "the node is idle: {used:.2} of {:.2} cores used, and no thread waited for a CPU that others had",
                capacity.cores
            )));
        }
        if unused.cores < UNUSED * capacity.cores {
            return Ok(Judgement::Healthy(format!(
                "the CPU is used: {used:.2} of {:.2} cores",
                capacity.cores
            )));
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
    let of_capacity = format!("{:.2} of {:.2} cores are not used", unused.cores, capacity.cores);
    let summary = match (cause, locks) {
        (Use::Locks, Some((_, sign))) => {
            format!("the schedulers wait for each other (locks inside the VM): {sign}")
        }
        (Use::Quota, _) => format!("{of_capacity}, because a CPU quota stops the VM"),
        (Use::Programs, _) => format!("{of_capacity}, because programs that the node started have the CPUs"),
        (Use::Others, _) => format!("{of_capacity}, because other processes have the CPUs"),
        (Use::Stolen, _) => format!("{of_capacity}, because the hypervisor gives them to others"),
        (Use::SerialProcess, _) => {
            format!("{of_capacity}; {}", serial.as_ref().map(Serial::said).unwrap_or_default())
        }
        (Use::Turns, _) => {
            let further = turns_for.map(|turns| format!("; {}", turns.waited_for())).unwrap_or_default();
            format!(
                "{of_capacity}, because the work goes on in turns: one process at a time, never two{further}"
            )
        }
        (Use::Outside, _) => format!(
            "{of_capacity}, because work waits for answers: {}",
            outside.as_deref().unwrap_or_default()
        ),
        _ => match unused.none_waits_of {
            Some(of) => format!(
                "{of_capacity}: no runnable process; of {of} sampled, none waited for an answer, a socket or a timer"
            ),
            None => format!("{of_capacity}: no runnable process"),
        },
    };
    // Where locks were counted it is known which, and what helps against that one is said there.
    let counted = unused.lock.as_ref().filter(|_| cause == Use::Locks);
    // Else by what most such waiting is for: a table that all write, a process that all send to.
    let is_guessed = cause == Use::Locks && counted.is_none();
    let candidates = [lock_suspects::candidates, lock_suspects::metrics, lock_suspects::receiver]
        .into_iter()
        .filter_map(|candidate| candidate(period).filter(|_| is_guessed));
    let bags = if is_guessed { lock_suspects::bags(period) } else { Vec::new() };
    let bag = bags.first().copied();
    // An explanation is a notice; that locks hold the node back is more than that.
    let severity = locks.as_ref().map_or(10.0, |(severity, _)| *severity);
    // Where only the switches told of locks, how long they were waited for is not known.
    let is_timed = cause == Use::Locks && BLOCKED.of(period).severity(unused.blocked_share).is_some();
    let blocked = is_timed.then_some(Cost::CpuCores(unused.blocked));
    let turns = turns_for.map(|turns| Signal::TurnsFor(turns.subject()));
    // One process is said where findings are joined.
    let stand = match (cause, &unused.hold, &held_up[..]) {
        (Use::Outside, None, [_, _, ..]) => kind_of(held_up).as_ref().and_then(Kind::signal),
        _ => None,
    };
    let signals = [Signal::Unused(cause)].into_iter().chain(turns).chain(stand);
    let summary = match bag {
        Some(bag) => {
            format!("{summary}; probably for ETS table {}, a bag with {} objects", bag.name, bag.objects)
        }
        None => summary,
    };
    let about = bag.map(|bag| Subject::table(&bag.name)).or_else(|| subject(cause, &unused));
    let draft = candidates.fold(Draft::new(severity, summary).about(about).signals(signals).costs(blocked).part(blocked.map(|_| Use::Locks)), Draft::because)
        .because(Evidence::number("capacity", capacity.cores, Unit::Cores).with_text(account::capacity_text(&capacity)))
        .because(Evidence::number("CPU of the VM", used, Unit::Cores))
        .because(Evidence::number("not used: stopped by the quota", share(unused.stopped), Unit::Ratio))
        .because(Evidence::number("not used: CPU taken by others", share(unused.neighbours), Unit::Ratio))
        .because_some((unused.programs > 0.0).then(|| {
            let what = "not used: CPU taken by programs that the node started";
            Evidence::number(what, share(unused.programs), Unit::Ratio)
        }))
        .because_some((unused.stolen > 0.0).then(|| {
            Evidence::number("not used: CPU given to other guests", share(unused.stolen), Unit::Ratio)
        }))
        .because(Evidence::number("not used: blocked inside the VM", share(unused.blocked), Unit::Ratio))
        .because(Evidence::number("not used: idle while one process works", share(unused.turns), Unit::Ratio))
        .because(Evidence::number("not used: nothing to run", share(unused.nothing), Unit::Ratio))
        .because_some((unused.among_themselves >= WAITING).then(|| {
            let what = "threads kept waiting while nobody else can have had the CPU: for each other";
            Evidence::number(what, unused.among_themselves, Unit::Cores)
        }))
        .because(
            Evidence::number("blocked share of the schedulers' awake time", unused.blocked_share, Unit::Ratio)
                .against_scale(BLOCKED.of(period)),
        )
        .because_some(
            period
                .stat(&metrics::ACTIVE_TASKS, "")
                .ok()
                .map(|stat| Evidence::number("running and runnable at a time, the agent among them", stat.mean(), Unit::Count)),
        )
        .because_some(held_up.iter().max_by_key(|process| process.queue_max).map(|process| {
            Evidence::text("with messages, and yet waiting", process.title())
                .with_text(format!("{}: up to {} messages", process.title(), process.queue_max))
        }))
        .because_some(turns_for.map(|turns| Evidence::text("they may take turns for", turns.title.as_str())))
        .because_some(waiting_where(period).map(|text| Evidence::text("where processes wait in the midst of something", text)))
        .because_some(counted.map(|lock| {
            let said = format!("{lock}: see the finding contended-locks, and what helps there");
            Evidence::text("what they wait for the most, by counting", said)
        }))
        .but_if(
            is_guessed,
            "native code that blocks, page faults and interrupts look the same from here; which lock it is takes a lock-counting emulator",
        )
        .but_if(
            cause == Use::Others && is_part_of_host(period, capacity.allowed),
            "the VM may run on a part of the host's CPUs, and where others ran is not recorded: its own threads may have had them",
        )
        .but_if(turns_for.is_some(), "workers that ask it for work, and have none to do, look the same")
        .but_if(cause == Use::Outside, "messages that a process never takes look the same: see whether they stay");
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

/// What to do about a cause, best first.
fn remedies(period: &Period, cause: Use) -> Vec<Option<Remedy>> {
    let of = |entry, change, why, prove| remedy::of(period, entry, change, why, prove);
    match cause {
        Use::Locks => vec![
            of(
                "ets.write_concurrency",
                "the most common cause is one ETS table that all write: {write_concurrency, auto} (25+) or true, or a table per scheduler",
                "a table has one lock by default",
                "switches a second and throughput under the same load",
            ),
            lock_suspects::metrics_candidates(period),
            of(
                "code.split_process",
                "the next one is a process that all send to: several processes by key, or message_queue_data off_heap (25+)",
                "every send takes the receiver's lock",
                "switches a second and throughput under the same load",
            ),
            of(
                "build.lock_counting",
                "beamtune locks TARGET names the operation; on an emulator that counts locks (beamtune emulator run) also lock and table",
                "see the finding contended-locks for what was found so",
                "the lock with the most waiting time is the one to remove",
            ),
        ],
        Use::SerialProcess | Use::Turns => vec![of(
            "code.split_process",
            if cause == Use::Turns {
                "find what they take turns for (a lock process, a global:trans, a pool of one) and split it by key"
            } else {
                "split the process, see the finding serial-process"
            },
            "one process uses one scheduler at most",
            "throughput under the same load",
        )],
        Use::Quota => vec![of(
            "host.cpu_quota",
            "see the finding cpu-throttled",
            "the kernel stops the VM",
            "throttled periods must stop growing",
        )],
        Use::Programs => vec![of(
            "code.limit_programs",
            "see the finding child-programs",
            "programs that the node started have the CPUs",
            "run-queue wait must fall towards 0",
        )],
        Use::Others | Use::Stolen => vec![of(
            "host.cpu_isolation",
            match cause {
                Use::Stolen => "a machine type with dedicated CPUs, or another host",
                _ => {
                    "move the neighbours away, or give the VM CPUs of its own (cpuset, a dedicated node pool)"
                }
            },
            "others have the CPUs",
            "run-queue wait must fall towards 0",
        )],
        Use::Outside => vec![of(
            "code.more_in_flight",
            "make what they wait for answer sooner (see where they stand), or let more of them wait at a time (a larger pool), with a time-out",
            "the schedulers are idle, so no emulator flag can help",
            "throughput with a pool of twice the size",
        )],
        // Whether it should do more, nobody can tell from here.
        _ => Vec::new(),
    }
}

/// The program's functions in which processes of a sample wait in the midst of something, those of most first.
fn waiting_where(period: &Period) -> Option<String> {
    let places = blocking::waiting(period).filter_map(|place| {
        let at = stack::of_program(&place.stack).or(place.stack.first().map(String::as_str))?;
        Some((at, place.count))
    });
    let places = largest_first(places);
    let text: Vec<_> = places.iter().take(3).map(|(place, count)| format!("{place} ({count})")).collect();
    (!text.is_empty())
        .then(|| format!("{} of {} processes looked at", text.join(", "), period.stands.sampled))
}
