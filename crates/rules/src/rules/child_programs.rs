//! BT060: programs that the node starts take CPU from it, or are started all the time.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, Use, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::programs::{self, Named, Starter};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT060"),
    name: "child-programs",
    question: "Do programs that the node starts take its CPU?",
    confirm: "the same load without these programs, or with half as many at a time: run-queue wait of the scheduler threads must fall",
    needs: &[
        &metrics::PROGRAMS_CPU,
        &metrics::PROGRAMS_CHILDREN,
        &metrics::CPU_BUSY,
        &metrics::CPUS_ONLINE,
        &metrics::CPUS_ALLOWED,
    ],
    account: Account::CpuUnused,
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE, RATE],
    ..Rule::COMMON
};

/// Share of the CPU that the node may use.
const SHARE: Threshold = Threshold::new(
    "child-programs.cpu_share",
    "programs, share of the CPU that the node may use",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.75,
        source: "judgement: as for a wait for the CPU, of which it is the cause",
    },
);

/// Programs that are started in a second.
const RATE: Threshold = Threshold::new(
    "child-programs.started_per_s",
    "programs started a second",
    Scale {
        notice: 10.0,
        warning: 50.0,
        critical: 500.0,
        source: "measured on OTP 25: a program that does nothing costs 0.75 ms of CPU by open_port, 1.7 ms by os:cmd, which starts a shell \
             as well and takes 2 ms until the answer; the rates are judgement",
    },
);

/// Below so many cores it is no trouble, whatever their number.
const WORTH_CORES: f64 = 0.05;
/// Below this little is lost.
const MUCH_CORES: f64 = 0.25;
/// Programs that take less than this on average do so little that starting them is much of it (judgement; a start takes 1 to 2 ms).
const SHORT_MSEC: f64 = 20.0;
/// A machine that is busy for this share of the time has no CPU left that programs could take without harm.
const FULL: f64 = 0.9;
/// Schedulers that are kept waiting for this share of the time in which they want a CPU lack it (as in cpu-starved).
const KEPT_WAITING: f64 = 0.15;

/// What the programs take.
struct Taken<'a> {
    cores: f64,
    /// What the node may use.
    limit: f64,
    /// Started in a second; `None` where that may not be read.
    rate: Option<f64>,
    /// Whether somebody lacks the CPU that they have.
    is_short: bool,
    names: Vec<Named<'a>>,
    starters: Vec<Starter>,
}

impl Taken<'_> {
    /// Milliseconds of CPU for each, where there are enough of them to tell.
    fn each_msec(&self, period: &Period) -> Option<f64> {
        self.rate.filter(|rate| *rate >= RATE.of(period).notice).map(|rate| self.cores / rate * 1e3)
    }

    fn are_short(&self, period: &Period) -> bool {
        self.each_msec(period).is_some_and(|msec| msec < SHORT_MSEC)
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let cores = view::programs_cores(period)?;
    // Schedulers do not bound programs, and are not known where the VM was not asked.
    let allowed = period.stat(&metrics::CPUS_ALLOWED, "")?.mean();
    let limit = allowed.min(view::quota_cores(period).unwrap_or(f64::INFINITY));
    let children = period.stat(&metrics::PROGRAMS_CHILDREN, "")?;
    let more = (children.last.value - children.first.value) as f64 / period.seconds().max(1.0);
    let rate = period.rate(&metrics::PROGRAMS_ENDED, "").ok().map(|ended| (ended + more).max(0.0));
    let busy = period.cores(&metrics::CPU_BUSY, "")?;
    let is_full = busy >= FULL * period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let taken = Taken {
        cores,
        limit,
        rate,
        is_short: is_full || view::quota_used_up(period) || are_kept_waiting(period),
        names: programs::named(period),
        starters: programs::starters(period),
    };
    let by_share = SHARE.of(period).severity(cores / limit).filter(|_| cores >= WORTH_CORES);
    let by_share = by_share.map(|severity| if taken.is_short { severity } else { severity.min(MINOR) });
    let by_rate = rate.and_then(|rate| RATE.of(period).severity(rate));
    let by_rate = by_rate.map(|severity| if cores < WORTH_CORES { severity.min(MINOR) } else { severity });
    let Some(severity) = by_share.into_iter().chain(by_rate).reduce(f64::max) else {
        let started = rate.map_or(String::new(), |rate| format!(", and {rate:.1} were started a second"));
        return Ok(Judgement::Healthy(format!(
            "programs that the node started took {cores:.2} of {limit:.2} cores{started}"
        )));
    };
    Ok(Judgement::found(describe(period, &taken, severity)))
}

/// Whether the schedulers wait for a CPU in much of the time in which they want one.
fn are_kept_waiting(period: &Period) -> bool {
    let of = |metric| view::thread_cores(period, metric, kind::SCHEDULERS).unwrap_or(0.0);
    let (ran, waited) = (of(&metrics::THREAD_CPU), of(&metrics::THREAD_WAIT));
    waited >= WORTH_CORES && waited >= KEPT_WAITING * (ran + waited)
}

fn describe(period: &Period, taken: &Taken<'_>, severity: f64) -> Draft {
    let &Taken { cores, limit, rate, is_short, ref names, ref starters } = taken;
    let starter = starters.first();
    let by = starter.map_or(String::new(), |starter| format!(", by {}", starter.said()));
    let largest = largest(names);
    let are_short = taken.are_short(period);
    let summary = match rate {
        Some(rate) if are_short => {
            format!(
                "the node starts {rate:.0} programs a second{by}: they take {cores:.2} of {limit:.2} cores"
            )
        }
        _ => {
            let which = largest.as_ref().map_or(String::new(), |names| format!(" ({names})"));
            format!("programs that the node started{which} take {cores:.2} of {limit:.2} cores{by}")
        }
    };
    let uses_shell = starters.iter().any(|starter| starter.function.is_some())
        || names.iter().any(|named| named.name == "sh");
    Draft::new(severity, summary)
        .about(subject(starter, names))
        .costs(Cost::CpuCores(cores))
        .part(Use::Programs)
        .at_most_warning_if(cores < MUCH_CORES)
        .because(
            Evidence::number("CPU of programs, of what the node may use", cores / limit, Unit::Ratio)
                .against_scale(SHARE.of(period)),
        )
        .because(Evidence::number("which is", cores, Unit::Cores))
        .because_some(rate.map(|rate| {
            Evidence::number("programs started", rate, Unit::PerSecond).against_scale(RATE.of(period))
        }))
        .because_some(taken.each_msec(period).map(|msec| {
            Evidence::number("CPU for each of them", msec / 1e3, Unit::Seconds)
        }))
        .because_some(largest.map(|names| Evidence::text("those that lived long enough to be seen", names)))
        .because_some(alive(names).map(|text| Evidence::text("running at the end", text)))
        .because_some(starter.map(|starter| {
            Evidence::text("who starts them", starter.said()).with_text(format!(
                "{}: seen at it {} times",
                starter.said(),
                starter.seen
            ))
        }))
        .but_if(!is_short, "nobody lacked the CPU that they took: there is some left")
        .but_if(starter.is_none(), "who starts them was not seen: each start is short")
        .but_if(rate.is_none(), "how many are started is not known: /proc/PID/task/PID/io of erl_child_setup may not be read")
        .fix_if(are_short, || {
            remedy::of(
                period,
                "code.fewer_programs",
                "do it with a module (file, crypto, zlib, erl_tar, httpc), keep one program as a port and send it requests, or start it once for \
                 many pieces",
                "starting a program costs more than most of what they do",
                "programs started a second, and CPU for each request, under the same load",
            )
        })
        .fix_if(are_short && uses_shell, || {
            remedy::of(
                period,
                "code.no_shell",
                "open_port({spawn_executable, Path}, [{args, Args}]), or System.cmd in Elixir, in place of os:cmd",
                "os:cmd starts a shell for each, which starts the program",
                "CPU for each program (measured: 1.7 ms with a shell, 0.75 ms without)",
            )
        })
        .fix_if(!are_short && !is_short && busiest(names) >= programs::BUSY_CORES, || {
            remedy::of(
                period,
                "code.faster_program",
                "do less in the program for each request, or keep several of them and give each a part of the requests",
                "one program uses one CPU, is at work nearly all the time, and others are idle",
                "time until a request is answered, under the same load",
            )
        })
        .fix_if(!are_short && is_short, || {
            remedy::of(
                period,
                "code.limit_programs",
                "run fewer of them at a time (a pool), or with a lower priority: nice -n 10 PROGRAM",
                "they run on the node's own CPUs, each as many threads as it likes",
                "run-queue wait of the scheduler threads must fall towards 0",
            )
        })
}

/// Who starts them, if that was seen; else the program itself.
fn subject(starter: Option<&Starter>, names: &[Named<'_>]) -> Option<Subject> {
    let process = starter.and_then(|starter| match (&starter.process, &starter.function) {
        (Some(process), _) => Some(process.clone()),
        (None, function) => function.clone().map(|name| Subject::Function { name }),
    });
    let most = || names.iter().max_by(|a, b| a.cores.total_cmp(&b.cores));
    process.or_else(|| most().map(|named| Subject::OsProcess { name: named.name.to_owned(), pid: None }))
}

/// CPU of those of the name with the most.
fn busiest(names: &[Named<'_>]) -> f64 {
    names.iter().map(|named| named.cores).fold(0.0, f64::max)
}

/// Those with the most CPU: `ffmpeg 1.40, sh 0.02`.
fn largest(names: &[Named<'_>]) -> Option<String> {
    let mut seen: Vec<&Named<'_>> = names.iter().filter(|named| named.cores >= 0.005).collect();
    seen.sort_by(|a, b| b.cores.total_cmp(&a.cores).then(a.name.cmp(b.name)));
    let text: Vec<_> =
        seen.iter().take(3).map(|named| format!("{} {:.2}", named.name, named.cores)).collect();
    (!text.is_empty()).then(|| text.join(", "))
}

fn alive(names: &[Named<'_>]) -> Option<String> {
    let mut alive: Vec<&Named<'_>> = names.iter().filter(|named| named.alive > 0).collect();
    alive.sort_by(|a, b| b.alive.cmp(&a.alive).then(a.name.cmp(b.name)));
    let text: Vec<_> = alive.iter().take(3).map(|named| format!("{} {}", named.alive, named.name)).collect();
    (!text.is_empty()).then(|| text.join(", "))
}
