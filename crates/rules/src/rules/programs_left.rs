//! BT061: programs that the node has started, and that nobody ends any more.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, SeriesStat, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, MINUTES_SECONDS, Rule, Topic};
use crate::signals::programs::{self, Named, held, most_held};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT061"),
    name: "programs-left",
    question: "Do programs stay that nobody needs any more?",
    confirm: "stop what starts them: their number must fall; if it stays, nobody ends them",
    needs: &[&metrics::PROGRAMS_ALIVE, &metrics::PROGRAMS_CHILDREN, &metrics::PROGRAMS_ORPHANS],
    account: Account::Memory,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[LEFT, ZOMBIES, MEMORY],
    ..Rule::COMMON
};

/// Programs without a port, or orphans.
const LEFT: Threshold = Threshold::new(
    "programs-left.programs",
    "programs without a port, or orphans",
    Scale {
        notice: 5.0,
        warning: 20.0,
        critical: 1_000.0,
        source: "judgement: one or two may be meant to stay; each keeps memory, and a place among the processes of the host or the container",
    },
);

/// Processes that have ended and that nobody has waited for.
const ZOMBIES: Threshold = Threshold::new(
    "programs-left.zombies",
    "zombies",
    Scale {
        notice: 10.0,
        warning: 100.0,
        critical: 10_000.0,
        source: "judgement: a zombie takes a process id and 10 kB of the kernel; control groups and kernels bound their number (pids.max, pid_max)",
    },
);

/// Growth below this, and below this share of what was there, may be chance.
const GROWN: i64 = 10;
const GROWN_SHARE: f64 = 0.25;
/// Growth that is a finding of its own is a warning, where it was seen for minutes.
const GROWS: f64 = 30.0;

/// Memory of programs as a share of the control group's limit.
const MEMORY: Threshold = Threshold::new(
    "programs-left.memory_share",
    "memory of programs, share of the control group's limit",
    Scale {
        notice: 0.25,
        warning: 0.40,
        critical: 0.80,
        source: "judgement: the VM is ended with them when the limit is reached",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let alive = period.stat(&metrics::PROGRAMS_ALIVE, "")?;
    let children = period.stat(&metrics::PROGRAMS_CHILDREN, "")?;
    let orphans = period.stat(&metrics::PROGRAMS_ORPHANS, "")?;
    let ports = period.stat(&metrics::PROGRAM_PORTS, "").ok();
    let zombies = period.stat(&metrics::PROGRAMS_ZOMBIES, "").map_or(0, held);
    let names = programs::named(period);
    // Programs and ports are counted at different instants: what is left has to have been so for a while.
    let left = ports.filter(|ports| held(children) - most_held(ports) >= LEFT.of(period).notice as i64);
    let left = left.map(|ports| children.last.value - ports.last.value);
    let drafts: Vec<Draft> = [
        left.and_then(|left| without_port(period, left, alive, &names)),
        orphaned(period, orphans.last.value, alive, &names),
        unwaited(period, zombies),
    ]
    .into_iter()
    .flatten()
    .collect();
    // What they are has been told then.
    let grows = if drafts.is_empty() { growing(period, alive, &names) } else { None };
    let drafts = drafts.into_iter().chain(grows).chain(memory(period, alive, &names)).collect();
    let with_port = ports.map_or(String::new(), |ports| format!(", {} ports of programs", ports.last.value));
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "{} processes of programs{with_port}, {} orphans, {zombies} zombies",
            alive.last.value, orphans.last.value
        ),
    ))
}

/// Children of the VM whose port was closed.
fn without_port(period: &Period, left: i64, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let severity = LEFT.of(period).severity(left as f64)?;
    let most = most(names, |named| named.alive - named.orphans);
    let draft = Draft::new(
        severity,
        format!("{left} programs run on although their port is closed{}", most.map_or(String::new(), said)),
    )
    .because(
        Evidence::number("programs of the VM without a port", left as f64, Unit::Count)
            .against_scale(LEFT.of(period))
            .with_text("children of erl_child_setup beyond the ports that have a program"),
    );
    Some(told(period, draft, left, alive, most).fix(remedy::of(
        period,
        "code.end_programs",
        "start them through a wrapper that ends the program when its standard input is closed (MuonTrap, erlexec, or the script in the \
         documentation of Elixir's Port), or kill the os_pid in terminate/2",
        "closing a port, also when its process is killed, closes the pipes and sends no signal",
        "the number of such programs must not grow under the same load",
    )))
}

/// What programs have left behind.
fn orphaned(period: &Period, orphans: i64, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let severity = LEFT.of(period).severity(orphans as f64)?;
    let most = most(names, |named| named.orphans);
    let draft = Draft::new(
        severity,
        format!(
            "{orphans} processes outlived the program that started them{}",
            most.map_or(String::new(), said)
        ),
    )
    .because(
        Evidence::number("orphans", orphans as f64, Unit::Count)
            .against_scale(LEFT.of(period))
            .with_text("a shell has ended, or was killed, and what it had started runs on"),
    );
    Some(told(period, draft, orphans, alive, most).fix(remedy::of(
        period,
        "code.end_programs",
        "no & in commands, exec in front of a script's last command, and a kill of the whole group (kill -- -OS_PID: each program has a \
         session of its own)",
        "who kills the shell does not kill what the shell has started",
        "the number of orphans must not grow under the same load",
    )))
}

/// What both have in common.
fn told(period: &Period, draft: Draft, count: i64, alive: &SeriesStat, most: Option<&Named<'_>>) -> Draft {
    let resident = period.stat(&metrics::PROGRAMS_RESIDENT, "").ok().map(|stat| stat.last.value as f64);
    let is_most = 2 * count > alive.last.value;
    let starters = programs::starters(period);
    let named = most.map(|named| Subject::OsProcess { name: named.name.to_owned(), pid: None });
    draft
        .about(named)
        .costs(
            resident.filter(|_| is_most).map(|bytes| {
                Cost::MemoryBytes(bytes * (count as f64 / alive.last.value.max(1) as f64).min(1.0))
            }),
        )
        .because(Evidence::number("processes of programs", alive.last.value as f64, Unit::Count))
        .because_some(resident.map(|bytes| {
            Evidence::number("resident memory of all of them", bytes, Unit::Bytes)
                .with_text("shared pages count for each")
        }))
        .because_some(
            most.and_then(|named| named.oldest_seconds).map(|seconds| {
                Evidence::number("the oldest of that name has run for", seconds, Unit::Seconds)
            }),
        )
        .because_some(starters.first().map(|starter| Evidence::text("who starts programs", starter.said())))
}

/// Zombies.
fn unwaited(period: &Period, zombies: i64) -> Option<Draft> {
    let severity = ZOMBIES.of(period).severity(zombies as f64)?;
    Some(
        Draft::new(severity, format!("{zombies} processes have ended and nobody has waited for them (zombies)"))
            .about(Subject::OsProcess { name: "zombies".to_owned(), pid: None })
            .because(
                Evidence::number("zombies", zombies as f64, Unit::Count).against_scale(ZOMBIES.of(period)),
            )
            .but("the VM waits for all programs that it starts itself: these are of a program, or of a container whose first process is the VM")
            .fix(remedy::of(
                period,
                "host.init_process",
                "docker run --init, or tini as the entry point of the container; where they are of a program of the node, that one has to wait for \
                 them",
                "orphans go to the first process of the container, and the VM waits for none that it has not started",
                "the number of processes in state Z must not grow",
            )),
    )
}

/// Programs that become more.
fn growing(period: &Period, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let (first, last) = (alive.first.value, held(alive));
    let grown = last - first;
    let least = GROWN.max((GROWN_SHARE * first as f64) as i64);
    // They come, and hardly any of them go.
    let ended = period.rate(&metrics::PROGRAMS_ENDED, "").map_or(0.0, |rate| rate * period.seconds());
    if grown < least || ended > grown as f64 || !rises(alive, grown) {
        return None;
    }
    let is_long = period.seconds() >= MINUTES_SECONDS;
    let most = most(names, |named| named.alive);
    let draft = Draft::new(
        if is_long { GROWS } else { MINOR },
        format!("programs of the node become more: {first} to {last}{}", most.map_or(String::new(), said)),
    )
    .because(Evidence::number("processes of programs more", grown as f64, Unit::Count))
    .because(Evidence::number("programs that ended", ended, Unit::Count))
    .guess_if(!is_long)
    .but_if(!is_long, "it was seen for a short time: work that has just begun looks the same");
    Some(told(period, draft, grown, alive, most).fix(remedy::of(
        period,
        "code.end_programs",
        "find who starts them and when each is to end; close its port then, and see that it ends with its standard input",
        "nobody else ends them",
        "the number of programs must stay the same under the same load",
    )))
}

/// Whether it goes up nearly all the time.
fn rises(alive: &SeriesStat, grown: i64) -> bool {
    let mut highest = i64::MIN;
    alive.trace.points().iter().all(|(_, value)| {
        highest = highest.max(*value);
        highest - value <= grown / 5
    })
}

/// Memory that they take from the VM's control group.
fn memory(period: &Period, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let resident = period.stat(&metrics::PROGRAMS_RESIDENT, "").ok()?.last.value as f64;
    let limit = period.stat(&metrics::CGROUP_MEMORY_LIMIT, "memory").ok()?.last.value as f64;
    let share = if limit > 0.0 { resident / limit } else { 0.0 };
    let severity = MEMORY.of(period).severity(share)?;
    let is_full = view::group_memory_used(period).is_some_and(|used| used >= view::NEARLY_FULL);
    let most = most(names, |named| named.alive);
    Some(
        Draft::new(
            severity,
            format!(
                "programs of the node take {:.0} % of the memory limit that it has with them{}",
                share * 100.0,
                most.map_or(String::new(), said)
            ),
        )
        .minor_if(!is_full)
        .about(most.map(|named| Subject::OsProcess { name: named.name.to_owned(), pid: None }))
        .costs(Cost::MemoryBytes(resident))
        .because(
            Evidence::number("their resident memory, of the control group's limit", share, Unit::Ratio)
                .against_scale(MEMORY.of(period)),
        )
        .because(Evidence::number("which is", resident, Unit::Bytes).with_text("shared pages count for each"))
        .because(Evidence::number("processes of programs", alive.last.value as f64, Unit::Count))
        .but_if(!is_full, "the limit is not nearly reached")
        .fix(remedy::of(
            period,
            "code.end_programs",
            "run fewer of them at a time, and end those that are not needed; or give them a control group of their own (systemd-run --scope)",
            "when the limit is reached, the kernel ends one of all processes of the group: the VM is the largest",
            "their resident memory under the same load",
        )),
    )
}

/// The name that most have.
fn most<'a, 'n>(names: &'a [Named<'n>], count: fn(&Named<'n>) -> i64) -> Option<&'a Named<'n>> {
    names.iter().filter(|named| count(named) > 0).max_by_key(|named| (count(named), named.name))
}

/// `, most of them sleep`.
fn said(named: &Named<'_>) -> String {
    format!(", most of them {}", named.name)
}
