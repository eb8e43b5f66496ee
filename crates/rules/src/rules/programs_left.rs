//! BT061: external programs that are left behind: without a port, as orphans, as zombies, or in growing numbers.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, SeriesStat, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, MINUTES_SECONDS, Rule, Topic};
use crate::signals::memory::format_bytes;
use crate::signals::programs::{self, Named, recent_max, recent_min};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT061"),
    name: "programs-left",
    question: "Are external programs left behind?",
    confirm: "stop the process that starts them: if their number does not fall, nothing terminates them",
    needs: &[&metrics::PROGRAMS_ALIVE, &metrics::PROGRAMS_CHILDREN, &metrics::PROGRAMS_ORPHANS],
    account: Account::Memory,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[LEFT, ZOMBIES, MEMORY],
    ..Rule::COMMON
};

const LEFT: Threshold = Threshold::new(
    "programs-left.programs",
    "external programs without a port, or orphans",
    Scale {
        notice: 5.0,
        warning: 20.0,
        critical: 1_000.0,
        source: "judgement: one or two may be meant to stay; each takes memory and a process id of the host or container",
    },
);

const ZOMBIES: Threshold = Threshold::new(
    "programs-left.zombies",
    "zombies",
    Scale {
        notice: 10.0,
        warning: 100.0,
        critical: 10_000.0,
        source: "judgement: a zombie takes a process id and 10 kB of the kernel; their number is limited (pids.max, pid_max)",
    },
);

/// Growth by fewer programs, or by a smaller share, may be chance.
const MIN_GROWN: i64 = 10;
const MIN_GROWN_SHARE: f64 = 0.25;
/// Severity of growth over minutes: a warning.
const GROWTH_SEVERITY: f64 = 30.0;

const MEMORY: Threshold = Threshold::new(
    "programs-left.memory_share",
    "memory of external programs, share of the control group's limit",
    Scale {
        notice: 0.25,
        warning: 0.40,
        critical: 0.80,
        source: "judgement: at the limit the kernel may kill the VM",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let alive = period.stat(&metrics::PROGRAMS_ALIVE, "")?;
    let children = period.stat(&metrics::PROGRAMS_CHILDREN, "")?;
    let orphans = period.stat(&metrics::PROGRAMS_ORPHANS, "")?;
    let ports = period.stat(&metrics::PROGRAM_PORTS, "").ok();
    let zombies = period.stat(&metrics::PROGRAMS_ZOMBIES, "").map_or(0, recent_min);
    let names = programs::named(period);
    // Programs and ports are counted at different instants, so the difference must have persisted for a while.
    let left =
        ports.filter(|ports| recent_min(children) - recent_max(ports) >= LEFT.of(period).notice as i64);
    let left = left.map(|ports| children.last.value - ports.last.value);
    let drafts: Vec<Draft> = [
        left.and_then(|left| without_port(period, left, alive, &names)),
        orphaned(period, orphans.last.value, alive, &names),
        unwaited(period, zombies),
    ]
    .into_iter()
    .flatten()
    .collect();
    // Growth is reported only if the other findings do not explain it.
    let grows = if drafts.is_empty() { growing(period, alive, &names) } else { None };
    let drafts = drafts.into_iter().chain(grows).chain(memory(period, alive, &names)).collect();
    let with_port = ports.map_or(String::new(), |ports| format!(", {} ports", ports.last.value));
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "external programs: {} processes{with_port}, {} orphans, {zombies} zombies",
            alive.last.value, orphans.last.value
        ),
    ))
}

/// Drafts the finding about children of the VM without a port.
fn without_port(period: &Period, left: i64, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let severity = LEFT.of(period).severity(left as f64)?;
    let most = most(names, |named| named.alive - named.orphans);
    let draft = Draft::new(
        severity,
        format!("{} external programs outlive their port{}", count_text(left), mostly(most)),
    )
    .evidence(
        Evidence::number("external programs without a port", left as f64, Unit::Count)
            .against_scale(LEFT.of(period))
            .with_text("children of erl_child_setup minus ports of programs"),
    );
    Some(with_evidence(period, draft, left, alive, most).remedy(remedy::of(
        period,
        "code.end_programs",
        "start them through a wrapper that ends the program when its standard input closes (MuonTrap, erlexec, the script in the \
         documentation of Elixir's Port), or kill the os_pid in terminate/2",
        "closing a port, also by killing its process, closes the pipes and sends no signal",
        "the number of such programs does not grow under the same load",
    )))
}

/// Drafts the finding about orphans: descendants of external programs that have ended.
fn orphaned(period: &Period, orphans: i64, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let severity = LEFT.of(period).severity(orphans as f64)?;
    let most = most(names, |named| named.orphans);
    let draft =
        Draft::new(severity, format!("{} orphans of external programs{}", count_text(orphans), mostly(most)))
            .detail("the program that started them has ended")
            .evidence(
                Evidence::number("orphans", orphans as f64, Unit::Count)
                    .against_scale(LEFT.of(period))
                    .with_text("a shell ended or was killed, but not the programs that it started"),
            );
    Some(with_evidence(period, draft, orphans, alive, most).remedy(remedy::of(
        period,
        "code.end_programs",
        "avoid & in commands, exec a script's last command, and kill the whole group (kill -- -OS_PID: each program has its own session)",
        "killing a shell does not kill what it started",
        "the number of orphans does not grow under the same load",
    )))
}

/// Adds what all findings about left programs have in common.
fn with_evidence(
    period: &Period,
    draft: Draft,
    count: i64,
    alive: &SeriesStat,
    most: Option<&Named<'_>>,
) -> Draft {
    let resident = period.stat(&metrics::PROGRAMS_RESIDENT, "").ok().map(|stat| stat.last.value as f64);
    let is_most = 2 * count > alive.last.value;
    let starters = programs::starters(period);
    let named = most.map(|named| Subject::OsProcess { name: named.name.to_owned(), pid: None });
    let starter = starters.first().map(|starter| starter.text());
    draft
        .detail(starter.as_ref().map_or(String::new(), |starter| format!("started by {starter}")))
        .about(named)
        .costs(
            resident.filter(|_| is_most).map(|bytes| {
                Cost::MemoryBytes(bytes * (count as f64 / alive.last.value.max(1) as f64).min(1.0))
            }),
        )
        .evidence(Evidence::number("processes of external programs", alive.last.value as f64, Unit::Count))
        .because_some(resident.map(|bytes| {
            Evidence::number("resident memory of external programs", bytes, Unit::Bytes)
                .with_text("shared pages are counted for each process")
        }))
        .because_some(most.and_then(|named| named.oldest_seconds).map(|seconds| {
            Evidence::number("age of the oldest process of that name", seconds, Unit::Seconds)
        }))
        .because_some(starter.map(|starter| Evidence::text("started by", starter)))
}

/// Drafts the finding about zombies.
fn unwaited(period: &Period, zombies: i64) -> Option<Draft> {
    let severity = ZOMBIES.of(period).severity(zombies as f64)?;
    Some(
        Draft::new(severity, format!("{} zombie processes", count_text(zombies)))
            .detail("ended, but their parent does not wait for them")
            .about(Subject::OsProcess { name: "zombies".to_owned(), pid: None })
            .evidence(
                Evidence::number("zombies", zombies as f64, Unit::Count).against_scale(ZOMBIES.of(period)),
            )
            .counter_evidence("not programs started by the VM, for which it waits: children of a program, or orphans in its container")
            .remedy(remedy::of(
                period,
                "host.init_process",
                "use docker run --init, or tini as the entry point of the container; an external program must \
                 wait for its own children",
                "orphans go to the first process of the container; the VM waits only for programs that it started",
                "the number of processes in state Z does not grow",
            )),
    )
}

/// Drafts the finding about a growing number of external programs.
fn growing(period: &Period, alive: &SeriesStat, names: &[Named<'_>]) -> Option<Draft> {
    let (first, last) = (alive.first.value, recent_min(alive));
    let grown = last - first;
    let min = MIN_GROWN.max((MIN_GROWN_SHARE * first as f64) as i64);
    // Programs start, and few of them have ended.
    let ended = period.rate(&metrics::PROGRAMS_ENDED, "").map_or(0.0, |rate| rate * period.seconds());
    if grown < min || ended > grown as f64 || !rises(alive, grown) {
        return None;
    }
    let is_long = period.seconds() >= MINUTES_SECONDS;
    let most = most(names, |named| named.alive);
    let draft = Draft::new(
        if is_long { GROWTH_SEVERITY } else { MINOR },
        format!(
            "External programs increase from {} to {}{}",
            count_text(first),
            count_text(last),
            mostly(most)
        ),
    )
    .detail(format!("in {}", view::duration_text(period.seconds())))
    .evidence(Evidence::number("growth of external programs", grown as f64, Unit::Count))
    .evidence(Evidence::number("external programs that ended", ended, Unit::Count))
    .guess_if(!is_long)
    .but_if(!is_long, "short period: work that just began looks the same");
    Some(with_evidence(period, draft, grown, alive, most).remedy(remedy::of(
        period,
        "code.end_programs",
        "find what starts them and when each should end; close its port then, and check that it ends with its standard input",
        "nothing else terminates them",
        "the number of external programs stays level under the same load",
    )))
}

/// Whether the number rises almost all the time.
fn rises(alive: &SeriesStat, grown: i64) -> bool {
    let mut highest = i64::MIN;
    alive.trace.points().iter().all(|(_, value)| {
        highest = highest.max(*value);
        highest - value <= grown / 5
    })
}

/// Drafts the finding about the memory of external programs in the VM's control group.
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
            format!("External programs use {:.0} % of the memory limit{}", share * 100.0, mostly(most)),
        )
        .detail(format!("{} resident", format_bytes(resident)))
        .detail(text::counted(alive.last.value as f64, "process", "processes"))
        .minor_if(!is_full)
        .about(most.map(|named| Subject::OsProcess { name: named.name.to_owned(), pid: None }))
        .costs(Cost::MemoryBytes(resident))
        .evidence(
            Evidence::number("share of the control group's limit", share, Unit::Ratio)
                .against_scale(MEMORY.of(period)),
        )
        .evidence(
            Evidence::number("resident memory of external programs", resident, Unit::Bytes)
                .with_text("shared pages are counted for each process"),
        )
        .evidence(Evidence::number("processes of external programs", alive.last.value as f64, Unit::Count))
        .but_if(!is_full, "the limit is not nearly reached")
        .remedy(remedy::of(
            period,
            "code.end_programs",
            "run fewer at once and end those not needed, or give them their own control group (systemd-run --scope)",
            "at the limit the kernel kills one process of the group: the VM is the largest",
            "their resident memory under the same load",
        )),
    )
}

/// Returns the most frequent name.
fn most<'a, 'n>(names: &'a [Named<'n>], count: fn(&Named<'n>) -> i64) -> Option<&'a Named<'n>> {
    names.iter().filter(|named| count(named) > 0).max_by_key(|named| (count(named), named.name))
}

/// Formats the most frequent name: `, mostly sleep`.
fn mostly(most: Option<&Named<'_>>) -> String {
    most.map_or(String::new(), |named| format!(", mostly {}", named.name))
}

fn count_text(count: i64) -> String {
    text::number(count as f64)
}
