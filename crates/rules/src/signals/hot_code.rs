//! Which function most of the CPU time of processes goes into, by samples of where they ran.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use beamtune_model::rows::CHILD_OF;
use beamtune_model::{Missing, Period, Use, WorkSample};
use serde::Deserialize;

use crate::account;
use crate::signals::counts::largest_first;
use crate::signals::{data, new_processes, stack};
use crate::view::{self, kind};

/// Fewer samples say nothing of where the time goes (judgement: of ten alike in truth half, six of six or more are alike once in a thousand).
pub(crate) const MIN_SAMPLES: i64 = 8;

/// The same of samples of garbage collection (judgement).
pub(crate) const MIN_COLLECTED: i64 = 3;

/// A function within which less of the samples are is not where the time goes (judgement: more than half).
const MOST: f64 = 0.5;

/// From this share on it is nearly all (judgement).
const NEARLY_ALL: f64 = 0.7;

/// Of functions that call each other, the innermost one is meant that has at least this share of the samples of the outermost one
/// (judgement).
const AS_MUCH: f64 = 0.7;

/// Of the functions around it, so many are told.
const CALLERS: usize = 2;

/// What a function of OTP or Elixir that is often at the top of the call stack is to be replaced by.
pub(crate) fn instead(function: &str) -> Option<&'static str> {
    let is_known =
        |known: &&KnownFunction| known.beside.is_empty() && known.calling.is_empty() && known.is(function);
    FUNCTIONS.function.iter().find(is_known).map(|known| known.instead.as_str())
}

/// Processes of a kind, in words: what they were started with, or a name.
pub(crate) fn kind_words(kind: &str) -> String {
    match kind.strip_prefix(CHILD_OF) {
        Some(maker) => format!("the children of {maker}"),
        None if kind.contains(':') && kind.contains('/') => format!("the processes started with {kind}"),
        None => kind.to_owned(),
    }
}

/// `data/functions.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Functions {
    function: Vec<KnownFunction>,
    library: Vec<Library>,
}

/// A function of OTP or Elixir that is known to be expensive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownFunction {
    begins: Vec<String>,
    /// It has called one of these.
    #[serde(default)]
    calling: Vec<String>,
    /// One of these is on the stack of any process.
    #[serde(default)]
    beside: Vec<String>,
    /// What costs there, in words.
    pub what: String,
    pub instead: String,
    pub source: String,
}

impl KnownFunction {
    fn is(&self, function: &str) -> bool {
        self.begins.iter().any(|begin| function.starts_with(begin))
    }

    /// Whether it has called what it must have.
    fn calls(&self, called: &[&str]) -> bool {
        let is_meant =
            |function: &&str| self.calling.iter().any(|begin| function.starts_with(begin.as_str()));
        self.calling.is_empty() || called.iter().any(is_meant)
    }

    /// Whether what it needs beside it is at work on the node.
    fn fits(&self, period: &Period) -> bool {
        let stacks = || period.work_samples.iter().flat_map(|one| &one.stack);
        self.beside.is_empty()
            || stacks().any(|function| self.beside.iter().any(|begin| function.starts_with(begin)))
    }
}

/// A library, or a part of OTP, whose work is spread over many functions and processes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Library {
    modules: Vec<String>,
    pub name: String,
    pub instead: String,
}

/// For tests.
#[cfg(test)]
pub(crate) fn known_functions() -> &'static [KnownFunction] {
    &FUNCTIONS.function
}

static FUNCTIONS: LazyLock<Functions> =
    LazyLock::new(|| data("functions", include_str!("../../data/functions.toml")));

impl Library {
    fn is_of(&self, function: &str) -> bool {
        self.modules.iter().any(|modules| {
            let rest = function.strip_prefix(modules.as_str());
            rest.is_some_and(|rest| modules.ends_with(':') || rest.starts_with([':', '_', '.']))
        })
    }
}

/// True of a function of the program itself, and not of OTP, of Elixir or of a library that is known.
fn is_own(function: &str) -> bool {
    stack::is_of_program(function)
        && !FUNCTIONS.library.iter().any(|library| library.is_of(function))
        && !FUNCTIONS.function.iter().any(|known| known.is(function))
}

/// What most of the CPU time goes into.
#[derive(Debug)]
pub(crate) struct HotCode {
    /// The program's function within which most samples are, or a process if no function is.
    pub what: What,
    /// Samples within it, and all.
    pub samples: (i64, i64),
    /// Of all CPU time of processes, in cores, garbage collection included.
    pub cores: f64,
    /// The function of OTP or of the VM in which most of these samples are, and how many.
    pub at: Option<(String, i64)>,
    /// Functions that call it, from within to without.
    pub callers: Vec<String>,
    /// What those are that run it, with samples, most first.
    pub kinds: Vec<(String, i64)>,
    /// What is known of the functions that these samples are in, where most of them are in one such, and how many.
    pub known: Option<(&'static KnownFunction, i64)>,
    /// The library that most of all samples are within, and how many.
    pub library: Option<(&'static Library, i64)>,
    /// Of all samples of garbage collection, how many are within it.
    pub collections: (i64, i64),
}

/// What is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// `module:function/arity`.
    Function(String),
    /// Processes of this name, or started with this.
    Kind(String),
    /// A library that is known.
    Library(&'static str),
}

impl HotCode {
    /// The share of the samples.
    pub(crate) fn share(&self) -> f64 {
        self.samples.0 as f64 / self.samples.1.max(1) as f64
    }

    /// Whether most of the garbage that was being collected is its own; where that was hardly seen, whether it takes nearly all CPU time,
    /// and so that of memory, too.
    pub(crate) fn allocates(&self) -> bool {
        let (own, all) = self.collections;
        match all >= MIN_COLLECTED {
            true => own as f64 >= MOST * all as f64,
            false => self.share() >= NEARLY_ALL,
        }
    }

    /// `None` where nothing has most of the samples.
    pub(crate) fn of(period: &Period) -> Result<Option<HotCode>, Missing> {
        let cores = cores(period)?;
        let samples = samples(period);
        let all: i64 = samples.iter().map(|sample| sample.looks).sum();
        if all < MIN_SAMPLES {
            return Ok(None);
        }
        let within = |is_within: &dyn Fn(&Sample<'_>) -> bool| -> i64 {
            samples.iter().filter(|sample| is_within(sample)).map(|sample| sample.looks).sum()
        };
        let of_library = library(&samples).filter(|(_, looks)| *looks as f64 > MOST * all as f64);
        let what = match (hottest(&samples, all), of_library) {
            (Some(function), _) => What::Function(function),
            (None, Some((library, _))) => What::Library(&library.name),
            (None, None) => {
                let kinds = samples.iter().filter_map(|sample| Some((sample.kind?, sample.looks)));
                match largest_first(kinds).into_iter().next() {
                    Some((kind, looks)) if looks as f64 > MOST * all as f64 => What::Kind(kind.to_owned()),
                    _ => return Ok(None),
                }
            }
        };
        let is_within = |sample: &Sample<'_>| match &what {
            What::Function(function) => sample.functions.contains(function),
            What::Kind(kind) => sample.kind == Some(kind.as_str()),
            What::Library(_) => sample.library.is_some(),
        };
        let own: Vec<&Sample<'_>> = samples.iter().filter(|sample| is_within(sample)).collect();
        let count = within(&is_within);
        let at = own.iter().filter_map(|sample| Some((sample.at?, sample.looks)));
        let at =
            largest_first(at).into_iter().next().filter(|(_, looks)| *looks as f64 > MOST * count as f64);
        let kinds = largest_first(own.iter().filter_map(|sample| Some((sample.kind?, sample.looks))));
        let known =
            largest_first(own.iter().filter_map(|sample| Some((sample.known(period)?, sample.looks))));
        let known = known.into_iter().next().filter(|(_, looks)| *looks as f64 > MOST * count as f64);
        Ok(Some(HotCode {
            samples: (count, all),
            cores: cores * count as f64 / all as f64,
            at: at.map(|(at, looks)| (at.to_owned(), looks)),
            callers: callers(&own, &what, count),
            kinds: kinds.into_iter().map(|(kind, looks)| (kind.to_owned(), looks)).collect(),
            collections: (
                within(&|sample| sample.collects && is_within(sample)),
                within(&|sample| sample.collects),
            ),
            known: known.and_then(|(place, looks)| Some((FUNCTIONS.function.get(place)?, looks))),
            library: of_library,
            what,
        }))
    }
}

/// Processes that ran with one stack.
pub(crate) struct Sample<'a> {
    pub looks: i64,
    pub kind: Option<&'a str>,
    collects: bool,
    /// As it was recorded.
    pub stack: &'a [String],
    /// The innermost function, where that is none of the program's.
    at: Option<&'a str>,
    /// What the program's innermost function has called, the innermost first.
    called: Vec<&'a str>,
    /// The program's own, the innermost first, each once.
    pub functions: Vec<String>,
    library: Option<&'static Library>,
}

impl<'a> Sample<'a> {
    fn new(stack: &'a [String], looks: i64, kind: Option<&'a str>, collects: bool) -> Self {
        let known: Vec<&str> = stack::without_traps(stack).collect();
        let first = known.first().copied();
        let hibernates = first.is_some_and(|at| at.contains("hibernate"));
        // It was done before it answered: what it had run is not known.
        let is_done = first.is_some_and(stack::is_wait) && !hibernates;
        let mut functions: Vec<String> = Vec::new();
        for function in known.iter().filter(|function| !is_done && is_own(function)) {
            let function = stack::without_fun(function);
            if !functions.contains(&function) {
                functions.push(function);
            }
        }
        // What the program has called.
        let called: Vec<&str> = known.iter().copied().take_while(|function| !is_own(function)).collect();
        let at = if called.len() < known.len() { called.last() } else { called.first() };
        let at = at.copied().filter(|at| !is_done && (hibernates || !stack::is_loop(at)));
        // The innermost library: what a formatter of the log calls belongs to what it calls.
        let mut within = known.iter().copied().chain(kind);
        let library = within.find_map(|one| FUNCTIONS.library.iter().find(|library| library.is_of(one)));
        let library = library.filter(|_| !is_done);
        let called = if is_done { Vec::new() } else { called };
        Sample { looks, kind, collects, stack, at, called, functions, library }
    }

    /// What is known of the functions that it was in: the place in the data of the outermost one. What a library does belongs to that.
    fn known(&self, period: &Period) -> Option<usize> {
        let is_of_library = |function: &str| FUNCTIONS.library.iter().any(|library| library.is_of(function));
        for (place, function) in self.called.iter().enumerate().rev() {
            let inner = self.called.get(..place).unwrap_or_default();
            let is_meant =
                |known: &KnownFunction| known.is(function) && known.calls(inner) && known.fits(period);
            let known = FUNCTIONS.function.iter().position(is_meant);
            if known.is_some() || is_of_library(function) {
                return known;
            }
        }
        None
    }
}

/// Samples of any processes that ran.
pub(crate) fn samples(period: &Period) -> Vec<Sample<'_>> {
    // Who has just been woken has not run: where it stands is where it waited.
    let is_woken = |one: &&WorkSample| one.is_ready && one.stack.first().is_some_and(|at| stack::is_wait(at));
    let samples = period.work_samples.iter().filter(|one| !is_woken(one));
    let samples = samples.map(|one| Sample::new(&one.stack, one.looks, one.kind.as_deref(), one.collects));
    let mut samples: Vec<Sample<'_>> = samples.collect();
    add_ended(period, &mut samples);
    samples
}

/// Those that ended before they could be asked are taken to have done what others do that are new as they are.
fn add_ended(period: &Period, samples: &mut Vec<Sample<'_>>) {
    let is_ended =
        |sample: &Sample<'_>| sample.kind.is_none() && sample.functions.is_empty() && sample.at.is_none();
    let ended: i64 = samples.iter().filter(|sample| is_ended(sample)).map(|sample| sample.looks).sum();
    samples.retain(|sample| !is_ended(sample));
    let new: Vec<&str> = new_processes::rows(period).map(|row| row.kind.as_str()).collect();
    let is_new = |sample: &Sample<'_>| {
        sample.kind.is_some_and(|kind| new.contains(&kind)) && !sample.functions.is_empty()
    };
    let like: i64 = samples.iter().filter(|sample| is_new(sample)).map(|sample| sample.looks).sum();
    if like > 0 {
        for sample in samples.iter_mut().filter(|sample| is_new(sample)) {
            sample.looks += (ended as f64 * sample.looks as f64 / like as f64).round() as i64;
        }
    }
}

/// What code and its garbage took, in cores.
pub(crate) fn cores(period: &Period) -> Result<f64, Missing> {
    match account::account(period) {
        Ok(account) => {
            let of = |share: &&beamtune_model::Share| {
                matches!(share.what, Use::Code | Use::Collections | Use::DirtyCpu)
            };
            Ok(account.shares.iter().filter(of).map(|share| share.cores).sum())
        }
        // Without the host, the schedulers are what there is.
        Err(_) => Ok(view::activity(period, kind::SCHEDULER)?.cores()),
    }
}

/// The library within which most samples are.
fn library(samples: &[Sample<'_>]) -> Option<(&'static Library, i64)> {
    let within = |library: &'static Library| {
        let own =
            samples.iter().filter(|sample| sample.library.is_some_and(|one| std::ptr::eq(one, library)));
        (library, own.map(|sample| sample.looks).sum())
    };
    FUNCTIONS.library.iter().map(within).max_by_key(|(_, looks)| *looks).filter(|(_, looks)| *looks > 0)
}

/// The innermost function within which most samples are.
fn hottest(samples: &[Sample<'_>], all: i64) -> Option<String> {
    // Samples, and the sum of places in the stack.
    let mut functions: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for sample in samples {
        for (place, function) in sample.functions.iter().enumerate() {
            let (looks, places) = functions.entry(function).or_default();
            *looks += sample.looks;
            *places += sample.looks * place as i64;
        }
    }
    let most = functions.values().map(|(looks, _)| *looks).max()?;
    let depth = |(looks, places): (i64, i64)| places as f64 / looks.max(1) as f64;
    let is_one = |looks: i64| looks as f64 >= AS_MUCH * most as f64 && looks as f64 > MOST * all as f64;
    let candidates = functions.into_iter().filter(|(_, (looks, _))| is_one(*looks));
    let innermost = candidates.min_by(|a, b| depth(a.1).total_cmp(&depth(b.1)).then(b.1.0.cmp(&a.1.0)));
    innermost.map(|(function, _)| function.to_owned())
}

/// The functions that most often stand next above it, and above that one.
fn callers(own: &[&Sample<'_>], what: &What, count: i64) -> Vec<String> {
    let What::Function(function) = what else { return Vec::new() };
    let mut path: Vec<String> = vec![function.clone()];
    while path.len() <= CALLERS {
        let next = own.iter().filter_map(|sample| {
            let place = sample.functions.iter().position(|one| Some(one) == path.last())?;
            let above = sample.functions.get(place + 1..)?.iter().find(|one| !path.contains(one))?;
            Some((above.as_str(), sample.looks))
        });
        match largest_first(next).into_iter().next() {
            Some((above, looks)) if looks as f64 >= MOST * count as f64 => path.push(above.to_owned()),
            _ => break,
        }
    }
    path.split_off(1)
}

/// What most of those are whose garbage was being collected when they were looked at by chance: a registered name, or what they were started
/// with. `None` where too few were seen, `Some(None)` where none stands out.
pub(crate) fn collected_kind(period: &Period) -> Option<Option<&str>> {
    let collected = period.work_samples.iter().filter(|sample| sample.collects);
    let kinds = largest_first(collected.map(|sample| (sample.kind.as_deref(), sample.looks)));
    let all = kinds.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks));
    if all < MIN_COLLECTED {
        // Hardly any was seen; but who takes nearly all CPU time makes most of the garbage.
        let hot = HotCode::of(period).ok().flatten().filter(HotCode::allocates)?;
        let (kind, looks) = hot.kinds.first()?;
        let mut known = period.work_samples.iter().filter_map(|sample| sample.kind.as_deref());
        return Some(known.find(|one| one == kind && *looks as f64 > MOST * hot.samples.0 as f64));
    }
    let most = kinds.into_iter().find(|(_, looks)| *looks as f64 > MOST * all as f64);
    Some(most.and_then(|(kind, _)| kind))
}
