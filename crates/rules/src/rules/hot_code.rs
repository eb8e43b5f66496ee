//! BT073: the function that takes most of the CPU time.
//!
//! Only the author of that function knows whether it is useful work. The finding explains other findings if the CPU does not suffice, or if
//! most of the garbage is produced there.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Missing, Period, Signal, Subject, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::counts::listed;
use crate::signals::hot_code::{self, HotCode, Part, What};
use crate::signals::kinds;
use crate::signals::never_waiting::never_waiting;
use crate::signals::stack;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT073"),
    name: "hot-code",
    question: "Which function takes most of the CPU time?",
    confirm: "run beamtune profile TARGET --for 30s under the same load: this function should have about the same share",
    // Or a CPU profile.
    needs: &[&metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    explains_as_notice: true,
    judge,
    ..Rule::COMMON
};

/// Code with a smaller share of the CPU that the node may use is not reported, unless it uses at least [`MAX_PASSED_CORES`] (judgement).
const MIN_SHARE: f64 = 0.15;

/// CPU use that is always reported: about what one process can use (judgement).
const MAX_PASSED_CORES: f64 = 0.7;

/// Minimum CPU use that is reported on any node, in cores (judgement).
const MIN_CORES: f64 = 0.1;

/// If run-queue delay has at least this share, the CPU that schedulers used and waited for is taken as the CPU of the node (judgement, as
/// in cpu-starved).
const STARVED_SHARE: f64 = 0.15;

/// Kinds of processes with a smaller share of the samples are not named (judgement).
const MIN_KIND_SHARE: f64 = 0.1;

/// A known function or library with at least this share of the samples is what takes the CPU time (judgement).
const NEARLY_ALL: f64 = 0.7;

/// Maximum length of a title that names the known function or library, in characters.
const MAX_TITLE: usize = 72;

/// Maximum number of kinds of processes, never-waiting processes, and functions or modules that are named.
const MAX_KINDS: usize = 3;
const MAX_PROCESSES: usize = 5;
const MAX_FOREMOST: usize = 5;

/// CPU that the schedulers used and waited for, in cores, if they waited often.
fn contended(period: &Period) -> Option<f64> {
    let of = |metric| view::thread_cores(period, metric, kind::SCHEDULERS).ok();
    let (ran, waited) = (of(&metrics::THREAD_CPU)?, of(&metrics::THREAD_WAIT)?);
    (waited >= STARVED_SHARE * (ran + waited)).then_some(ran + waited)
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)
        .map(|capacity| capacity.cores)
        .or_else(|_| view::schedulers_online(period))
        .or_else(|_| period.stat(&metrics::CPUS_ALLOWED, "").map(|allowed| allowed.mean()))?;
    let wanted = contended(period).map_or(capacity, |wanted| wanted.min(capacity));
    let min_cores = (MIN_SHARE * wanted).clamp(MIN_CORES, MAX_PASSED_CORES);
    let used = hot_code::cores(period)?;
    if used < min_cores {
        return Ok(Judgement::Healthy(format!("Erlang code and GC: {used:.2} of {capacity:.2} cores")));
    }
    // A busy node without samples of running processes comes from an older recording.
    if period.work_samples.is_empty() && hot_code::profiled(period).is_none() {
        return Err(Missing {
            what: "stacks of running processes".to_owned(),
            why: "not recorded".to_owned(),
            next_step: "record the node with this version: beamtune record TARGET".to_owned(),
        });
    }
    let Some(hot) = HotCode::of(period)? else {
        return Ok(Judgement::Healthy("no function takes most of the CPU time".to_owned()));
    };
    let source = if hot.is_profiled { "profile samples" } else { "samples of running processes" };
    let of = format!("{} of {} {source}", hot.samples.0, hot.samples.1);
    let measured = if hot.is_profiled { "of Erlang CPU time is" } else { "of stack samples are" };
    let name = match &hot.what {
        What::Function(name) | What::Module(name) | What::Kind(name) => name.clone(),
        What::Library(name) => (*name).to_owned(),
    };
    if hot.cores < min_cores {
        return Ok(Judgement::Healthy(format!("{name}: {:.2} of {capacity:.2} cores, {of}", hot.cores)));
    }
    let unnamed = match &hot.what {
        What::Kind(kind) if kinds::says_nothing(kind) => match hot_code::unnamed(period, kind, &hot) {
            Some(unnamed) => Some(unnamed),
            None => {
                return Ok(Judgement::Healthy(format!(
                    "no function or known process takes most of the CPU time: {of} have no name"
                )));
            }
        },
        _ => None,
    };
    let into = match (&hot.what, &unnamed) {
        (_, Some(unnamed)) => unnamed.words.clone(),
        (What::Module(module), _) => format!("functions of {module}"),
        (What::Kind(kind), _) => text::processes(kind),
        (What::Library(_) | What::Function(_), _) => name.clone(),
    };
    let endless = never_waiting(period, |process, stack| match &hot.what {
        What::Function(name) => stack.iter().any(|function| stack::without_fun(function) == *name),
        What::Kind(kind) => process.row.as_ref().is_some_and(|row| {
            [&row.name, &row.initial_call].into_iter().any(|one| one.as_ref() == Some(kind))
        }),
        What::Module(name) => stack.iter().any(|function| hot_code::module_of(function) == name),
        What::Library(_) => false,
    });
    let is_endless = !endless.is_empty();
    let percent = |samples: i64, of: i64| format!("{:.0} %", 100.0 * samples as f64 / of.max(1) as f64);
    let (within, all) = hot.samples;
    let with_known =
        hot.known.as_ref().filter(|part| endless.is_empty() && is_nearly_all(part, &hot)).map(|part| {
            let by = if matches!(hot.what, What::Kind(_)) { "by" } else { "called by" };
            format!("{} {measured} in {}, {by} {into}", percent(part.samples, all), part.what)
        });
    let with_known = with_known.filter(|title| title.chars().count() <= MAX_TITLE);
    let is_in_title = with_known.is_some();
    let known = hot.known.as_ref().filter(|_| !is_in_title);
    let known = known.map(|part| format!("{} of it in {}", percent(part.samples, within), part.what));
    let share = percent(within, all);
    let title = with_known.unwrap_or_else(|| match &endless[..] {
        [] => format!("{share} {measured} in {into}"),
        [one] => format!("{} is always runnable, in {into} ({share} of samples)", text::name(&one.subject())),
        all => format!("{} processes are always runnable, in {into} ({share} of samples)", all.len()),
    });
    let titles: Vec<String> = endless.iter().take(MAX_PROCESSES).map(|process| process.title()).collect();
    let titles = titles.join(", ");
    let caller = match &hot.what {
        What::Library(_) => hot.library_caller(),
        _ => hot.callers.first().map(String::as_str).filter(|_| !is_in_title),
    };
    let subject = match (&hot.what, &unnamed) {
        (_, Some(unnamed)) => unnamed.subject.clone(),
        (What::Function(name) | What::Module(name), _) => Some(Subject::Function { name: name.clone() }),
        (What::Kind(name), _) => Some(Subject::kind(name)),
        (What::Library(_), _) => None,
    };
    let often = |samples: i64| samples as f64 >= MIN_KIND_SHARE * hot.samples.0 as f64;
    let run_by: Vec<&str> = hot
        .kinds
        .iter()
        .take(MAX_KINDS)
        .filter(|(_, samples)| often(*samples))
        .map(|(kind, _)| kind.as_str())
        .collect();
    // Other rules may know such a process by its initial call.
    let started = run_by.iter().filter(|_| run_by.len() > 1).filter_map(|kind| {
        let mut rows = period.processes.iter().filter_map(|process| process.row.as_ref());
        let row = rows.find(|row| row.name.as_deref() == Some(kind))?;
        row.initial_call.as_deref().map(|call| Signal::RunBy(Subject::kind(call)))
    });
    let started: Vec<Signal> = started.collect();
    // Nothing indicates that this code costs too much.
    let is_own_work = hot.known.is_none() && hot.library.is_none();
    let draft = Draft::new(MINOR, title)
        .detail(&titles)
        .detail(known.unwrap_or_default())
        .detail(caller.map_or(String::new(), |caller| format!("called by {caller}")))
        .detail(format!("{:.2} of {capacity:.2} cores, GC included", hot.cores))
        .about(subject)
        .costs(Cost::CpuCores(hot.cores))
        .part(CpuUse::Code)
        .signals(run_by.iter().map(|kind| Signal::RunBy(Subject::kind(*kind))))
        .signals(started)
        .signals(hot.allocates().then_some(Signal::Allocates))
        .signals(is_endless.then_some(Signal::NeverWaits))
        .signals(is_own_work.then_some(Signal::WhereOnly))
        .inferred_if(!hot.is_profiled)
        .guess_if(is_own_work)
        .evidence(Evidence::number("share of samples", hot.share(), Unit::Ratio).with_text(of))
        .because_some(hot.at.as_ref().map(|(at, samples)| {
            Evidence::text("current function", format!("{at}, {samples} of {}", hot.samples.0))
        }))
        .because_some(
            (!hot.callers.is_empty()).then(|| Evidence::text("called by", hot.callers.join(", "))),
        )
        .because_some(foremost(&hot))
        .because_some(kinds(&hot).filter(|_| unnamed.is_none()))
        .because_some(hot.known.as_ref().map(|part| {
            let samples = format!("{}, {} of {}", part.what, part.samples, hot.samples.0);
            Evidence::text("known function or library", samples)
        }))
        .because_some(hot.library.filter(|_| hot.known.is_none()).map(|(library, samples)| {
            let share = samples as f64 / hot.samples.1 as f64;
            Evidence::number(format!("samples in {}", library.name), share, Unit::Ratio)
        }))
        .because_some((hot.collections.1 > 0).then(|| {
            let share = hot.collections.0 as f64 / hot.collections.1 as f64;
            Evidence::number("share of GC samples", share, Unit::Ratio)
                .with_text(format!("{} of {}", hot.collections.0, hot.collections.1))
        }))
        .because_some(is_endless.then(|| {
            Evidence::number("processes that never waited", endless.len() as f64, Unit::Count)
                .with_text(format!("in {}: {titles}", view::duration_text(period.seconds())))
        }))
        .counter_evidence(match is_endless {
            true => "a batch job looks the same as an endless loop: only its author knows whether it should still run",
            false => "useful work looks the same: only its author knows whether it is too much",
        })
        .fix_if(is_endless, || {
            let ends = match &hot.what {
                What::Function(name) => format!("the loop in {name}"),
                _ => "their loop".to_owned(),
            };
            remedy::of(
                period,
                "code.end_of_loop",
                &format!("check what ends {ends}: process_info(Pid, [current_stacktrace, reductions]) twice"),
                "it never waited and received no message in any sample; an endless loop occupies one scheduler forever",
                "reductions of the process: a job ends, a loop does not",
            )
        });
    let draft = advice(&hot, &name).into_iter().fold(draft, |draft, (change, source, is_logging)| {
        let prove = "CPU per request under the same load";
        let why = |why: &str| source.map_or_else(|| why.to_owned(), |source| format!("{why} ({source})"));
        draft.remedy(match is_logging {
            true => {
                let why = why("events below the level are dropped before they are formatted");
                remedy::of(period, "kernel.logger_level", &change, &why, prove)
            }
            false => {
                let why = why("this code takes most of the CPU time, and no flag changes that");
                remedy::of(period, "code.cheaper_function", &change, &why, prove)
            }
        })
    });
    let draft = match is_endless {
        true => draft.confirmed_by(
            "call process_info(Pid, [current_stacktrace, reductions]) twice, a minute apart: an endless loop is in the same function, with more \
             reductions",
        ),
        false => draft,
    };
    Ok(Judgement::found(draft))
}

/// Whether a known function or library has nearly all samples of this code.
fn is_nearly_all(part: &Part, hot: &HotCode) -> bool {
    part.samples as f64 >= NEARLY_ALL * hot.samples.0 as f64
}

/// Advice, its source, and whether it is about logging: for the known function or library, and for the remaining code unless that is
/// little.
fn advice(hot: &HotCode, name: &str) -> Vec<(String, Option<&'static str>, bool)> {
    let mut advice: Vec<(String, Option<&'static str>, bool)> = Vec::new();
    if let Some(part) = &hot.known {
        advice.extend(part.instead.iter().map(|one| (one.change.to_owned(), one.source, one.is_logging)));
    } else if let Some((library, _)) = hot.library {
        advice.push((library.instead.clone(), None, false));
    }
    let is_known = match &hot.known {
        Some(part) => is_nearly_all(part, hot),
        None => hot.library.is_some(),
    };
    if !is_known {
        let change = match &hot.what {
            What::Function(_) => format!("make {name} cheaper, or call it less often: profile it first"),
            What::Module(_) => {
                format!("make functions of {name} cheaper, or call them less often: profile them first")
            }
            What::Kind(_) | What::Library(_) => {
                "profile the work of these processes for each message".to_owned()
            }
        };
        advice.push((change, None, false));
    }
    advice
}

/// The functions, callers or modules with the most samples.
fn foremost(hot: &HotCode) -> Option<Evidence> {
    let what = match hot.what {
        What::Module(_) => "functions (samples)",
        What::Library(_) => "callers (samples)",
        _ => "modules on call stacks (samples)",
    };
    (!hot.foremost.is_empty()).then(|| Evidence::text(what, listed(&hot.foremost, MAX_FOREMOST)))
}

/// The kinds of processes that run the code.
fn kinds(hot: &HotCode) -> Option<Evidence> {
    let what = "processes (samples)";
    (!hot.kinds.is_empty()).then(|| Evidence::text(what, listed(&hot.kinds, MAX_KINDS)))
}
