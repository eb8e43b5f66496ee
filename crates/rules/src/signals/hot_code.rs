//! The code in which processes spend most of their CPU time, by a CPU profile or the agent's samples.

mod unnamed;

use std::collections::{BTreeMap, BTreeSet};

use beamtune_model::rows::{CHILD_OF, STACK_DEPTH};
use beamtune_model::{CpuUse, Missing, Period, ProcessActivity, WorkSample};

use crate::account;
use crate::signals::counts::{largest_first, share_interval};
pub(crate) use crate::signals::known_functions::instead;
#[cfg(test)]
pub(crate) use crate::signals::known_functions::known_functions;
use crate::signals::known_functions::{
    FUNCTIONS, Instead, KnownFunction, Library, is_own, known_name, libraries_of, library_of,
};
use crate::signals::{new_processes, stack};
use crate::view::{self, kind};
pub(crate) use unnamed::unnamed;

/// Fewer samples do not show where the time is spent (judgement).
pub(crate) const MIN_SAMPLES: i64 = 8;
/// Minimum number of samples of garbage collection (judgement).
pub(crate) const MIN_COLLECTED: i64 = 3;
/// A function with a smaller share of the samples is not where the time is spent (judgement: more than half).
const MOST: f64 = 0.5;
/// Minimum lower bound of the share's 95 % interval (Wilson). Below it, the true share may be far less than half, because there are few
/// samples (judgement).
const SURELY: f64 = 1.0 / 3.0;

/// A process with this share of all reductions uses most of the CPU, even if processes that wait for it are sampled as runnable
/// (judgement).
const CARRIES: f64 = 0.5;

/// Minimum share that counts as nearly all (judgement).
const NEARLY_ALL: f64 = 0.7;

/// Share of the samples of the function with most that the innermost function needs to be named in its place (judgement).
const AS_MUCH: f64 = 0.7;

/// A known function with this share of the samples is reported (judgement: a third is worth a change).
const PART: f64 = 1.0 / 3.0;

/// Fewer samples are not a relevant part, and do not represent others (judgement).
const MIN_PART: i64 = 3;

/// Maximum number of callers that are reported.
const CALLERS: usize = 2;

/// The code in which most of the CPU time is spent.
#[derive(Debug)]
pub(crate) struct HotCode {
    /// The program's function that most samples are within; otherwise a module, a kind of processes or a library.
    pub what: What,
    /// Number of samples within it, and of all samples.
    pub samples: (i64, i64),
    /// Its CPU use, in cores, garbage collection included.
    pub cores: f64,
    /// The function of OTP or the VM in which most of these samples are, and their number.
    pub at: Option<(String, i64)>,
    /// Functions that call it, innermost first.
    pub callers: Vec<String>,
    /// Kinds of the processes that run it, with samples, most first.
    pub kinds: Vec<(String, i64)>,
    /// Known function or library that explains at least a third of these samples.
    pub known: Option<Part>,
    /// Functions of a module, modules of a kind of processes, or callers of a library in these samples, most first.
    pub foremost: Vec<(String, i64)>,
    /// The library that most of all samples are within, and their number.
    pub library: Option<(&'static Library, i64)>,
    /// Number of samples of garbage collection within it, and of all such samples.
    pub collections: (i64, i64),
    /// Whether the samples come from a CPU profile.
    pub is_profiled: bool,
}

/// A known expensive function of OTP or Elixir, or a library.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its description.
    pub what: String,
    pub samples: i64,
    /// What to do instead, most important first.
    pub instead: Vec<Instead>,
}

/// The kind of code that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// `module:function/arity`.
    Function(String),
    /// A module of the program, if most samples are in no single function of it.
    Module(String),
    /// Processes with this registered name or initial call.
    Kind(String),
    /// The name of a known library.
    Library(&'static str),
}

impl HotCode {
    /// Its share of the samples.
    pub(crate) fn share(&self) -> f64 {
        self.samples.0 as f64 / self.samples.1.max(1) as f64
    }

    /// Whether it allocates most of the memory: most of the sampled garbage collection is its own. If hardly any was sampled, whether it
    /// takes nearly all CPU time.
    pub(crate) fn allocates(&self) -> bool {
        let (own, all) = self.collections;
        match all >= MIN_COLLECTED {
            true => own as f64 >= MOST * all as f64,
            false => self.share() >= NEARLY_ALL,
        }
    }

    /// Returns the program's function that called the library in most of the samples that show a caller; `None` if few show it.
    pub(crate) fn library_caller(&self) -> Option<&str> {
        let all: i64 = self.foremost.iter().map(|(_, looks)| looks).sum();
        let (caller, looks) = self.foremost.first()?;
        let tells = all as f64 >= PART * self.samples.0 as f64;
        (tells && *looks >= MIN_PART && *looks as f64 > MOST * all as f64).then_some(caller)
    }

    /// Finds the code with most of the samples; `None` if absent.
    pub(crate) fn of(period: &Period) -> Result<Option<HotCode>, Missing> {
        let cores = cores(period)?;
        let (samples, is_profiled) = (best_samples(period), profiled(period).is_some());
        let all: i64 = samples.iter().map(|sample| sample.looks).sum();
        if all < MIN_SAMPLES {
            return Ok(None);
        }
        let within = |is_within: &dyn Fn(&Sample<'_>) -> bool| -> i64 {
            samples.iter().filter(|sample| is_within(sample)).map(|sample| sample.looks).sum()
        };
        let of_library = library(&samples).filter(|(_, looks)| *looks as f64 > MOST * all as f64);
        let what = match (hottest(&samples, all), of_library) {
            (Some(what), _) => what,
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
            What::Module(module) => sample.functions.iter().any(|function| module_of(function) == module),
            What::Kind(kind) => sample.kind == Some(kind.as_str()),
            What::Library(name) => sample.libraries.iter().any(|library| library.name == *name),
        };
        let own: Vec<&Sample<'_>> = samples.iter().filter(|sample| is_within(sample)).collect();
        let count = within(&is_within);
        if share_interval(count, all).0 < SURELY {
            return Ok(None);
        }
        // The agent's samples include processes that only wait for a CPU.
        if !is_profiled && is_contradicted(period, &own, count as f64 / all as f64) {
            return Ok(None);
        }
        let at = own.iter().filter_map(|sample| Some((sample.at?, sample.looks)));
        let at =
            largest_first(at).into_iter().next().filter(|(_, looks)| *looks as f64 > MOST * count as f64);
        let kinds = largest_first(own.iter().filter_map(|sample| Some((sample.kind?, sample.looks))));
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
            known: Part::of(period, &own, &what, count),
            foremost: foremost(&own, &what),
            library: of_library,
            is_profiled,
            what,
        }))
    }
}

/// Whether a process outside of these samples did most of the work. Then the code cannot have used about this share of the CPU.
fn is_contradicted(period: &Period, own: &[&Sample<'_>], share: f64) -> bool {
    let is_among = |process: &ProcessActivity| {
        let row = process.row.as_ref();
        let names = row.map(|row| [&row.name, &row.initial_call, &row.label]);
        let is_kind =
            |kind: &str| names.is_some_and(|names| names.iter().any(|name| name.as_deref() == Some(kind)));
        own.iter().any(|sample| sample.kind.is_none_or(|kind| kind.starts_with(CHILD_OF) || is_kind(kind)))
    };
    period.processes.iter().filter(|process| !is_among(process)).any(|process| {
        view::reductions_share(period, &[process])
            .is_some_and(|its| its >= CARRIES && share > 2.0 * (1.0 - its))
    })
}

/// Samples of running processes with one stack.
#[derive(Clone)]
pub(crate) struct Sample<'a> {
    pub looks: i64,
    pub kind: Option<&'a str>,
    collects: bool,
    /// The stack as recorded.
    pub stack: &'a [String],
    /// The innermost function, if it is not the program's.
    at: Option<&'a str>,
    /// The functions that the program's innermost function has called, innermost first.
    called: Vec<&'a str>,
    /// The whole stack without traps; empty if it is unknown what the process ran.
    frames: Vec<&'a str>,
    /// The program's own functions, innermost first, each once.
    pub functions: Vec<String>,
    /// Libraries on the stack, innermost first, each once.
    libraries: Vec<&'static Library>,
}

impl<'a> Sample<'a> {
    fn new(sample: &'a WorkSample, is_profiled: bool) -> Self {
        let WorkSample { stack, samples: looks, kind, is_collecting: collects, .. } = sample;
        let (looks, kind, collects) = (*looks, kind.as_deref(), *collects);
        let known: Vec<&str> = stack::without_traps(stack).collect();
        let first = known.first().copied();
        let hibernates = first.is_some_and(|at| at.contains("hibernate"));
        // A large reply takes more than one time slice to copy: the process is interrupted in the copy.
        let copies = first.is_some_and(stack::is_answer) && stack.first().map(String::as_str) != first;
        // The process finished its work before it answered the agent: what it ran is unknown.
        let is_done = !is_profiled && first.is_some_and(stack::is_wait) && !hibernates && !copies;
        let mut functions: Vec<String> = Vec::new();
        for function in known.iter().filter(|function| !is_done && is_own(function)) {
            let function = stack::without_fun(function);
            if !functions.contains(&function) {
                functions.push(function);
            }
        }
        let called: Vec<&str> = known.iter().copied().take_while(|function| !is_own(function)).collect();
        let at = if called.len() < known.len() { called.last() } else { called.first() };
        let at = at.copied().filter(|at| !is_done && (hibernates || !stack::is_loop(at)));
        // A wait inside a library is part of its work.
        let libraries = libraries_of(known.iter().copied().chain(kind));
        let called = if is_done { Vec::new() } else { called };
        let frames = if is_done { Vec::new() } else { known };
        Sample { looks, kind, collects, stack, at, called, frames, functions, libraries }
    }

    /// Returns the outermost library or known function that the program called. Equal results for two samples mean that the program called
    /// the same one.
    fn outermost_known(&self) -> Option<&'static str> {
        self.frames
            .iter()
            .take_while(|function| !self.is_callers(function))
            .copied()
            .filter_map(known_name)
            .last()
    }

    /// Whether a function is the program's own, and not a callback that a library calls.
    fn is_callers(&self, function: &str) -> bool {
        let place = self.frames.iter().position(|one| *one == function).unwrap_or_default();
        let mut outer = self.frames.get(place..).unwrap_or_default().iter();
        is_own(function) && !outer.any(|one| library_of(one).is_some())
    }

    /// Whether the stack was truncated within a library or known function, so that the caller is unknown.
    fn is_cut(&self) -> bool {
        let is_whole = self.frames.last().is_some_and(|outermost| stack::is_machinery(outermost));
        self.stack.len() >= STACK_DEPTH
            && !is_whole
            && !self.frames.iter().any(|function| self.is_callers(function))
            && self.outermost_known().is_some()
    }

    fn is_logging(&self) -> bool {
        self.called
            .iter()
            .any(|function| FUNCTIONS.function.iter().any(|known| known.is_logging && known.is(function)))
    }

    /// Returns the libraries called within the named code, innermost first.
    fn libraries_within(&self, what: &What) -> Vec<&'static Library> {
        let is_it = |function: &str| match what {
            What::Function(name) => stack::without_fun(function) == *name,
            What::Module(module) => module_of(function) == module,
            What::Kind(_) | What::Library(_) => false,
        };
        libraries_of(self.frames.iter().copied().take_while(|function| !is_it(function)))
    }

    /// Returns the index, in the data, of the outermost known function on the stack. What a library calls counts as the library.
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

/// Returns the samples of the CPU profile, if it has enough of them.
pub(crate) fn profiled(period: &Period) -> Option<&[WorkSample]> {
    let all = period.profiled_samples.iter().fold(0, |sum: i64, one| sum.saturating_add(one.samples));
    (all >= i64::from(view::MIN_PROFILE_SAMPLES)).then_some(&period.profiled_samples)
}

/// Returns the agent's samples of running processes. They show where a process yields, such as in a search that the VM interrupts.
pub(crate) fn samples(period: &Period) -> Vec<Sample<'_>> {
    // A process that was just woken has not run: its stack shows where it waited.
    let is_woken =
        |one: &&WorkSample| one.is_runnable && one.stack.first().is_some_and(|at| stack::is_wait(at));
    let samples = period.work_samples.iter().filter(|one| !is_woken(one));
    let mut samples: Vec<Sample<'_>> = samples.map(|one| Sample::new(one, false)).collect();
    add_last_callers(&mut samples);
    add_cut(&mut samples);
    add_ended(period, &mut samples);
    samples
}

/// Returns the samples of a profile, which measures CPU time, or else the agent's.
fn best_samples(period: &Period) -> Vec<Sample<'_>> {
    let Some(profiled) = profiled(period) else { return samples(period) };
    let mut samples: Vec<Sample<'_>> = profiled.iter().map(|one| Sample::new(one, true)).collect();
    add_last_callers(&mut samples);
    samples
}

/// Adds callers that a tail call hides: it leaves no frame. If a function of OTP or Elixir runs a fun that no function of the stack
/// created, the creator of the fun made that tail call. The same applies to samples with the same stack between two calls of the fun.
fn add_last_callers(samples: &mut [Sample<'_>]) {
    // Kind, stack from the called function outwards, creator of the fun, samples.
    let mut seen: Vec<(Option<&str>, Vec<&str>, String, i64)> = Vec::new();
    for sample in samples.iter() {
        let owns = sample.frames.iter().enumerate().filter(|(_, function)| is_own(function));
        let owns: Vec<(usize, &str)> = owns.map(|(place, function)| (place, *function)).collect();
        for pair in owns.windows(2) {
            let [(inner, fun), (outer, _)] = pair else { continue };
            let Some(below) = sample.frames.get(outer - 1..).filter(|_| *outer > inner + 1) else { continue };
            let maker = stack::without_fun(fun);
            if fun.contains("-fun-") && maker != *fun {
                seen.push((sample.kind, below.to_vec(), maker, sample.looks));
            }
        }
    }
    for sample in samples.iter_mut() {
        let Some(own) = sample.frames.iter().position(|function| is_own(function)) else { continue };
        let Some(below) = own.checked_sub(1).and_then(|at| sample.frames.get(at..)) else { continue };
        // Of a deeper stack, more outer functions were cut off.
        let is_same = |stack: &[&str]| stack.iter().zip(below).all(|(one, other)| one == other);
        let like = seen.iter().filter(|(kind, stack, ..)| *kind == sample.kind && is_same(stack));
        let makers = largest_first(like.map(|(.., maker, looks)| (maker.as_str(), *looks)));
        let all: i64 = makers.iter().map(|(_, looks)| *looks).sum();
        if let Some((maker, looks)) = makers.first()
            && *looks >= MIN_PART
            && *looks as f64 >= NEARLY_ALL * all as f64
            && !sample.functions.iter().any(|function| function == maker)
        {
            sample.functions.insert(0, (*maker).to_owned());
        }
    }
}

/// A kind of process, and the library or known function that it called.
type Called<'a> = (Option<&'a str>, &'a str);

/// Distributes samples with a truncated stack among the callers that complete samples of the same kind of process show.
fn add_cut(samples: &mut Vec<Sample<'_>>) {
    let (cut, mut whole): (Vec<_>, Vec<_>) = samples.drain(..).partition(|sample| sample.is_cut());
    // Stacks of callers, with samples.
    let mut callers: BTreeMap<Called<'_>, BTreeMap<Vec<String>, i64>> = BTreeMap::new();
    for sample in whole.iter().filter(|sample| !sample.functions.is_empty()) {
        if let Some(known) = sample.outermost_known() {
            let of = callers.entry((sample.kind, known)).or_default();
            *of.entry(sample.functions.clone()).or_default() += sample.looks;
        }
    }
    let mut groups: BTreeMap<Called<'_>, Vec<Sample<'_>>> = BTreeMap::new();
    for sample in cut {
        match sample.outermost_known() {
            Some(known) => groups.entry((sample.kind, known)).or_default().push(sample),
            None => whole.push(sample),
        }
    }
    for (key, group) in groups {
        let callers = callers.get(&key).filter(|callers| callers.values().sum::<i64>() >= MIN_PART);
        let Some(callers) = callers else {
            whole.extend(group);
            continue;
        };
        let known: i64 = callers.values().sum();
        let all: i64 = group.iter().map(|sample| sample.looks).sum();
        // The samples are put in a row, and each caller gets a contiguous part of it.
        let (mut before, mut start) = (0, 0);
        let parts: Vec<(&Vec<String>, i64, i64)> = callers
            .iter()
            .map(|(functions, looks)| {
                before += looks;
                let end = (all as f64 * before as f64 / known as f64).round() as i64;
                (functions, std::mem::replace(&mut start, end), end)
            })
            .collect();
        let mut place = 0;
        for sample in group {
            let (from, to) = (place, place + sample.looks);
            place = to;
            for (functions, start, end) in &parts {
                let looks = to.min(*end) - from.max(*start);
                if looks > 0 {
                    let functions = sample.functions.iter().chain(functions.iter()).cloned().collect();
                    whole.push(Sample { looks, functions, ..sample.clone() });
                }
            }
        }
    }
    *samples = whole;
}

/// Processes that ended before their stack was read count as if they had done the same as other new processes.
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

/// Returns the CPU use of Erlang code and its garbage collection, in cores.
pub(crate) fn cores(period: &Period) -> Result<f64, Missing> {
    match account::account(period) {
        Ok(account) => {
            let of = |share: &&beamtune_model::CpuShare| {
                matches!(share.what, CpuUse::Code | CpuUse::GarbageCollection | CpuUse::DirtyCpu)
            };
            Ok(account.shares.iter().filter(of).map(|share| share.cores).sum())
        }
        // Without data of the VM, the profile says what its threads did; without data of the host, its schedulers.
        Err(_) => match (&period.profile, profiled(period)) {
            (Some(profile), Some(_)) => {
                Ok(profile.cores(profile.cpu_of(|sample| sample.state.is_of_process())))
            }
            _ => Ok(view::activity(period, kind::SCHEDULER)?.cores()),
        },
    }
}

/// Returns the library that most samples are within.
fn library(samples: &[Sample<'_>]) -> Option<(&'static Library, i64)> {
    let all: Vec<&Sample<'_>> = samples.iter().collect();
    most_library(&all, |sample| sample.libraries.clone())
}

/// Returns the innermost library that has nearly as many samples as the one with most. So a library that explains only part of its caller,
/// as below a log formatter, counts as part of that caller.
fn most_library(
    samples: &[&Sample<'_>],
    libraries: impl Fn(&Sample<'_>) -> Vec<&'static Library>,
) -> Option<(&'static Library, i64)> {
    let places = samples.iter().map(|sample| {
        let names = libraries(sample).into_iter().map(|library| library.name.as_str());
        (names.enumerate().map(|(place, name)| (name, place)).collect(), sample.looks)
    });
    let within = Within::of(places);
    let (name, of) = innermost(&within, most(&within), 1)?;
    FUNCTIONS.library.iter().find(|library| library.name == name).map(|library| (library, of.looks))
}

/// Number of samples within a function, module or library, and how deep in the stack it is.
#[derive(Debug, Clone, Copy, Default)]
struct Within {
    looks: i64,
    /// Sum of its indexes in the stacks.
    places: i64,
}

impl Within {
    /// Sums samples by function, module or library. Each sample lists all that it is within, with indexes in the stack.
    fn of<K: Ord>(samples: impl IntoIterator<Item = (Vec<(K, usize)>, i64)>) -> BTreeMap<K, Within> {
        let mut all: BTreeMap<K, Within> = BTreeMap::new();
        for (places, looks) in samples {
            for (what, place) in places {
                let within = all.entry(what).or_default();
                within.looks += looks;
                within.places += looks * place as i64;
            }
        }
        all
    }

    fn depth(self) -> f64 {
        self.places as f64 / self.looks.max(1) as f64
    }
}

fn most<K>(within: &BTreeMap<K, Within>) -> i64 {
    within.values().map(|within| within.looks).max().unwrap_or_default()
}

/// Returns the innermost one that has nearly as many samples as the one with most, and at least `min`.
fn innermost<K: Copy>(within: &BTreeMap<K, Within>, most: i64, min: i64) -> Option<(K, Within)> {
    let is_one = |of: &Within| of.looks as f64 >= AS_MUCH * most as f64 && of.looks >= min;
    let candidates = within.iter().filter(|(_, of)| is_one(of));
    let innermost =
        candidates.min_by(|a, b| a.1.depth().total_cmp(&b.1.depth()).then(b.1.looks.cmp(&a.1.looks)));
    innermost.map(|(what, of)| (*what, *of))
}

/// Returns the innermost function that most samples are within. Returns the innermost module instead if there is no such function, or if it
/// is the outermost function and so only shows the kind of the processes.
fn hottest(samples: &[Sample<'_>], all: i64) -> Option<What> {
    let min = (MOST * all as f64).floor() as i64 + 1;
    let functions = Within::of(samples.iter().map(|sample| {
        let functions = sample.functions.iter().map(String::as_str).zip(0..);
        (functions.collect(), sample.looks)
    }));
    let modules = Within::of(samples.iter().map(|sample| {
        let mut modules: Vec<(&str, usize)> = Vec::new();
        for (place, module) in sample.functions.iter().map(|function| module_of(function)).enumerate() {
            if !modules.iter().any(|(one, _)| *one == module) {
                modules.push((module, place));
            }
        }
        (modules, sample.looks)
    }));
    let most_looks = most(&functions);
    let function = innermost(&functions, most_looks, min);
    let module = innermost(&modules, most(&modules), min);
    let Some((function, of)) = function else {
        return module.map(|(module, _)| What::Module(module.to_owned()));
    };
    let outermost =
        samples.iter().filter(|sample| sample.functions.last().is_some_and(|one| one == function));
    let is_outermost =
        outermost.map(|sample| sample.looks).sum::<i64>() as f64 >= NEARLY_ALL * of.looks as f64;
    let is_deeper =
        |within: &Within| within.depth() < of.depth() && within.looks as f64 >= AS_MUCH * most_looks as f64;
    match module.filter(|(module, within)| *module != module_of(function) && is_deeper(within)) {
        Some((module, _)) if is_outermost => Some(What::Module(module.to_owned())),
        _ => Some(What::Function(function.to_owned())),
    }
}

/// Returns the module of `module:function/arity`.
pub(crate) fn module_of(function: &str) -> &str {
    function.split_once(':').map_or(function, |(module, _)| module)
}

/// Counts the functions of a module, the modules of a kind of processes, or the callers of a library.
fn foremost(own: &[&Sample<'_>], what: &What) -> Vec<(String, i64)> {
    let names = own.iter().flat_map(|sample| {
        let names: BTreeSet<&str> = match what {
            What::Module(module) => sample
                .functions
                .iter()
                .map(String::as_str)
                .find(|one| module_of(one) == module)
                .into_iter()
                .collect(),
            What::Kind(_) => sample.functions.iter().map(|one| module_of(one)).collect(),
            // The program's function that called it, even if the process waits within the library.
            What::Library(_) => {
                stack::without_traps(sample.stack).find(|one| is_own(one)).into_iter().collect()
            }
            What::Function(_) => BTreeSet::new(),
        };
        names.into_iter().map(|name| (name, sample.looks)).collect::<Vec<_>>()
    });
    largest_first(names).into_iter().map(|(name, looks)| (name.to_owned(), looks)).collect()
}

impl Part {
    /// Returns the known function or library with most of the samples, if it has at least a third of them.
    fn of(period: &Period, own: &[&Sample<'_>], what: &What, count: i64) -> Option<Part> {
        let libraries = |sample: &Sample<'_>| match what {
            What::Library(_) => Vec::new(),
            _ => sample.libraries_within(what),
        };
        let functions = own.iter().filter_map(|sample| Some((sample.known(period)?, sample.looks)));
        let function = largest_first(functions).into_iter().next();
        let function = function.and_then(|(place, looks)| Some((FUNCTIONS.function.get(place)?, looks)));
        let of_function = function.map(|(known, samples)| Part {
            what: known.what.clone(),
            samples,
            instead: vec![known.instead()],
        });
        let of_library = most_library(own, libraries).map(|(library, samples)| Part {
            what: library.name.clone(),
            samples,
            instead: vec![library.instead()],
        });
        let parts = [Part::of_logging(own, |sample| libraries(sample)), of_function, of_library];
        // The first one, if several have as many samples.
        let part = parts.into_iter().flatten().rev().max_by_key(|part| part.samples)?;
        (part.samples >= MIN_PART && part.samples as f64 >= PART * count as f64).then_some(part)
    }

    /// Returns logging, together with the formatting of terms by the functions that log.
    fn of_logging(
        own: &[&Sample<'_>],
        libraries: impl Fn(&Sample<'_>) -> Vec<&'static Library>,
    ) -> Option<Part> {
        let looks = |samples: &[&Sample<'_>]| samples.iter().map(|sample| sample.looks).sum::<i64>();
        let formats = |sample: &Sample<'_>| libraries(sample).into_iter().find(|library| library.formats);
        let mut logging: Vec<&Sample<'_>> = Vec::new();
        let mut formatting: Vec<&Sample<'_>> = Vec::new();
        for sample in own {
            if sample.is_logging() {
                logging.push(sample);
            } else if formats(sample).is_some() {
                formatting.push(sample);
            }
        }
        let library = formatting.iter().find_map(|sample| formats(sample));
        let logs = |caller: &String| logging.iter().any(|sample| sample.functions.first() == Some(caller));
        let by_loggers = formatting.iter().copied().filter(|one| one.functions.first().is_some_and(logs));
        let same: Vec<&Sample<'_>> = by_loggers.collect();
        let (logged, formatted) = (looks(&logging), looks(&same));
        if logged < MIN_PART || formatted as f64 <= MOST * looks(&formatting) as f64 {
            return None;
        }
        let known = FUNCTIONS.function.iter().find(|known| known.is_logging)?;
        let library = library?;
        Some(Part {
            what: match formatted >= logged {
                true => format!("{} for log messages", library.name),
                false => known.what.clone(),
            },
            samples: logged + formatted,
            instead: vec![known.instead(), library.instead()],
        })
    }
}

/// Returns the most frequent caller of the named code, and the most frequent caller of that one.
fn callers(own: &[&Sample<'_>], what: &What, count: i64) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    while path.len() < CALLERS {
        let next = own.iter().filter_map(|sample| {
            let place = match (path.last(), what) {
                (Some(last), _) => sample.functions.iter().position(|one| one == last)?,
                (None, What::Function(function)) => {
                    sample.functions.iter().position(|one| one == function)?
                }
                (None, What::Module(module)) => {
                    sample.functions.iter().rposition(|one| module_of(one) == module)?
                }
                (None, What::Kind(_) | What::Library(_)) => return None,
            };
            let is_it = |one: &String| *what == What::Function(one.clone()) || path.contains(one);
            let above = sample.functions.get(place + 1..)?.iter().find(|one| !is_it(one))?;
            Some((above.as_str(), sample.looks))
        });
        match largest_first(next).into_iter().next() {
            Some((above, looks)) if looks as f64 >= MOST * count as f64 => path.push(above.to_owned()),
            _ => break,
        }
    }
    path
}

/// Returns the kind of processes with most of the random samples of garbage collection: a registered name or an initial call. `None` if
/// there are too few samples, `Some(None)` if no kind has most of them.
pub(crate) fn collected_kind(period: &Period) -> Option<Option<&str>> {
    let samples = profiled(period).unwrap_or(&period.work_samples);
    let collected = samples.iter().filter(|sample| sample.is_collecting);
    let kinds = largest_first(collected.map(|sample| (sample.kind.as_deref(), sample.samples)));
    let all = kinds.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks));
    if all < MIN_COLLECTED {
        // GC was hardly sampled, but a process that takes nearly all CPU time makes most of the garbage.
        let hot = HotCode::of(period).ok().flatten().filter(HotCode::allocates)?;
        let (kind, looks) = hot.kinds.first()?;
        let mut known = samples.iter().filter_map(|sample| sample.kind.as_deref());
        return Some(known.find(|one| one == kind && *looks as f64 > MOST * hot.samples.0 as f64));
    }
    let most = kinds.into_iter().find(|(_, looks)| *looks as f64 > MOST * all as f64);
    Some(most.and_then(|(kind, _)| kind))
}
