//! BT057: modules are searched for, loaded or purged while the node runs.
//!
//! A call to a module that is not loaded goes to the code server. In interactive mode, the code server then searches all directories of the
//! code path; for a module that does not exist, it does so on each call. When a module is loaded again, its old code is purged: the code
//! purger asks every process, one after the other, whether it still runs that code. Both processes have registered names, and their work
//! shows which of the two it is.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::own_effect;
use crate::signals::stack;
use crate::signals::watermark;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT057"),
    name: "code-loading",
    question: "Are modules searched for, loaded or purged while the node works?",
    confirm: "trace error_handler:undefined_function/3, code:ensure_loaded/1 and code:load_binary/3 for a second (dbg or recon_trace): the same modules repeat",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::PROCESS_COUNT, &metrics::PROCESS_USER],
    account: Account::CpuUsed,
    judge,
    thresholds: &[SEARCHES, PURGES],
    ..Rule::COMMON
};

const PROVE_SEARCH: &str = "samples with a busy code_server, under the same load";

/// Share of the samples in which the code server, or the process that reads files for it, was busy.
const SEARCHES: Threshold = Threshold::new(
    "code-loading.search_share",
    "share of samples in which modules are searched for",
    Scale {
        notice: 0.10,
        warning: 0.30,
        critical: 0.90,
        source: "judgement: a started node loads nothing; above 90 % all callers of the module wait for each other",
    },
);

/// Minimum number of samples: a node that just started loads its modules.
const MIN_SAMPLES: u32 = 3;

const PURGES: Threshold = Threshold::new(
    "code-loading.purge_cpu_share",
    "purging modules, share of the CPU that the VM uses",
    Scale { notice: 0.03, warning: 0.10, critical: 0.60, source: "judgement, as for persistent-term-churn" },
);

/// Reductions of the purger for each process that it asks, by the first release with this number (measured: lab code-reloading).
const CHECK_REDUCTIONS: [(u32, f64); 2] = [(21, 20.0), (27, 36.0)];

/// CPU time for asking a process, including its time slice: half of the time for asking a process and searching it for literals (4.0 to 5.5
/// µs with 1,000 words, OTP 23, 25 and 29). The other half counts for persistent-term-churn.
const CHECK_SECONDS: f64 = 2.5e-6;

/// Minimum CPU cost that is reported, in cores.
const MIN_CORES: f64 = 0.01;

const CODE_SERVER: &str = "code_server";
const FILE_LOADER: &str = "erl_prim_loader";
const PURGER: &str = "erts_code_purger";

/// One of the processes above.
#[derive(Clone, Copy)]
struct SystemProcess<'p> {
    process: &'p ProcessActivity,
    /// Share of all samples in which it was runnable. In the others it was not among the busiest processes.
    busy: f64,
}

impl<'p> SystemProcess<'p> {
    fn find(period: &'p Period, name: &str) -> Option<SystemProcess<'p>> {
        let process = period.process_named(name)?;
        Some(SystemProcess { process, busy: f64::from(process.runnable) / f64::from(period.vm_ticks.max(1)) })
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let all = view::all_reductions(period)?;
    let purges = Purges::of(period)?;
    let server = SystemProcess::find(period, CODE_SERVER);
    if let Some((purges, severity)) = purges.as_ref().and_then(|purges| {
        Some((purges, PURGES.of(period).severity(purges.share).filter(|_| purges.cores >= MIN_CORES)?))
    }) {
        return Ok(Judgement::found(reloaded(period, purges, server, severity)));
    }
    // Before OTP 27, another process reads the files for the code server.
    let searchers = [server, SystemProcess::find(period, FILE_LOADER)];
    let busiest = searchers.into_iter().flatten().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let found = busiest.filter(|busiest| busiest.process.runnable >= MIN_SAMPLES);
    if let Some((found, severity)) =
        found.and_then(|found| Some((found, SEARCHES.of(period).severity(found.busy)?)))
    {
        return Ok(Judgement::found(searched(period, server.unwrap_or(found), found.busy, all, severity)));
    }
    Ok(Judgement::Healthy(match busiest {
        Some(busiest) => {
            let name = text::name(&busiest.process.subject());
            format!("{name} busy in {:.0} % of samples", busiest.busy * 100.0)
        }
        None => "code server and code purger not busy".to_owned(),
    }))
}

/// Purges of old code, estimated from the purger's reductions.
struct Purges<'p> {
    purger: SystemProcess<'p>,
    /// Modules purged per second, if all processes are asked for each module.
    per_s: f64,
    processes: f64,
    /// CPU cost in cores, and as a share of what the VM uses.
    cores: f64,
    share: f64,
}

impl<'p> Purges<'p> {
    /// `None` if the purger is not among the busiest processes.
    fn of(period: &'p Period) -> Result<Option<Purges<'p>>, Missing> {
        let processes = period.stat(&metrics::PROCESS_COUNT, "")?.mean().max(1.0);
        let used = view::process_cores(period)?;
        let Some(purger) = SystemProcess::find(period, PURGER) else { return Ok(None) };
        let release = period.facts.otp_release().unwrap_or(0);
        let (_, per_check) =
            CHECK_REDUCTIONS.into_iter().rfind(|(since, _)| release >= *since).unwrap_or(CHECK_REDUCTIONS[0]);
        let own = own_effect::purge_reductions(processes, per_check);
        let reductions = (purger.process.reductions as f64 - own).max(0.0);
        let checks = reductions / period.seconds().max(1.0) / per_check;
        let cores = (checks * CHECK_SECONDS).min(used);
        let share = if used > 0.0 { cores / used } else { 0.0 };
        Ok(Some(Purges { purger, per_s: checks / processes, processes, cores, share }))
    }
}

/// Drafts a finding about modules that are replaced continually.
fn reloaded(period: &Period, purges: &Purges<'_>, server: Option<SystemProcess<'_>>, severity: f64) -> Draft {
    let Purges { purger, per_s, processes, cores, share } = purges;
    let processes_text = text::number(processes.round());
    Draft::new(
        severity,
        format!("About {} modules/s replaced, each checked in {processes_text} processes", text::rate(*per_s)),
    )
    .detail(format!("{} cores, {:.0} % of the CPU used, for purging", text::cores(*cores), share * 100.0))
    .detail("estimated from the reductions of erts_code_purger")
    .about(purger.process.subject())
    .costs(Cost::CpuCores(*cores))
    .evidence(
        Evidence::number("modules purged", *per_s, Unit::PerSecond).with_text("by the purger's reductions"),
    )
    .evidence(
        Evidence::number("purging, share of CPU used", *share, Unit::Ratio).against_scale(PURGES.of(period)),
    )
    .evidence(Evidence::number("CPU of purging", *cores, Unit::Cores))
    .evidence(Evidence::number("processes", *processes, Unit::Count))
    .because_some(server.map(|server| Evidence::number("samples with a busy code server", server.busy, Unit::Ratio)))
    .counter_evidence("if these modules are also compiled, that costs more CPU, in the processes that load them")
    .counter_evidence("an upgrade of the running node looks the same while it lasts")
    .remedy(remedy::of(
        period,
        "code.no_code_at_run_time",
        "keep changing data in ETS (read_concurrency), and nearly constant data in persistent_term, not in modules compiled or loaded as a store \
         (mochiglobal, FastGlobal, dynamic_compile)",
        "a table changes without asking any process, and nothing is compiled",
        "reductions of erts_code_purger, and CPU per change, under the same load",
    ))
}

/// Drafts a finding about searches for modules, which mostly find nothing.
fn searched(period: &Period, server: SystemProcess<'_>, busy: f64, all: f64, severity: f64) -> Draft {
    let process = server.process;
    let system = period.cores(&metrics::PROCESS_SYSTEM, "").ok();
    let embedded = is_embedded(period);
    let callers = callers(period);
    Draft::new(severity, format!("Code server busy in {:.0} % of samples: searches for modules", busy * 100.0))
        .detail("modules that are not loaded, or do not exist, are called repeatedly")
        .detail(callers.as_ref().map_or_else(String::new, |callers| format!("{callers} wait for it")))
        .about(process.subject())
        .costs(Cost::Waiting(view::mean_queue(process)))
        .evidence(
            Evidence::number("samples with a busy code server", busy, Unit::Ratio)
                .with_text("or with a busy erl_prim_loader, which reads files for it")
                .against_scale(SEARCHES.of(period)),
        )
        .evidence(Evidence::number(
            "share of reductions",
            process.reductions as f64 / all.max(1.0),
            Unit::Ratio,
        ))
        .evidence(Evidence::number("longest queue", process.queue_max as f64, Unit::Count))
        .because_some(system.map(|cores| {
            Evidence::number("CPU in the kernel", cores, Unit::Cores)
                .with_text("opening files that do not exist is part of it")
        }))
        .because_some(callers.map(|callers| Evidence::text("callers that wait for it", callers)))
        .but_if(
            embedded,
            "the node runs in embedded mode, which searches no directories: the cause is code:load_file or similar",
        )
        .counter_evidence("a node that just started loads its modules: check again in a minute")
        .remedy(remedy::of(
            period,
            "code.known_modules",
            "find the module (its callers are in error_handler or code_server:call; trace error_handler:undefined_function/3 for a second), \
             then remove the call, or check once at start and keep the result",
            "each call of a module that does not exist makes one process search all directories of the code path",
            "samples with a busy code_server, and CPU in the kernel, per request",
        ))
        .fix_if(!embedded && boots_release(period), || {
            remedy::of(
                period,
                "-mode",
                "-mode embedded: the boot script of this release then loads all of its modules at start",
                "modules that are not loaded are then not searched for",
                PROVE_SEARCH,
            )
        })
        // Without a boot script that names all modules, embedded mode does not load them, and the node does not even start.
        .fix_if(!embedded && !boots_release(period), || {
            remedy::of(
                period,
                "code.load_at_start",
                "call code:ensure_modules_loaded/1 for the application's modules at its start; no -mode embedded without a release, whose boot \
                 script names all modules",
                "loaded modules are not searched for",
                PROVE_SEARCH,
            )
        })
}

/// Whether the node was started with a boot script other than OTP's own, as releases are. RabbitMQ is not a release, even with its own
/// script.
fn boots_release(period: &Period) -> bool {
    const OTP_SCRIPTS: &[&str] =
        &["no_dot_erlang", "start", "start_all_example", "start_clean", "start_sasl"];
    let arguments = period.facts.list(facts::INIT_ARGS).unwrap_or_default();
    let boot = arguments.iter().rev().find_map(|argument| argument.strip_prefix("-boot "));
    let is_own = boot.is_some_and(|boot| {
        // Releases have a script `start` too, in their own directory.
        let name = boot.rsplit('/').next().unwrap_or(boot);
        !OTP_SCRIPTS.contains(&name) || boot.contains("/releases/")
    });
    is_own && watermark::version(period).is_none()
}

/// Whether the arguments select embedded mode. A release may run in embedded mode without such an argument.
fn is_embedded(period: &Period) -> bool {
    let arguments = period.facts.list(facts::INIT_ARGS).unwrap_or_default();
    arguments.iter().any(|argument| matches!(argument.as_str(), "-mode embedded" | "-embedded"))
}

/// Describes the processes in a call to the code server: the first, and how many more.
fn callers(period: &Period) -> Option<String> {
    let is_caller = |process: &&ProcessActivity| {
        stack::current_function_of(process).is_some_and(|place| {
            ["code_server:call", "error_handler:", "code:ensure_loaded"]
                .iter()
                .any(|start| place.starts_with(start))
        })
    };
    let mut all = period.processes.iter().filter(is_caller);
    let first = all.next()?;
    Some(match all.count() {
        0 => first.title(),
        more => format!("{} and {more} more", first.title()),
    })
}
