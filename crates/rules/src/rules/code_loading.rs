//! BT057: modules are searched for, loaded or purged while the node works.
//!
//! A call of a module that is not loaded asks the code server, and in interactive mode that looks through all folders of the code path; of
//! a module that does not exist it does so each time. And a module that is loaded anew has its old code purged, for which the code purger
//! asks every process, one after the other, whether it still runs it. Both processes are known by their names, and what they do tells
//! which of the two it is.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::own_effect;
use crate::signals::stack;
use crate::signals::watermark;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT057"),
    name: "code-loading",
    question: "Are modules searched for, loaded or purged while the node works?",
    confirm: "trace error_handler:undefined_function/3, code:ensure_loaded/1 and code:load_binary/3 for a second (dbg or recon_trace): the same modules again and again confirm it",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::PROCESS_COUNT, &metrics::PROCESS_USER],
    account: Account::CpuUsed,
    judge,
    thresholds: &[SEARCHES, PURGES],
    ..Rule::COMMON
};

const PROVE_SEARCH: &str = "looks in which code_server is at work, under the same load";

/// Share of the looks in which the code server, or who reads files for it, was at work.
const SEARCHES: Threshold = Threshold::new(
    "code-loading.search_share",
    "share of samples in which modules are searched for",
    Scale {
        notice: 0.10,
        warning: 0.30,
        critical: 0.90,
        source: "judgement: a node that has started loads nothing; above 90 % all who call the module wait for each other",
    },
);

/// Looks below which that says little: a node that was started a moment ago loads its modules.
const LEAST_LOOKS: u32 = 3;

/// Of the CPU that the VM uses, what purging modules takes.
const PURGES: Threshold = Threshold::new(
    "code-loading.purge_cpu_share",
    "purging modules, share of the CPU that the VM uses",
    Scale { notice: 0.03, warning: 0.10, critical: 0.60, source: "judgement, as of persistent-term-churn" },
);

/// Reductions of the purger for each process that it asks, from that release on (measured: lab code-reloading).
const PER_CHECK_REDUCTIONS: [(u32, f64); 2] = [(21, 20.0), (27, 36.0)];

/// What asking a process costs, with its turn on a scheduler, in seconds: half of what it takes to ask it and to search it for literals
/// (4.0 to 5.5 µs with 1,000 words, OTP 23, 25 and 29). The other half is persistent-term-churn's.
const CHECK_SECONDS: f64 = 2.5e-6;

/// Below this nobody would win anything by a change.
const WORTH_CORES: f64 = 0.01;

const CODE_SERVER: &str = "code_server";
const FILE_LOADER: &str = "erl_prim_loader";
const PURGER: &str = "erts_code_purger";

/// What one of these processes did.
#[derive(Clone, Copy)]
struct Seen<'p> {
    process: &'p ProcessUse,
    /// Share of all looks in which it was found at work. In others it was none of those that stand out.
    busy: f64,
}

impl<'p> Seen<'p> {
    fn find(period: &'p Period, name: &str) -> Option<Seen<'p>> {
        let process = period.process_named(name)?;
        Some(Seen { process, busy: f64::from(process.runnable) / f64::from(period.vm_ticks.max(1)) })
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let all = view::all_reductions(period)?;
    let purges = Purges::of(period)?;
    let server = Seen::find(period, CODE_SERVER);
    if let Some((purges, severity)) = purges.as_ref().and_then(|purges| {
        Some((purges, PURGES.of(period).severity(purges.share).filter(|_| purges.cores >= WORTH_CORES)?))
    }) {
        return Ok(Judgement::found(reloaded(period, purges, server, severity)));
    }
    // Before 27 the code server has another process read the files.
    let searchers = [server, Seen::find(period, FILE_LOADER)];
    let busiest = searchers.into_iter().flatten().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let found = busiest.filter(|busiest| busiest.process.runnable >= LEAST_LOOKS);
    if let Some((found, severity)) =
        found.and_then(|found| Some((found, SEARCHES.of(period).severity(found.busy)?)))
    {
        return Ok(Judgement::found(searched(period, server.unwrap_or(found), found.busy, all, severity)));
    }
    Ok(Judgement::Healthy(match busiest {
        Some(busiest) => {
            format!("{} is at work in {:.0} % of the looks", busiest.process.title(), busiest.busy * 100.0)
        }
        None => "neither the code server nor the code purger is among the busy processes".to_owned(),
    }))
}

/// What the code purger did.
struct Purges<'p> {
    purger: Seen<'p>,
    /// Modules a second, as if all processes had been asked for each.
    per_s: f64,
    processes: f64,
    /// In cores, and of what the VM uses.
    cores: f64,
    share: f64,
}

impl<'p> Purges<'p> {
    /// `None` if the purger is none of the processes that stand out.
    fn of(period: &'p Period) -> Result<Option<Purges<'p>>, Missing> {
        let processes = period.stat(&metrics::PROCESS_COUNT, "")?.mean().max(1.0);
        let used = view::process_cores(period)?;
        let Some(purger) = Seen::find(period, PURGER) else { return Ok(None) };
        let release = period.facts.otp_release().unwrap_or(0);
        let (_, per_check) = PER_CHECK_REDUCTIONS
            .into_iter()
            .rfind(|(since, _)| release >= *since)
            .unwrap_or(PER_CHECK_REDUCTIONS[0]);
        let own = own_effect::purge_reductions(processes, per_check);
        let reductions = (purger.process.reductions as f64 - own).max(0.0);
        let checks = reductions / period.seconds().max(1.0) / per_check;
        let cores = (checks * CHECK_SECONDS).min(used);
        let share = if used > 0.0 { cores / used } else { 0.0 };
        Ok(Some(Purges { purger, per_s: checks / processes, processes, cores, share }))
    }
}

/// Modules come and go.
fn reloaded(period: &Period, purges: &Purges<'_>, server: Option<Seen<'_>>, severity: f64) -> Draft {
    let Purges { purger, per_s, processes, cores, share } = purges;
    Draft::new(
        severity,
        format!(
            "about {per_s:.1} times a second a module is loaded in the place of another one, and all {processes:.0} processes are asked \
             whether they still run the old one"
        ),
    )
    .about(purger.process.subject())
    .costs(Cost::CpuCores(*cores))
    .because(Evidence::number("modules purged", *per_s, Unit::PerSecond).with_text("by the purger's reductions"))
    .because(Evidence::number("CPU that asking takes, of what the VM uses", *share, Unit::Ratio).against_scale(PURGES.of(period)))
    .because(Evidence::number("which is", *cores, Unit::Cores))
    .because(Evidence::number("processes", *processes, Unit::Count))
    .because_some(server.map(|server| {
        Evidence::number("looks in which the code server was at work", server.busy, Unit::Ratio)
    }))
    .but("compiling takes more than that, where modules are compiled, too: it is done by those who load them")
    .but("an upgrade of the running node looks the same while it lasts")
    .fix(remedy::of(
        period,
        "code.no_code_at_run_time",
        "what changes goes into ETS (read_concurrency), what hardly ever changes into persistent_term: no module is compiled or loaded \
         as a store (mochiglobal, FastGlobal, dynamic_compile)",
        "a table is changed without asking any process, and nothing has to be compiled",
        "reductions of erts_code_purger, and CPU per change, under the same load",
    ))
}

/// Modules are looked for, mostly in vain.
fn searched(period: &Period, server: Seen<'_>, busy: f64, all: f64, severity: f64) -> Draft {
    let process = server.process;
    let system = period.cores(&metrics::PROCESS_SYSTEM, "").ok();
    let embedded = is_embedded(period);
    Draft::new(
        severity,
        format!(
            "the code server is at work in {:.0} % of the looks: modules that are not loaded, or do not exist, are called or asked for \
             again and again",
            busy * 100.0
        ),
    )
    .about(process.subject())
    .costs(Cost::Waiting(view::mean_queue(process)))
    .because(
        Evidence::number("looks in which it, or who reads files for it, was at work", busy, Unit::Ratio)
            .against_scale(SEARCHES.of(period)),
    )
    .because(Evidence::number("its share of all reductions", process.reductions as f64 / all.max(1.0), Unit::Ratio))
    .because(Evidence::number("requests in its queue, most", process.queue_max as f64, Unit::Count))
    .because_some(system.map(|cores| Evidence::number("CPU in the kernel", cores, Unit::Cores).with_text("files that are opened in vain are part of it")))
    .because_some(callers(period).map(|callers| Evidence::text("seen waiting for it", callers)))
    .but_if(embedded, "the node runs in embedded mode: no folder is looked through, so it is code:load_file or the like that keeps it busy")
    .but("a node that was started a moment ago loads its modules: look again a minute later")
    .fix(remedy::of(
        period,
        "code.known_modules",
        "find the module (its callers stand in error_handler or code_server:call; trace error_handler:undefined_function/3 for a second), \
         and take the call away, or ask once at start whether it is there and keep the answer",
        "each call of a module that does not exist is a look through all folders of the code path, by one process",
        "looks in which code_server is at work, and CPU in the kernel, per request",
    ))
    .fix_if(!embedded && boots_release(period), || {
        remedy::of(
            period,
            "-mode",
            "-mode embedded: this release's boot script then loads all of its modules at start",
            "what is not loaded then is looked for in no folder",
            PROVE_SEARCH,
        )
    })
    // Where the boot script does not name all modules, embedded mode does not load them, and the node does not even start.
    .fix_if(!embedded && !boots_release(period), || {
        remedy::of(
            period,
            "code.load_at_start",
            "modules that are there and not loaded yet: code:ensure_modules_loaded/1 for those of the application, at its start. No -mode \
             embedded without a release, whose boot script names all modules",
            "what is loaded is looked for in no folder",
            PROVE_SEARCH,
        )
    })
}

/// True where it was started with a boot script that is not OTP's own, as a release is. RabbitMQ is none, also where its script is its own.
fn boots_release(period: &Period) -> bool {
    const OTPS: &[&str] = &["no_dot_erlang", "start", "start_all_example", "start_clean", "start_sasl"];
    let arguments = period.facts.list(facts::INIT_ARGS).unwrap_or_default();
    let boot = arguments.iter().rev().find_map(|argument| argument.strip_prefix("-boot "));
    let is_own = boot.is_some_and(|boot| {
        // Releases call theirs `start`, too, in a folder of their own.
        let name = boot.rsplit('/').next().unwrap_or(boot);
        !OTPS.contains(&name) || boot.contains("/releases/")
    });
    is_own && watermark::version(period).is_none()
}

/// True where the node was told so; a release may be that without a word of it.
fn is_embedded(period: &Period) -> bool {
    let arguments = period.facts.list(facts::INIT_ARGS).unwrap_or_default();
    arguments.iter().any(|argument| matches!(argument.as_str(), "-mode embedded" | "-embedded"))
}

/// Processes that stand in a call of the code server: the first of them, and how many.
fn callers(period: &Period) -> Option<String> {
    let stands = |process: &&ProcessUse| {
        stack::of(process).is_some_and(|place| {
            ["code_server:call", "error_handler:", "code:ensure_loaded"]
                .iter()
                .any(|start| place.starts_with(start))
        })
    };
    let mut all = period.processes.iter().filter(stands);
    let first = all.next()?;
    Some(match all.count() {
        0 => first.title(),
        more => format!("{} and {more} more", first.title()),
    })
}
