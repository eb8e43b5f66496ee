//! BT073: the function that most of the CPU time goes into.
//!
//! Whether that is useful work, only its author knows: it is what all else that uses the CPU is to be read by, and a cause where the CPU does
//! not suffice, or where its garbage is what is collected.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Missing, Period, Signal, Subject, Unit, Use, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::counts::listed;
use crate::signals::hot_code::{self, HotCode, Part, What};
use crate::signals::kinds;
use crate::signals::never_waiting::never_waiting;
use crate::signals::stack;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT073"),
    name: "hot-code",
    question: "Which function does most of the CPU time go into?",
    confirm: "a profile of one request on a test node (tprof, eprof) or of the host (perf, with +JPperf true): this function must have about this share",
    needs: &[&metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    ..Rule::COMMON
};

/// Less than this of what the node may use is nothing to speak of, unless it is a core of its own (judgement).
const WORTH_SHARE: f64 = 0.15;

/// As much of one core: what one process can use (judgement).
const WORTH_CORES: f64 = 0.7;

/// Less than this is nothing to speak of on any node, in cores (judgement).
const WORTH_AT_LEAST: f64 = 0.1;

/// From this share of the time on in which the schedulers wait for a CPU, what the VM may use is what it got and waited for (judgement, as
/// of cpu-starved).
const STARVED: f64 = 0.15;

/// Of those that run it, the ones with a smaller share of the samples count for nothing (judgement).
const WORTH_LOOKS: f64 = 0.1;

/// From this share of its samples on, what is known of them is what the CPU time goes into (judgement).
const NEARLY_ALL: f64 = 0.7;

/// Kinds of processes, functions and modules that are named, and processes that never wait.
const MAX_KINDS: usize = 3;
const MAX_PROCESSES: usize = 5;
const MAX_FOREMOST: usize = 5;

/// The CPU that the schedulers wanted, where they often had to wait for it.
fn contended(period: &Period) -> Option<f64> {
    let of = |metric| view::thread_cores(period, metric, kind::SCHEDULERS).ok();
    let (ran, waited) = (of(&metrics::THREAD_CPU)?, of(&metrics::THREAD_WAIT)?);
    (waited >= STARVED * (ran + waited)).then_some(ran + waited)
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity =
        view::capacity(period).map(|capacity| capacity.cores).or_else(|_| view::schedulers_online(period))?;
    let wanted = contended(period).map_or(capacity, |wanted| wanted.min(capacity));
    let worth = (WORTH_SHARE * wanted).clamp(WORTH_AT_LEAST, WORTH_CORES);
    let used = hot_code::cores(period)?;
    if used < worth {
        return Ok(Judgement::Healthy(format!(
            "Erlang code and its garbage took {used:.2} of {capacity:.2} cores"
        )));
    }
    // A node that is busy, and no process that ran: an older recording.
    if period.work_samples.is_empty() {
        return Err(Missing {
            what: "where any processes run".to_owned(),
            why: "it was not recorded".to_owned(),
            next: "record the node with this version of beamtune: beamtune record TARGET".to_owned(),
        });
    }
    let Some(hot) = HotCode::of(period)? else {
        return Ok(Judgement::Healthy("no function had most of the samples of running processes".to_owned()));
    };
    let of = format!("{} of {} samples of running processes", hot.samples.0, hot.samples.1);
    let name = match &hot.what {
        What::Function(name) | What::Module(name) | What::Kind(name) => name.clone(),
        What::Library(name) => (*name).to_owned(),
    };
    if hot.cores < worth {
        return Ok(Judgement::Healthy(format!("{name} took {:.2} of {capacity:.2} cores ({of})", hot.cores)));
    }
    let unnamed = match &hot.what {
        What::Kind(kind) if kinds::says_nothing(kind) => match hot_code::unnamed(period, kind, &hot) {
            Some(unnamed) => Some(unnamed),
            None => {
                return Ok(Judgement::Healthy(format!(
                    "no function or known process took most of it: {of} have no name"
                )));
            }
        },
        _ => None,
    };
    let into = match (&hot.what, &unnamed) {
        (_, Some(unnamed)) => unnamed.words.clone(),
        (What::Module(module), _) => format!("functions of {module}"),
        (What::Kind(kind), _) => kinds::in_words(kind),
        (What::Library(_), _) => match hot.library_caller() {
            Some(caller) => format!("{name}, called by {caller}"),
            None => name.clone(),
        },
        (What::Function(_), _) => name.clone(),
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
    let percent = |looks: i64, of: i64| format!("{:.0} %", 100.0 * looks as f64 / of.max(1) as f64);
    let (within, all) = hot.samples;
    let summary = match &hot.known {
        Some(part) if is_nearly_all(part, &hot) => format!(
            "{} of the CPU time of processes goes into {}, {} {into}",
            percent(part.samples, all),
            part.what,
            if matches!(hot.what, What::Kind(_)) { "by" } else { "called by" }
        ),
        Some(part) => format!(
            "{} of the CPU time of processes goes into {into}, {} of it into {}",
            percent(within, all),
            percent(part.samples, within),
            part.what
        ),
        None => format!("{} of the CPU time of processes goes into {into}", percent(within, all)),
    };
    let summary = match &endless[..] {
        [] => summary,
        [one] => format!("{summary}: {} runs it and never waits", one.title()),
        all => format!("{summary}: {} processes run it and never wait", all.len()),
    };
    let subject = match (&hot.what, &unnamed) {
        (_, Some(unnamed)) => unnamed.subject.clone(),
        (What::Function(name) | What::Module(name), _) => Some(Subject::Function { name: name.clone() }),
        (What::Kind(name), _) => Some(Subject::kind(name)),
        (What::Library(_), _) => None,
    };
    let often = |looks: i64| looks as f64 >= WORTH_LOOKS * hot.samples.0 as f64;
    let run_by: Vec<&str> = hot
        .kinds
        .iter()
        .take(MAX_KINDS)
        .filter(|(_, looks)| often(*looks))
        .map(|(kind, _)| kind.as_str())
        .collect();
    // A process may be known by its name here, and by what it was started with elsewhere.
    let started = run_by.iter().filter(|_| run_by.len() > 1).filter_map(|kind| {
        let mut rows = period.processes.iter().filter_map(|process| process.row.as_ref());
        let row = rows.find(|row| row.name.as_deref() == Some(kind))?;
        row.initial_call.as_deref().map(|call| Signal::RunBy(Subject::kind(call)))
    });
    let started: Vec<Signal> = started.collect();
    // Nothing known says that it costs too much.
    let is_own_work = hot.known.is_none() && hot.library.is_none();
    let draft = Draft::new(MINOR, summary)
        .about(subject)
        .costs(Cost::CpuCores(hot.cores))
        .part(Use::Code)
        .signals(run_by.iter().map(|kind| Signal::RunBy(Subject::kind(*kind))))
        .signals(started)
        .signals(hot.allocates().then_some(Signal::Allocates))
        .signals(is_endless.then_some(Signal::NeverWaits))
        .signals(is_own_work.then_some(Signal::WhereOnly))
        .guess_if(is_own_work)
        .because(
            Evidence::number("samples of running processes within it", hot.share(), Unit::Ratio)
                .with_text(of),
        )
        .because_some(hot.at.as_ref().map(|(at, looks)| {
            Evidence::text("most of them at", format!("{at}, {looks} of {}", hot.samples.0))
        }))
        .because_some(
            (!hot.callers.is_empty()).then(|| Evidence::text("called by", hot.callers.join(", by "))),
        )
        .because_some(foremost(&hot))
        .because_some(kinds(&hot).filter(|_| unnamed.is_none()))
        .because_some(hot.known.as_ref().map(|part| {
            Evidence::text("of these in", format!("{}, {} of {}", part.what, part.samples, hot.samples.0))
        }))
        .because_some(hot.library.filter(|_| hot.known.is_none()).map(|(library, looks)| {
            Evidence::number(
                format!("of all samples within {}", library.name),
                looks as f64 / hot.samples.1 as f64,
                Unit::Ratio,
            )
        }))
        .because_some((hot.collections.1 > 0).then(|| {
            Evidence::number(
                "of the samples in garbage collection",
                hot.collections.0 as f64 / hot.collections.1 as f64,
                Unit::Ratio,
            )
            .with_text(format!("{} of {}", hot.collections.0, hot.collections.1))
        }))
        .because_some(is_endless.then(|| {
            let titles: Vec<String> =
                endless.iter().take(MAX_PROCESSES).map(|process| process.title()).collect();
            Evidence::number("processes that never waited and had no messages", endless.len() as f64, Unit::Count)
                .with_text(format!("in {}: {}", view::duration_text(period.seconds()), titles.join(", ")))
        }))
        .but(match is_endless {
            true => "a batch job looks the same as a loop that does not end: whether it should still run, its author knows",
            false => "useful work looks the same: whether it is too much, its author knows",
        })
        .fix_if(is_endless, || {
            remedy::of(
                period,
                "code.end_of_loop",
                &match &hot.what {
                    What::Function(name) => format!("check what ends the loop in {name}: process_info(Pid, [current_stacktrace, reductions]) twice"),
                    _ => "check what ends their loop: process_info(Pid, [current_stacktrace, reductions]) twice".to_owned(),
                },
                "it never waited and took no message in all samples; a loop without an end uses one scheduler for ever",
                "reductions of the process: a job ends, a loop does not",
            )
        });
    let draft = advice(&hot, &name).into_iter().fold(draft, |draft, (change, source, is_logging)| {
        let prove = "CPU per request under the same load";
        let why = |why: &str| source.map_or_else(|| why.to_owned(), |source| format!("{why} ({source})"));
        draft.fix(match is_logging {
            true => {
                let why = why("what is below the level is dropped before its text is made");
                remedy::of(period, "kernel.logger_level", &change, &why, prove)
            }
            false => {
                let why = why("it is where the CPU time goes; no flag changes that");
                remedy::of(period, "code.cheaper_function", &change, &why, prove)
            }
        })
    });
    let draft = match is_endless {
        true => draft.confirmed_by(
            "process_info(Pid, [current_stacktrace, reductions]) twice, a minute apart: a loop without an end is in the same function, and its \
             reductions grow",
        ),
        false => draft,
    };
    Ok(Judgement::found(draft))
}

/// Whether what is known of it is nearly all of it.
fn is_nearly_all(part: &Part, hot: &HotCode) -> bool {
    part.samples as f64 >= NEARLY_ALL * hot.samples.0 as f64
}

/// What to do, its source, and whether it is about logging: instead of what is known, and unless that is nearly all, of the rest.
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
            What::Kind(_) | What::Library(_) => "profile what these processes do for each message".to_owned(),
        };
        advice.push((change, None, false));
    }
    advice
}

/// The functions or modules that the samples are in.
fn foremost(hot: &HotCode) -> Option<Evidence> {
    let what = match hot.what {
        What::Module(_) => "its functions, with samples",
        What::Library(_) => "called by, with samples",
        _ => "modules on their stacks, with samples",
    };
    (!hot.foremost.is_empty()).then(|| Evidence::text(what, listed(&hot.foremost, MAX_FOREMOST)))
}

/// What runs it.
fn kinds(hot: &HotCode) -> Option<Evidence> {
    let what = "processes that ran it, with samples";
    (!hot.kinds.is_empty()).then(|| Evidence::text(what, listed(&hot.kinds, MAX_KINDS)))
}
