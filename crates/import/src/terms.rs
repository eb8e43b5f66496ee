//! Answers of `erlang:memory()`, `scheduler:utilization(…)` and `recon_alloc`, which a shell has printed as terms.

use beamtune_model::{Metric, metrics};

use crate::instrument::CARRIER_SETS;
use crate::part::{CARRIERS, CUT_OFF, Mean, Partial, Told, Tool, Value, Whole};
use crate::rabbitmq;
use crate::term::Term;

/// The name of the tool that tells of allocators.
pub const RECON: Tool = "recon_alloc";

/// What the VM maps itself, beside its allocators.
const MMAP: &str = "erts_mmap";

/// The fewest kinds of memory by which the list is known.
const OF_MEMORY: [&str; 3] = ["total", "processes", "system"];

/// Only shares are printed. The times that are made of them are in nanoseconds, whatever the VM's own unit is.
const NATIVE_PER_US: i64 = 1_000;

/// Of a length that nobody told, shares are of a second.
pub const UNKNOWN_LENGTH_US: i64 = 1_000_000;

const SUM: &str = "the total is not the sum of processes and system, so it is no answer of erlang:memory()";
const SOME_KINDS: &str = "these are some of the kinds of memory: print erlang:memory()";
const OF_RABBITMQ: &str = "in RabbitMQ's terms most kinds of memory are its own sums: print rabbitmq-diagnostics status --formatter json, or by rabbitmqctl eval erlang:memory()";
const USAGE: &str =
    "which kind of scheduler each of these is does not stand in it: print scheduler:utilization(1)";
const NO_BYTES: &str = "it holds something that is no number of bytes";
const ODD_UTILIZATION: &str =
    "it is not what scheduler:utilization gives: a share is not between 0 and 1, or schedulers are missing";
const WHICH_SIZES: &str = "whether these sizes are current or the largest is not known: copy the call too (recon_alloc:fragmentation(current))";
const ODD_INSTANCE: &str = "it is not what recon_alloc:fragmentation gives: blocks are larger than their carriers, or a size is missing";
const ODD_CACHE: &str =
    "it is not what recon_alloc:cache_hit_rates gives: more hits than calls, or a number is missing";
const WHICH_MEANS: &str = "whether these averages are current or of the largest sizes is not known: copy the call too (recon_alloc:average_block_sizes(current))";
const LARGEST_MEANS: &str =
    "these are averages of the largest sizes: print recon_alloc:average_block_sizes(current)";
const ODD_MEANS: &str = "it is not what recon_alloc:average_block_sizes gives: an average is missing or none";
const RATIOS: &str = "of these shares no numbers follow: print recon_alloc:fragmentation(current) and average_block_sizes(current), which tell them";
const WHICH_SUMS: &str = "whether these sums are current or the largest is not known: copy the call too (recon_alloc:memory(allocated_types))";
const LARGEST_SUMS: &str = "the largest sizes of instances were not reached at the same time, so their sum says little: print the current ones";
const ODD_SUM: &str = "it is no number of bytes (recon_alloc:set_unit(byte)), and no share between 0 and 1";
const MAY_GO_ON: &str = "whether the number ends here is not known: copy the line behind it too";
const ALLOCATORS: &str = "which allocator this is of does not stand in it: print recon_alloc:allocators(), or fragmentation(current), which sums it up";
const CUT_ALLOCATORS: &str = "the shell has cut off the list of allocators: print rp(recon_alloc:fragmentation(current)), which is shorter";
const ODD_ALLOCATOR: &str = "it is not what recon_alloc:allocators gives: blocks are larger than their carriers, or a size is missing";
const PARTIAL: &str =
    "the shell has cut off the list of allocators: print rp(recon_alloc:fragmentation(current))";
const CUT_UTILIZATION: &str =
    "the shell has cut off the list of schedulers behind the normal ones: print rp(scheduler:utilization(1))";
const CUT_CACHE: &str =
    "the shell has cut off the list of instances: print rp(recon_alloc:cache_hit_rates())";
/// What `recon_alloc:memory` is asked for.
const INSTANCES: &str = "allocated_instances";
const POOL: &str = "recon counts abandoned carriers with the others";
const ROUNDED_COUNTS: &str = "numbers of blocks follow from their sizes and averages";

/// A call that stands right before a term: `recon_alloc:fragmentation(current)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub module: &'static str,
    pub function: String,
    /// What stands between its brackets, without spaces and colons.
    pub arguments: String,
}

/// What a term tells, if it is of one of these tools.
pub fn understand(term: &Term, call: Option<&Call>) -> Option<(Tool, Result<Told, &'static str>)> {
    let list = term.list()?;
    let Some(behind) = behind_mmap(list) else { return understand_list(term, list, call) };
    let why = if term.is_cut() { CUT_OFF } else { ODD_ALLOCATOR };
    understand_list(term, behind, call).or(Some((RECON, Err(why))))
}

/// What stands behind the VM's own `mmap`, of which recon since 2.5.4 tells before all allocators: `{{erts_mmap,0},…}`, or `false` in the place
/// of its numbers. Those are not of carriers, and nothing is read of them.
fn behind_mmap(list: &[Term]) -> Option<&[Term]> {
    let (first, behind) = list.split_first()?;
    let [Term::Tuple(key), Term::List(_) | Term::Atom(_)] = first.tuple()? else { return None };
    let is_mmap = matches!(key.as_slice(), [Term::Atom(name), Term::Integer(_)] if name == MMAP);
    is_mmap.then_some(behind)
}

fn understand_list(
    term: &Term,
    list: &[Term],
    call: Option<&Call>,
) -> Option<(Tool, Result<Told, &'static str>)> {
    let first = list.first()?.tuple()?;
    if is_of_rabbitmq(list) {
        return Some((rabbitmq::TOOL, Err(OF_RABBITMQ)));
    }
    let asked = |module: &str, function: &str| {
        call.is_some_and(|call| call.module == module && call.function == function)
    };
    match first {
        [Term::Integer(_), share] if share.number().is_some() && asked("recon", "scheduler_usage") => {
            Some(("recon", Err(USAGE)))
        }
        [Term::Atom(name), Term::Integer(_)] if name != "total" && asked("erlang", "memory") => {
            Some(("erlang:memory", Err(SOME_KINDS)))
        }
        [name, Term::Integer(_)] if name.atom() == Some("total") => {
            Some(("erlang:memory", memory(term, list)))
        }
        [name, Term::Float(_) | Term::Integer(_), Term::Text(_) | Term::Atom(_)]
            if name.atom() == Some("total") =>
        {
            Some(("scheduler:utilization", utilization(list, call)))
        }
        [name, Term::Integer(_), Term::List(_)] if name.atom() == Some("instance") => {
            Some((RECON, Err(ALLOCATORS)))
        }
        [Term::Tuple(key), Term::List(values)] => instances(key, values, list, call),
        [Term::Tuple(key), value]
            if is_instance(key) && (value.number().is_some() || value.atom() == Some("infinity")) =>
        {
            Some((RECON, Err(RATIOS)))
        }
        [Term::Atom(name), Term::List(_)] if is_allocator(name) => Some((RECON, means(term, list, call))),
        [Term::Atom(name), size] if is_allocator(name) && size.number().is_some() => {
            Some((RECON, types(term, list, call)))
        }
        [Term::Integer(_), size]
            if size.number().is_some() && arguments(call, "memory")?.starts_with(INSTANCES) =>
        {
            Some((RECON, all_instances(term, list, call)))
        }
        _ => None,
    }
}

/// Whether `rabbitmqctl status` has printed a list, or the list of kinds of memory within it.
fn is_of_rabbitmq(list: &[Term]) -> bool {
    let is_memory = |kinds: &[Term]| field(kinds, "connection_readers").is_some();
    is_memory(list) || field(list, "memory").and_then(Term::list).is_some_and(is_memory)
}

/// The arguments of a call of one of recon_alloc's functions.
fn arguments<'a>(call: Option<&'a Call>, function: &str) -> Option<&'a str> {
    let call = call.filter(|call| call.module == RECON && call.function == function)?;
    Some(&call.arguments)
}

fn is_allocator(name: &str) -> bool {
    name.ends_with("_alloc")
}

fn is_instance(key: &[Term]) -> bool {
    matches!(key, [Term::Atom(name), Term::Integer(_)] if is_allocator(name))
}

fn memory(term: &Term, list: &[Term]) -> Result<Told, &'static str> {
    if term.is_cut() {
        return Err(CUT_OFF);
    }
    let kinds: Option<Vec<(&str, i64)>> = list
        .iter()
        .map(|kind| match kind.tuple()? {
            [name, size] => Some((name.atom()?, size.integer().filter(|size| *size >= 0)?)),
            _ => None,
        })
        .collect();
    let kinds = kinds.ok_or(NO_BYTES)?;
    let size = |name: &str| kinds.iter().find(|(kind, _)| *kind == name).map(|(_, size)| *size);
    let [total, processes, system] = OF_MEMORY.map(size);
    if processes.is_none() || system.is_none() {
        return Err(SOME_KINDS);
    }
    if total.is_none() || total != processes.zip(system).and_then(|(a, b)| a.checked_add(b)) {
        return Err(SUM);
    }
    let values = kinds.iter().map(|(kind, size)| Value::named(&metrics::MEMORY, "", kind, *size)).collect();
    Ok(Told { values, ..Told::default() })
}

/// The lines of a list that a shell has printed in full; `is_cut` if it has not printed all of them.
fn printed(list: &[Term]) -> (Vec<&Term>, bool) {
    let whole: Vec<&Term> = list.iter().filter(|line| !line.is_cut()).collect();
    let is_cut = whole.len() < list.len();
    (whole, is_cut)
}

/// The kind that a line of `scheduler:utilization` is of, which a shell prints first.
fn kind_of(line: &Term) -> Option<&str> {
    line.tuple()?.first()?.atom()
}

fn utilization(list: &[Term], call: Option<&Call>) -> Result<Told, &'static str> {
    let (lines, is_cut) = printed(list);
    // Behind the last normal scheduler stands a dirty one. How many of those a cut list leaves out is not known.
    if is_cut && !list.iter().filter_map(kind_of).any(|kind| kind == "cpu") {
        return Err(CUT_OFF);
    }
    let mut threads: Vec<(&str, i64, f64)> = Vec::new();
    for line in lines {
        let Some(line) = line.tuple() else { return Err(ODD_UTILIZATION) };
        let ([_, share, _] | [_, _, share, _]) = line else { return Err(ODD_UTILIZATION) };
        let share = share.number().filter(|share| (0.0..=1.0).contains(share) || line.len() == 3);
        let share = share.ok_or(ODD_UTILIZATION)?;
        match (line, line[0].atom()) {
            ([_, _, _], Some("total" | "weighted")) => {}
            ([_, _, _, _], Some("cpu" | "io")) if is_cut => {}
            ([_, id, _, _], Some(kind)) => threads.push((kind, id.integer().ok_or(ODD_UTILIZATION)?, share)),
            _ => return Err(ODD_UTILIZATION),
        }
    }
    let normal = list.iter().filter(|line| kind_of(line) == Some("normal")).count();
    if is_cut && threads.len() < normal.max(1) {
        return Err(CUT_OFF);
    }
    // Schedulers have numbers without holes: the normal ones first, then dirty ones.
    threads.sort_by_key(|(_, id, _)| *id);
    let in_turn = (1..).zip(&threads).all(|(n, (_, id, _))| n == *id);
    let (mut dirty_cpu, mut dirty_io) = (0, 0);
    let mut values = Vec::new();
    let seconds =
        call.filter(|call| call.function == "utilization").and_then(|call| call.arguments.parse().ok());
    let told_us = seconds.and_then(|seconds: i64| seconds.checked_mul(1_000_000)).filter(|us| *us > 0);
    let length = told_us.unwrap_or(UNKNOWN_LENGTH_US).saturating_mul(NATIVE_PER_US);
    let mut last = 0;
    for (kind, id, share) in threads {
        let (rank, entity) = match kind {
            "normal" => (0, format!("scheduler/{id}")),
            "cpu" => {
                dirty_cpu += 1;
                (1, format!("dirty_cpu_scheduler/{dirty_cpu}"))
            }
            "io" => {
                dirty_io += 1;
                (2, format!("dirty_io_scheduler/{dirty_io}"))
            }
            _ => return Err(ODD_UTILIZATION),
        };
        if rank < last {
            return Err(ODD_UTILIZATION);
        }
        last = rank;
        values.push(Value::of(
            &metrics::SCHEDULER_ACTIVE,
            entity.as_str(),
            (share * length as f64).round() as i64,
        ));
        values.push(Value::of(&metrics::SCHEDULER_TOTAL, entity, length));
    }
    // Dirty CPU schedulers are always told, after all normal ones.
    if !in_turn || dirty_cpu == 0 && !is_cut {
        return Err(ODD_UTILIZATION);
    }
    let partial = is_cut.then_some(Partial { item: "vm.scheduler_wall_time", why: CUT_UTILIZATION });
    Ok(Told { values, length_us: told_us, partial, ..Told::default() })
}

fn instances(
    key: &[Term],
    values: &[Term],
    list: &[Term],
    call: Option<&Call>,
) -> Option<(Tool, Result<Told, &'static str>)> {
    match key {
        [Term::Atom(name), Term::Integer(_)] if name == "instance" => Some((RECON, cache(list))),
        _ if is_instance(key) && field(values, "mbcs_usage").is_some() => {
            Some((RECON, fragmentation(list, call)))
        }
        [Term::Atom(name), Term::Integer(_)] if is_allocator(name) && field(values, "options").is_some() => {
            Some((RECON, allocators(list)))
        }
        _ if all_of_type(key).is_some_and(is_allocator) => Some((RECON, allocators_by_type(list))),
        _ => None,
    }
}

/// The value of a name in a list of pairs.
pub fn field<'a>(values: &'a [Term], name: &str) -> Option<&'a Term> {
    values.iter().find_map(|value| match value.tuple()? {
        [key, value] if key.atom() == Some(name) => Some(value),
        _ => None,
    })
}

/// The same of a number that is not below nothing.
pub fn amount(values: &[Term], name: &str) -> Option<i64> {
    field(values, name)?.integer().filter(|amount| *amount >= 0)
}

fn cache(list: &[Term]) -> Result<Told, &'static str> {
    let (lines, is_cut) = printed(list);
    let partial = is_cut.then_some(Partial { item: "vm.mseg", why: CUT_CACHE });
    let mut told = Told { partial, ..Told::default() };
    for line in lines {
        let Some([Term::Tuple(key), Term::List(fields)]) = line.tuple() else { return Err(ODD_CACHE) };
        let [_, Term::Integer(instance)] = key.as_slice() else { return Err(ODD_CACHE) };
        let (hits, calls) = amount(fields, "hits").zip(amount(fields, "calls")).ok_or(ODD_CACHE)?;
        if hits > calls {
            return Err(ODD_CACHE);
        }
        told.values.push(Value::of(&metrics::MSEG_ALLOCATIONS, instance.to_string(), calls));
        told.values.push(Value::of(&metrics::MSEG_CACHE_HITS, instance.to_string(), hits));
    }
    Ok(told)
}

fn fragmentation(list: &[Term], call: Option<&Call>) -> Result<Told, &'static str> {
    let is_largest =
        match call.filter(|call| call.function == "fragmentation").map(|call| call.arguments.as_str()) {
            Some("current") => false,
            Some("max") => true,
            _ => return Err(WHICH_SIZES),
        };
    let mut told = Told { remark: Some(POOL), ..Told::default() };
    for line in list {
        // The most wasteful ones come first, so what a shell has left out is the least of it.
        if line.is_cut() {
            told.partial = Some(Partial { item: CARRIERS, why: PARTIAL });
            continue;
        }
        let Some([Term::Tuple(key), Term::List(fields)]) = line.tuple() else { return Err(ODD_INSTANCE) };
        let [Term::Atom(name), Term::Integer(instance)] = key.as_slice() else { return Err(ODD_INSTANCE) };
        let sizes = ["mbcs_carriers_size", "mbcs_block_size", "sbcs_carriers_size", "sbcs_block_size"]
            .map(|name| amount(fields, name));
        let [Some(mbcs), Some(mbcs_blocks), Some(sbcs), Some(sbcs_blocks)] = sizes else {
            return Err(ODD_INSTANCE);
        };
        if mbcs_blocks > mbcs || sbcs_blocks > sbcs {
            return Err(ODD_INSTANCE);
        }
        let entity = format!("{name}/{instance}");
        let current: [(&'static Metric, i64); 4] = [
            (&metrics::MBCS_CARRIERS_SIZE, mbcs),
            (&metrics::MBCS_BLOCKS_SIZE, mbcs_blocks),
            (&metrics::SBCS_CARRIERS_SIZE, sbcs),
            (&metrics::SBCS_BLOCKS_SIZE, sbcs_blocks),
        ];
        let largest: [(&'static Metric, i64); 3] = [
            (&metrics::MBCS_CARRIERS_SIZE_MAX, mbcs),
            (&metrics::MBCS_BLOCKS_SIZE_MAX, mbcs_blocks),
            (&metrics::CARRIERS_SIZE_MAX, mbcs.saturating_add(sbcs)),
        ];
        let values = if is_largest { largest.as_slice() } else { current.as_slice() };
        told.values.extend(values.iter().map(|(metric, value)| Value::of(metric, entity.as_str(), *value)));
    }
    Ok(told)
}

/// `recon_alloc:allocators()`, and what a snapshot holds of it: of each instance what `erlang:system_info({allocator, A})` tells, with the
/// sizes of all kinds of blocks added up.
fn allocators(list: &[Term]) -> Result<Told, &'static str> {
    let mut told = Told::default();
    for line in list {
        match instance(line) {
            Some(values) => told.values.extend(values),
            None if line.is_cut() => told.partial = Some(Partial { item: CARRIERS, why: CUT_ALLOCATORS }),
            None => return Err(ODD_ALLOCATOR),
        }
    }
    Ok(told)
}

/// An instance of an allocator; nothing of malloc and of the cache of segments, nor of an allocator that is switched off. `None` if some of it
/// is missing.
fn instance(line: &Term) -> Option<Vec<Value>> {
    let [Term::Tuple(key), Term::List(fields)] = line.tuple()? else { return None };
    let [Term::Atom(name), Term::Integer(instance)] = key.as_slice() else { return None };
    // A shell leaves out what stands last, be it whole fields.
    if fields.iter().any(|field| field.tuple().is_none_or(|field| field.contains(&Term::Cut))) {
        return None;
    }
    carriers(&format!("{name}/{instance}"), fields)
}

/// The allocator whose instances an answer of `recon_alloc:allocators(types)` adds up: `{eheap_alloc,[2,1,0]}`.
fn all_of_type(key: &[Term]) -> Option<&str> {
    match key {
        [Term::Atom(name), Term::List(instances)]
            if !instances.is_empty()
                && instances.iter().all(|number| matches!(number, Term::Integer(_) | Term::Cut)) =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// `recon_alloc:allocators(types)`: of each allocator what its instances have together.
fn allocators_by_type(list: &[Term]) -> Result<Told, &'static str> {
    let mut told = Told::default();
    for line in list {
        // The list is in no order of size, so some of it says little.
        if line.is_cut() {
            return Err(CUT_OFF);
        }
        let Some([Term::Tuple(key), Term::List(fields)]) = line.tuple() else { return Err(ODD_ALLOCATOR) };
        let values = all_of_type(key).and_then(|name| carriers(name, fields));
        told.values.extend(values.ok_or(ODD_ALLOCATOR)?);
    }
    if told.values.is_empty() { Err(ODD_ALLOCATOR) } else { Ok(told) }
}

/// Carriers and blocks of an allocator or one of its instances; `None` if a number is missing.
fn carriers(entity: &str, fields: &[Term]) -> Option<Vec<Value>> {
    let mut values = Vec::new();
    for (set, metrics) in ["mbcs", "sbcs", "mbcs_pool"].into_iter().zip(CARRIER_SETS) {
        let Some(sizes) = field(fields, set) else { continue };
        let sizes = sizes.list()?;
        let now = |name| {
            sizes.iter().find_map(|size| match size.tuple()? {
                [key, now, ..] if key.atom() == Some(name) => now.integer().filter(|now| *now >= 0),
                _ => None,
            })
        };
        let numbers = [now("carriers")?, now("carriers_size")?, now("blocks")?, now("blocks_size")?];
        if numbers[3] > numbers[1] {
            return None;
        }
        let of = |(metric, value)| Value::of(metric, entity, value);
        values.extend(metrics.into_iter().zip(numbers).map(of));
    }
    Some(values)
}

/// Mean sizes of blocks, of all instances of an allocator together.
fn means(term: &Term, list: &[Term], call: Option<&Call>) -> Result<Told, &'static str> {
    match arguments(call, "average_block_sizes") {
        Some("current") => {}
        Some("max") => return Err(LARGEST_MEANS),
        _ => return Err(WHICH_MEANS),
    }
    if term.is_cut() {
        return Err(CUT_OFF);
    }
    let mean = |line: &Term| {
        let [name, Term::List(fields)] = line.tuple()? else { return None };
        let of = |set| field(fields, set)?.number().filter(|mean| *mean >= 0.0);
        Some(Mean { allocator: name.atom()?.to_owned(), mbcs: of("mbcs")?, sbcs: of("sbcs")? })
    };
    let means: Option<Vec<Mean>> = list.iter().map(mean).collect();
    Ok(Told { means: means.ok_or(ODD_MEANS)?, remark: Some(ROUNDED_COUNTS), ..Told::default() })
}

/// Carriers by allocator: `memory(allocated_types)`.
fn types(term: &Term, list: &[Term], call: Option<&Call>) -> Result<Told, &'static str> {
    let sizes = sums(term, list, arguments(call, "memory"), "allocated_types")?;
    let names = list.iter().filter_map(|line| line.tuple()?.first()?.atom());
    let values = names.zip(&sizes).map(|(name, size)| Value::of(&metrics::CARRIERS_SIZE, name, *size));
    Ok(Told { values: values.collect(), ..all_carriers(Whole::AllocatedByType, &sizes) })
}

/// Carriers by instance, all allocators together: `memory(allocated_instances)`.
fn all_instances(term: &Term, list: &[Term], call: Option<&Call>) -> Result<Told, &'static str> {
    let sizes = sums(term, list, arguments(call, "memory"), INSTANCES)?;
    Ok(all_carriers(Whole::AllocatedByInstance, &sizes))
}

/// The sizes of a list with a name or number before each, as the call gives it that asks for `what`.
fn sums(term: &Term, list: &[Term], arguments: Option<&str>, what: &str) -> Result<Vec<i64>, &'static str> {
    is_current(arguments.and_then(|arguments| arguments.strip_prefix(what)).ok_or(WHICH_SUMS)?)?;
    if term.is_cut() {
        return Err(CUT_OFF);
    }
    let size = |line: &Term| match line.tuple()? {
        [_, size] => size.integer().filter(|size| *size >= 0),
        _ => None,
    };
    list.iter().map(size).collect::<Option<_>>().ok_or(ODD_SUM)
}

fn all_carriers(of: Whole, sizes: &[i64]) -> Told {
    let sum = sizes.iter().map(|size| *size as f64).sum();
    Told { whole: Some((of, sum)), ..Told::default() }
}

/// Of the arguments of `recon_alloc:memory` what stands behind the first one.
fn is_current(behind: &str) -> Result<(), &'static str> {
    match behind {
        "" | ",current" => Ok(()),
        ",max" => Err(LARGEST_SUMS),
        _ => Err(WHICH_SUMS),
    }
}

/// What a number tells that stands behind a call of `recon_alloc:memory`; `ends` if what follows shows that no digit is missing.
pub fn number(call: &Call, digits: &str, ends: bool) -> Option<Result<Told, &'static str>> {
    let arguments = arguments(Some(call), "memory")?;
    let (of, behind) = [
        (Whole::Allocated, "allocated"),
        (Whole::Used, "used"),
        (Whole::Unused, "unused"),
        (Whole::Usage, "usage"),
    ]
    .into_iter()
    .find_map(|(of, name)| Some((of, arguments.strip_prefix(name).filter(|rest| !rest.starts_with('_'))?)))?;
    let read = || {
        is_current(behind)?;
        if !ends {
            return Err(MAY_GO_ON);
        }
        let number = match of {
            Whole::Usage => digits.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0),
            _ => digits.replace('_', "").parse().ok().map(|bytes: u64| bytes as f64),
        };
        Ok(Told { whole: Some((of, number.ok_or(ODD_SUM)?)), ..Told::default() })
    };
    Some(read())
}
