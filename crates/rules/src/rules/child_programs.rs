//! BT060: external programs that the node starts take CPU from it, or are started continually.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::programs::{self, Named, Starter};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT060"),
    name: "child-programs",
    question: "Do external programs that the node starts take its CPU?",
    confirm: "run the same load without these programs, or with half as many at once: run-queue delay of the scheduler threads falls",
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

const SHARE: Threshold = Threshold::new(
    "child-programs.cpu_share",
    "external programs, share of the CPU that the node may use",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.75,
        source: "judgement: as for run-queue delay, which it causes",
    },
);

const RATE: Threshold = Threshold::new(
    "child-programs.started_per_s",
    "external programs started per second",
    Scale {
        notice: 10.0,
        warning: 50.0,
        critical: 500.0,
        source: "measured on OTP 25: a program that does nothing costs 0.75 ms of CPU by open_port, 1.7 ms by os:cmd, which starts a shell \
             as well and answers after 2 ms; the rates are judgement",
    },
);

/// Programs that use less CPU than this are at most a notice, whatever their number.
const MIN_CORES: f64 = 0.05;
/// Programs that use less CPU than this are never critical.
const MIN_CRITICAL_CORES: f64 = 0.25;
/// If a program uses less CPU than this, starting it is a large part of its cost (judgement; a start takes 1 to 2 ms).
const SHORT_MSEC: f64 = 20.0;
/// A host with a higher utilization has no CPU to spare for programs.
const FULL_UTILIZATION: f64 = 0.9;
/// Schedulers lack CPU if they wait for at least this share of their runnable time (as in cpu-starved).
const MAX_WAIT_SHARE: f64 = 0.15;

/// CPU time and number of the external programs.
struct Usage<'a> {
    cores: f64,
    /// Cores that the node may use.
    limit: f64,
    /// Programs started per second; `None` if the counters may not be read.
    rate: Option<f64>,
    /// Whether the node lacks the CPU that the programs use.
    is_cpu_short: bool,
    names: Vec<Named<'a>>,
    starters: Vec<Starter>,
}

impl Usage<'_> {
    /// Milliseconds of CPU per program, if enough of them were started.
    fn msec_per_program(&self, period: &Period) -> Option<f64> {
        self.rate.filter(|rate| *rate >= RATE.of(period).notice).map(|rate| self.cores / rate * 1e3)
    }

    fn are_short_lived(&self, period: &Period) -> bool {
        self.msec_per_program(period).is_some_and(|msec| msec < SHORT_MSEC)
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let cores = view::programs_cores(period)?;
    // The number of schedulers does not limit programs.
    let allowed = period.stat(&metrics::CPUS_ALLOWED, "")?.mean();
    let limit = allowed.min(view::quota_cores(period).unwrap_or(f64::INFINITY));
    let children = period.stat(&metrics::PROGRAMS_CHILDREN, "")?;
    let growth = (children.last.value - children.first.value) as f64 / period.seconds().max(1.0);
    let rate = period.rate(&metrics::PROGRAMS_ENDED, "").ok().map(|ended| (ended + growth).max(0.0));
    let busy = period.cores(&metrics::CPU_BUSY, "")?;
    let is_full = busy >= FULL_UTILIZATION * period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let usage = Usage {
        cores,
        limit,
        rate,
        is_cpu_short: is_full || view::quota_used_up(period) || schedulers_wait(period),
        names: programs::named(period),
        starters: programs::starters(period),
    };
    let by_share = SHARE.of(period).severity(cores / limit).filter(|_| cores >= MIN_CORES);
    let by_share = by_share.map(|severity| if usage.is_cpu_short { severity } else { severity.min(MINOR) });
    let by_rate = rate.and_then(|rate| RATE.of(period).severity(rate));
    let by_rate = by_rate.map(|severity| if cores < MIN_CORES { severity.min(MINOR) } else { severity });
    let Some(severity) = by_share.into_iter().chain(by_rate).reduce(f64::max) else {
        let started = rate.map_or(String::new(), |rate| format!(", {} started/s", text::rate(rate)));
        return Ok(Judgement::Healthy(format!(
            "external programs: {} of {} cores{started}",
            text::cores(cores),
            text::cores(limit)
        )));
    };
    Ok(Judgement::found(describe(period, &usage, severity)))
}

/// Whether the schedulers wait for a CPU for much of their runnable time.
fn schedulers_wait(period: &Period) -> bool {
    let of = |metric| view::thread_cores(period, metric, kind::SCHEDULERS).unwrap_or(0.0);
    let (ran, waited) = (of(&metrics::THREAD_CPU), of(&metrics::THREAD_WAIT));
    waited >= MIN_CORES && waited >= MAX_WAIT_SHARE * (ran + waited)
}

fn describe(period: &Period, usage: &Usage<'_>, severity: f64) -> Draft {
    let &Usage { cores, limit, rate, is_cpu_short, ref names, ref starters } = usage;
    let starter = starters.first();
    let are_short_lived = usage.are_short_lived(period);
    let used = format!("{} of {} cores", text::cores(cores), text::cores(limit));
    let by_name = cores_by_name(names);
    // Long-running helpers are not the programs that are started repeatedly.
    let is_new = |named: &&Named<'_>| named.oldest_seconds.is_none_or(|oldest| oldest < period.seconds());
    let seen: Vec<&str> = names.iter().filter(is_new).map(|named| named.name).collect();
    let title = match (rate, busiest(names)) {
        (Some(rate), _) if are_short_lived => {
            let which = match &seen[..] {
                [] => String::new(),
                seen => format!(" ({})", text::names(seen, MAX_IN_TITLE)),
            };
            format!("{} external programs/s{which} use {used}", text::rate(rate))
        }
        (_, Some(named)) => format!("External programs use {used}, most by {}", named.name),
        (_, None) => format!("External programs use {used}"),
    };
    let uses_shell = starters.iter().any(|starter| starter.function.is_some())
        || names.iter().any(|named| named.name == "sh");
    let by = match starter {
        Some(starter) => format!("started by {}", starter.text()),
        None => format!("the process that starts them was not sampled: {FIND_STARTER} shows it"),
    };
    let per_program = usage.msec_per_program(period);
    Draft::new(severity, title)
        .detail(by_name.as_deref().unwrap_or_default())
        .detail(
            per_program.filter(|_| are_short_lived).map_or(String::new(), |msec| format!("{msec:.1} ms of CPU each")),
        )
        .detail(by)
        .about(subject(starter, names))
        .costs(Cost::CpuCores(cores))
        .part(CpuUse::ExternalPrograms)
        .at_most_warning_if(cores < MIN_CRITICAL_CORES)
        .evidence(
            Evidence::number("share of the CPU that the node may use", cores / limit, Unit::Ratio)
                .against_scale(SHARE.of(period)),
        )
        .evidence(Evidence::number("CPU of external programs", cores, Unit::Cores))
        .because_some(rate.map(|rate| {
            Evidence::number("programs started", rate, Unit::PerSecond).against_scale(RATE.of(period))
        }))
        .because_some(
            per_program.map(|msec| Evidence::number("CPU per program", msec / 1e3, Unit::Seconds)),
        )
        .because_some(by_name.map(|names| Evidence::text("CPU of sampled programs", names)))
        .because_some(alive(names).map(|text| Evidence::text("running at the end", text)))
        .because_some(starter.map(|starter| {
            Evidence::text("started by", starter.text())
                .with_text(format!("{}: sampled {} times", starter.text(), starter.seen))
        }))
        .but_if(!is_cpu_short, "the node had CPU to spare")
        .but_if(starter.is_none(), "the process that starts them was not sampled: each start is short")
        .but_if(
            rate.is_none(),
            "number of starts unknown: /proc/PID/task/PID/io of erl_child_setup may not be read",
        )
        .fix_if(are_short_lived, || {
            remedy::of(
                period,
                "code.fewer_programs",
                &in_place_of(&seen),
                "starting such a program costs more than its work",
                "programs started per second, and CPU per request, under the same load",
            )
        })
        .fix_if(are_short_lived && uses_shell, || {
            remedy::of(
                period,
                "code.no_shell",
                "use open_port({spawn_executable, Path}, [{args, Args}]), or System.cmd in Elixir, instead of os:cmd",
                "os:cmd starts a shell each time, which starts the program",
                "CPU per program (measured: 1.7 ms with a shell, 0.75 ms without)",
            )
        })
        .fix_if(
            !are_short_lived
                && !is_cpu_short
                && busiest(names).is_some_and(|named| named.cores >= programs::BUSY_CORES),
            || {
                remedy::of(
                    period,
                    "code.faster_program",
                    "do less in the program per request, or run several and spread the requests",
                    "one program uses one CPU nearly all the time, while other CPUs are idle",
                    "response time under the same load",
                )
            },
        )
        .fix_if(!are_short_lived && is_cpu_short, || {
            remedy::of(
                period,
                "code.limit_programs",
                "run fewer of them at once (a pool), or with a lower priority: nice -n 10 PROGRAM",
                "they run on the node's CPUs, with any number of threads",
                "run-queue delay of the scheduler threads falls towards 0",
            )
        })
}

/// Prints the next calls that start a program, with the calling process. `os:cmd` and `System.cmd` open a port, too.
const FIND_STARTER: &str = "recon_trace:calls({erlang, open_port, 2}, 5)";

/// Modules that do what programs are often started for (OTP's applications kernel, stdlib, crypto and inets).
const MODULES: [(&[&str], &str); 7] = [
    (&["cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum", "openssl"], "crypto:hash/2 or erlang:crc32/1"),
    (&["gzip", "gunzip", "zcat", "pigz"], "zlib"),
    (&["tar"], "erl_tar"),
    (&["zip", "unzip"], "zip"),
    (&["cp", "mv", "rm", "mkdir", "ls", "cat", "find", "stat", "touch", "chmod", "du"], "file and filelib"),
    (&["curl", "wget"], "httpc"),
    (&["ps", "free", "df", "uptime", "nproc"], "os_mon (cpu_sup, memsup, disksup)"),
];

/// What to do instead of starting these programs repeatedly.
fn in_place_of(names: &[&str]) -> String {
    let known = names.iter().find_map(|name| {
        let (_, module) = MODULES.iter().find(|(programs, _)| programs.contains(name))?;
        Some((name, module))
    });
    match known {
        Some((name, module)) => format!("use {module} instead of {name}; {START_ONCE}"),
        None => format!("use a library of the node instead of the program; {START_ONCE}"),
    }
}

const START_ONCE: &str =
    "or start the program once and send it each request through its port (port_command/2)";

/// The process or function that starts the programs, or else the busiest program.
fn subject(starter: Option<&Starter>, names: &[Named<'_>]) -> Option<Subject> {
    let process = starter.and_then(|starter| match (&starter.process, &starter.function) {
        (Some(process), _) => Some(process.clone()),
        (None, function) => function.clone().map(|name| Subject::Function { name }),
    });
    let busiest = || names.iter().max_by(|a, b| a.cores.total_cmp(&b.cores));
    process.or_else(|| busiest().map(|named| Subject::OsProcess { name: named.name.to_owned(), pid: None }))
}

/// The name of the programs that use the most CPU, if that can be measured.
fn busiest<'a, 'n>(names: &'a [Named<'n>]) -> Option<&'a Named<'n>> {
    names.iter().max_by(|a, b| a.cores.total_cmp(&b.cores)).filter(|named| named.cores >= MIN_NAMED_CORES)
}

/// Maximum number of programs that a title names.
const MAX_IN_TITLE: usize = 2;

/// Minimum CPU of a program that is listed with its CPU, in cores.
const MIN_NAMED_CORES: f64 = 0.005;

/// Lists the programs with the most CPU: `ffmpeg 1.40, sh 0.02`.
fn cores_by_name(names: &[Named<'_>]) -> Option<String> {
    let mut seen: Vec<&Named<'_>> = names.iter().filter(|named| named.cores >= MIN_NAMED_CORES).collect();
    seen.sort_by(|a, b| b.cores.total_cmp(&a.cores).then(a.name.cmp(b.name)));
    let text: Vec<_> =
        seen.iter().take(3).map(|named| format!("{} {:.2}", named.name, named.cores)).collect();
    (!text.is_empty()).then(|| text.join(", "))
}

/// Lists the programs with the most running instances: `3 ffmpeg, 1 sh`.
fn alive(names: &[Named<'_>]) -> Option<String> {
    let mut alive: Vec<&Named<'_>> = names.iter().filter(|named| named.alive > 0).collect();
    alive.sort_by(|a, b| b.alive.cmp(&a.alive).then(a.name.cmp(b.name)));
    let text: Vec<_> = alive.iter().take(3).map(|named| format!("{} {}", named.alive, named.name)).collect();
    (!text.is_empty()).then(|| text.join(", "))
}
