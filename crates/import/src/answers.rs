//! Interprets results of `erlang:memory()`, `scheduler:utilization(…)` and `recon_alloc` that a shell printed as terms.

use beamtune_model::{Metric, metrics};

use crate::instrument::CARRIER_SETS;
use crate::part::{CARRIERS, MeanBlockSize, Omission, PartData, TRUNCATED, Tool, TotalKind, Value};
use crate::rabbitmq;
use crate::term::Term;

/// The tool that reports allocators.
pub const RECON: Tool = "recon_alloc";

/// The entry for memory that the VM maps without its allocators.
const MMAP: &str = "erts_mmap";

/// The kinds of memory that identify a result of `erlang:memory()`.
const MEMORY_KINDS: [&str; 3] = ["total", "processes", "system"];

/// Only utilizations are printed. Times derived from them are in nanoseconds, independent of the VM's native unit.
const NS_PER_US: i64 = 1_000;

/// The duration that is assumed if none was printed.
pub const DEFAULT_LENGTH_US: i64 = 1_000_000;

const WRONG_TOTAL: &str =
    "the total is not the sum of processes and system, so it is not a result of erlang:memory()";
const SOME_KINDS: &str = "some kinds of memory are missing: print erlang:memory()";
const RABBITMQ_KINDS: &str = "most kinds of memory that RabbitMQ prints are its own sums: print rabbitmq-diagnostics status --formatter json, or rabbitmqctl eval erlang:memory()";
const NO_SCHEDULER_KINDS: &str = "the kinds of the schedulers are missing: print scheduler:utilization(1)";
const NO_BYTES: &str = "an element is not a number of bytes";
const MALFORMED_UTILIZATION: &str = "it is not a result of scheduler:utilization: a utilization is not between 0 and 1, or schedulers are missing";
const WHICH_SIZES: &str =
    "these sizes may be current or maximum ones: also copy the call (recon_alloc:fragmentation(current))";
const MALFORMED_INSTANCE: &str = "it is not a result of recon_alloc:fragmentation: blocks are larger than their carriers, or a size is missing";
const MALFORMED_CACHE: &str =
    "it is not a result of recon_alloc:cache_hit_rates: more hits than calls, or a number is missing";
const WHICH_MEANS: &str = "these averages may be of current or maximum sizes: also copy the call (recon_alloc:average_block_sizes(current))";
const MAX_MEANS: &str =
    "these are averages of the maximum sizes: print recon_alloc:average_block_sizes(current)";
const MALFORMED_MEANS: &str =
    "it is not a result of recon_alloc:average_block_sizes: an average is missing or invalid";
const RATIOS: &str = "these ratios contain no sizes: print recon_alloc:fragmentation(current) and average_block_sizes(current)";
const WHICH_SUMS: &str =
    "these sums may be current or maximum ones: also copy the call (recon_alloc:memory(allocated_types))";
const MAX_SUMS: &str = "instances reach their maximum sizes at different times, so the sum is meaningless: print the current ones";
const MALFORMED_SUM: &str =
    "it is neither a number of bytes (recon_alloc:set_unit(byte)) nor a ratio between 0 and 1";
const MAY_CONTINUE: &str = "the number may be incomplete: copy the next line too";
const NO_ALLOCATOR: &str = "the allocator's name is missing: print recon_alloc:allocators(), or fragmentation(current), which is a summary";
const TRUNCATED_ALLOCATORS: &str = "the shell has truncated the list of allocators: print rp(recon_alloc:fragmentation(current)), which is shorter";
const MALFORMED_ALLOCATOR: &str = "it is not a result of recon_alloc:allocators: blocks are larger than their carriers, or a size is missing";
const TRUNCATED_FRAGMENTATION: &str =
    "the shell has truncated the list of allocators: print rp(recon_alloc:fragmentation(current))";
const TRUNCATED_UTILIZATION: &str = "the shell has truncated the list of schedulers after the normal ones: print rp(scheduler:utilization(1))";
const TRUNCATED_CACHE: &str =
    "the shell has truncated the list of instances: print rp(recon_alloc:cache_hit_rates())";
/// An argument of `recon_alloc:memory`.
const ALLOCATED_INSTANCES: &str = "allocated_instances";
const POOL: &str = "recon_alloc does not separate abandoned carriers from the others";
const ROUNDED_COUNTS: &str = "numbers of blocks are estimated from sizes and averages";

/// A call directly before a term, such as `recon_alloc:fragmentation(current)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub module: &'static str,
    pub function: String,
    /// The arguments, without brackets, spaces and colons.
    pub arguments: String,
}

/// Interprets a term; `None` if it is not the result of one of these tools.
pub fn interpret(term: &Term, call: Option<&Call>) -> Option<(Tool, Result<PartData, &'static str>)> {
    let list = term.list()?;
    let Some(after) = without_mmap(list) else { return interpret_list(term, list, call) };
    let why = if term.is_truncated() { TRUNCATED } else { MALFORMED_ALLOCATOR };
    interpret_list(term, after, call).or(Some((RECON, Err(why))))
}

/// Removes the entry `{{erts_mmap,0},…}`, which recon has printed before all allocators since 2.5.4, with a list of numbers or `false`. The
/// numbers do not concern carriers, and are ignored. `None` if there is no such entry.
fn without_mmap(list: &[Term]) -> Option<&[Term]> {
    let (first, after) = list.split_first()?;
    let [Term::Tuple(key), Term::List(_) | Term::Atom(_)] = first.tuple()? else { return None };
    let is_mmap = matches!(key.as_slice(), [Term::Atom(name), Term::Integer(_)] if name == MMAP);
    is_mmap.then_some(after)
}

fn interpret_list(
    term: &Term,
    list: &[Term],
    call: Option<&Call>,
) -> Option<(Tool, Result<PartData, &'static str>)> {
    let first = list.first()?.tuple()?;
    if is_rabbitmq_memory(list) {
        return Some((rabbitmq::TOOL, Err(RABBITMQ_KINDS)));
    }
    let is_call = |module: &str, function: &str| {
        call.is_some_and(|call| call.module == module && call.function == function)
    };
    match first {
        [Term::Integer(_), share] if share.number().is_some() && is_call("recon", "scheduler_usage") => {
            Some(("recon", Err(NO_SCHEDULER_KINDS)))
        }
        [Term::Atom(name), Term::Integer(_)] if name != "total" && is_call("erlang", "memory") => {
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
            Some((RECON, Err(NO_ALLOCATOR)))
        }
        [Term::Tuple(key), Term::List(values)] => instances(key, values, list, call),
        [Term::Tuple(key), value]
            if is_instance(key) && (value.number().is_some() || value.atom() == Some("infinity")) =>
        {
            Some((RECON, Err(RATIOS)))
        }
        [Term::Atom(name), Term::List(_)] if is_allocator(name) => Some((RECON, means(term, list, call))),
        [Term::Atom(name), size] if is_allocator(name) && size.number().is_some() => {
            Some((RECON, carriers_by_type(term, list, call)))
        }
        [Term::Integer(_), size]
            if size.number().is_some() && arguments(call, "memory")?.starts_with(ALLOCATED_INSTANCES) =>
        {
            Some((RECON, carriers_by_instance(term, list, call)))
        }
        _ => None,
    }
}

/// Whether the list is a result of `rabbitmqctl status`, or the list of kinds of memory within such a result.
fn is_rabbitmq_memory(list: &[Term]) -> bool {
    let is_memory = |kinds: &[Term]| field(kinds, "connection_readers").is_some();
    is_memory(list) || field(list, "memory").and_then(Term::list).is_some_and(is_memory)
}

/// Returns the arguments of a call, if it is a call of this function of recon_alloc.
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

fn memory(term: &Term, list: &[Term]) -> Result<PartData, &'static str> {
    if term.is_truncated() {
        return Err(TRUNCATED);
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
    let [total, processes, system] = MEMORY_KINDS.map(size);
    if processes.is_none() || system.is_none() {
        return Err(SOME_KINDS);
    }
    if total.is_none() || total != processes.zip(system).and_then(|(a, b)| a.checked_add(b)) {
        return Err(WRONG_TOTAL);
    }
    let values = kinds.iter().map(|(kind, size)| Value::named(&metrics::MEMORY, "", kind, *size)).collect();
    Ok(PartData { values, ..PartData::default() })
}

/// Returns the elements that a shell has printed completely, and whether it has truncated others.
fn split_truncated(list: &[Term]) -> (Vec<&Term>, bool) {
    let complete: Vec<&Term> = list.iter().filter(|line| !line.is_truncated()).collect();
    let is_truncated = complete.len() < list.len();
    (complete, is_truncated)
}

/// Returns the kind of a thread: the first element of an entry of `scheduler:utilization`.
fn kind_of(line: &Term) -> Option<&str> {
    line.tuple()?.first()?.atom()
}

fn utilization(list: &[Term], call: Option<&Call>) -> Result<PartData, &'static str> {
    let (lines, is_truncated) = split_truncated(list);
    // A dirty scheduler follows the last normal one. It is unknown how many dirty schedulers a truncated list lacks.
    if is_truncated && !list.iter().filter_map(kind_of).any(|kind| kind == "cpu") {
        return Err(TRUNCATED);
    }
    let mut threads: Vec<(&str, i64, f64)> = Vec::new();
    for line in lines {
        let Some(line) = line.tuple() else { return Err(MALFORMED_UTILIZATION) };
        let ([_, share, _] | [_, _, share, _]) = line else { return Err(MALFORMED_UTILIZATION) };
        let share = share.number().filter(|share| (0.0..=1.0).contains(share) || line.len() == 3);
        let share = share.ok_or(MALFORMED_UTILIZATION)?;
        match (line, line[0].atom()) {
            ([_, _, _], Some("total" | "weighted")) => {}
            ([_, _, _, _], Some("cpu" | "io")) if is_truncated => {}
            ([_, id, _, _], Some(kind)) => {
                threads.push((kind, id.integer().ok_or(MALFORMED_UTILIZATION)?, share));
            }
            _ => return Err(MALFORMED_UTILIZATION),
        }
    }
    let normal = list.iter().filter(|line| kind_of(line) == Some("normal")).count();
    if is_truncated && threads.len() < normal.max(1) {
        return Err(TRUNCATED);
    }
    // Ids are consecutive, and normal schedulers precede dirty ones.
    threads.sort_by_key(|(_, id, _)| *id);
    let are_consecutive = (1..).zip(&threads).all(|(n, (_, id, _))| n == *id);
    let (mut dirty_cpu, mut dirty_io) = (0, 0);
    let mut values = Vec::new();
    let seconds =
        call.filter(|call| call.function == "utilization").and_then(|call| call.arguments.parse().ok());
    let printed_us = seconds.and_then(|seconds: i64| seconds.checked_mul(1_000_000)).filter(|us| *us > 0);
    let length = printed_us.unwrap_or(DEFAULT_LENGTH_US).saturating_mul(NS_PER_US);
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
            _ => return Err(MALFORMED_UTILIZATION),
        };
        if rank < last {
            return Err(MALFORMED_UTILIZATION);
        }
        last = rank;
        values.push(Value::of(
            &metrics::SCHEDULER_ACTIVE,
            entity.as_str(),
            (share * length as f64).round() as i64,
        ));
        values.push(Value::of(&metrics::SCHEDULER_TOTAL, entity, length));
    }
    // Dirty CPU schedulers are always printed, after all normal ones.
    if !are_consecutive || dirty_cpu == 0 && !is_truncated {
        return Err(MALFORMED_UTILIZATION);
    }
    let omission =
        is_truncated.then_some(Omission { source: "vm.scheduler_wall_time", why: TRUNCATED_UTILIZATION });
    Ok(PartData { values, length_us: printed_us, omission, ..PartData::default() })
}

fn instances(
    key: &[Term],
    values: &[Term],
    list: &[Term],
    call: Option<&Call>,
) -> Option<(Tool, Result<PartData, &'static str>)> {
    match key {
        [Term::Atom(name), Term::Integer(_)] if name == "instance" => Some((RECON, cache(list))),
        _ if is_instance(key) && field(values, "mbcs_usage").is_some() => {
            Some((RECON, fragmentation(list, call)))
        }
        [Term::Atom(name), Term::Integer(_)] if is_allocator(name) && field(values, "options").is_some() => {
            Some((RECON, allocators(list)))
        }
        _ if summed_allocator(key).is_some_and(is_allocator) => Some((RECON, allocators_by_type(list))),
        _ => None,
    }
}

/// Returns the value of a key in a list of pairs.
pub fn field<'a>(values: &'a [Term], name: &str) -> Option<&'a Term> {
    values.iter().find_map(|value| match value.tuple()? {
        [key, value] if key.atom() == Some(name) => Some(value),
        _ => None,
    })
}

/// Returns the value of a key, if it is a non-negative integer.
pub fn amount(values: &[Term], name: &str) -> Option<i64> {
    field(values, name)?.integer().filter(|amount| *amount >= 0)
}

fn cache(list: &[Term]) -> Result<PartData, &'static str> {
    let (lines, is_truncated) = split_truncated(list);
    let omission = is_truncated.then_some(Omission { source: "vm.mseg", why: TRUNCATED_CACHE });
    let mut data = PartData { omission, ..PartData::default() };
    for line in lines {
        let Some([Term::Tuple(key), Term::List(fields)]) = line.tuple() else { return Err(MALFORMED_CACHE) };
        let [_, Term::Integer(instance)] = key.as_slice() else { return Err(MALFORMED_CACHE) };
        let (hits, calls) = amount(fields, "hits").zip(amount(fields, "calls")).ok_or(MALFORMED_CACHE)?;
        if hits > calls {
            return Err(MALFORMED_CACHE);
        }
        data.values.push(Value::of(&metrics::MSEG_ALLOCATIONS, instance.to_string(), calls));
        data.values.push(Value::of(&metrics::MSEG_CACHE_HITS, instance.to_string(), hits));
    }
    Ok(data)
}

fn fragmentation(list: &[Term], call: Option<&Call>) -> Result<PartData, &'static str> {
    let is_max =
        match call.filter(|call| call.function == "fragmentation").map(|call| call.arguments.as_str()) {
            Some("current") => false,
            Some("max") => true,
            _ => return Err(WHICH_SIZES),
        };
    let mut data = PartData { remark: Some(POOL), ..PartData::default() };
    for line in list {
        // The list is sorted by unused memory, so the shell has omitted the least important instances.
        if line.is_truncated() {
            data.omission = Some(Omission { source: CARRIERS, why: TRUNCATED_FRAGMENTATION });
            continue;
        }
        let Some([Term::Tuple(key), Term::List(fields)]) = line.tuple() else {
            return Err(MALFORMED_INSTANCE);
        };
        let [Term::Atom(name), Term::Integer(instance)] = key.as_slice() else {
            return Err(MALFORMED_INSTANCE);
        };
        let sizes = ["mbcs_carriers_size", "mbcs_block_size", "sbcs_carriers_size", "sbcs_block_size"]
            .map(|name| amount(fields, name));
        let [Some(mbcs), Some(mbcs_blocks), Some(sbcs), Some(sbcs_blocks)] = sizes else {
            return Err(MALFORMED_INSTANCE);
        };
        if mbcs_blocks > mbcs || sbcs_blocks > sbcs {
            return Err(MALFORMED_INSTANCE);
        }
        let entity = format!("{name}/{instance}");
        let current: [(&'static Metric, i64); 4] = [
            (&metrics::MBCS_CARRIERS_SIZE, mbcs),
            (&metrics::MBCS_BLOCKS_SIZE, mbcs_blocks),
            (&metrics::SBCS_CARRIERS_SIZE, sbcs),
            (&metrics::SBCS_BLOCKS_SIZE, sbcs_blocks),
        ];
        let max: [(&'static Metric, i64); 3] = [
            (&metrics::MBCS_CARRIERS_SIZE_MAX, mbcs),
            (&metrics::MBCS_BLOCKS_SIZE_MAX, mbcs_blocks),
            (&metrics::CARRIERS_SIZE_MAX, mbcs.saturating_add(sbcs)),
        ];
        let values = if is_max { max.as_slice() } else { current.as_slice() };
        data.values.extend(values.iter().map(|(metric, value)| Value::of(metric, entity.as_str(), *value)));
    }
    Ok(data)
}

/// Interprets a result of `recon_alloc:allocators()`, or the same list in a snapshot. For each instance, it contains the result of
/// `erlang:system_info({allocator, A})`, with the sum over all kinds of blocks.
fn allocators(list: &[Term]) -> Result<PartData, &'static str> {
    let mut data = PartData::default();
    for line in list {
        match instance(line) {
            Some(values) => data.values.extend(values),
            None if line.is_truncated() => {
                data.omission = Some(Omission { source: CARRIERS, why: TRUNCATED_ALLOCATORS });
            }
            None => return Err(MALFORMED_ALLOCATOR),
        }
    }
    Ok(data)
}

/// Returns the values of an allocator instance; empty for malloc, mseg_alloc and disabled allocators. `None` if a value is missing.
fn instance(line: &Term) -> Option<Vec<Value>> {
    let [Term::Tuple(key), Term::List(fields)] = line.tuple()? else { return None };
    let [Term::Atom(name), Term::Integer(instance)] = key.as_slice() else { return None };
    // A shell omits the last elements, which may be whole fields.
    if fields.iter().any(|field| field.tuple().is_none_or(|field| field.contains(&Term::Ellipsis))) {
        return None;
    }
    carriers(&format!("{name}/{instance}"), fields)
}

/// Returns the allocator of an entry of `recon_alloc:allocators(types)`, which are sums over instances: `{eheap_alloc,[2,1,0]}`.
fn summed_allocator(key: &[Term]) -> Option<&str> {
    match key {
        [Term::Atom(name), Term::List(instances)]
            if !instances.is_empty()
                && instances.iter().all(|number| matches!(number, Term::Integer(_) | Term::Ellipsis)) =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// Interprets a result of `recon_alloc:allocators(types)`: sums per allocator.
fn allocators_by_type(list: &[Term]) -> Result<PartData, &'static str> {
    let mut data = PartData::default();
    for line in list {
        // The list is not sorted by size, so an incomplete list is useless.
        if line.is_truncated() {
            return Err(TRUNCATED);
        }
        let Some([Term::Tuple(key), Term::List(fields)]) = line.tuple() else {
            return Err(MALFORMED_ALLOCATOR);
        };
        let values = summed_allocator(key).and_then(|name| carriers(name, fields));
        data.values.extend(values.ok_or(MALFORMED_ALLOCATOR)?);
    }
    if data.values.is_empty() { Err(MALFORMED_ALLOCATOR) } else { Ok(data) }
}

/// Returns number and size of carriers and blocks of an allocator or an instance; `None` if a number is missing.
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

/// Interprets a result of `recon_alloc:average_block_sizes(current)`: mean block sizes per allocator.
fn means(term: &Term, list: &[Term], call: Option<&Call>) -> Result<PartData, &'static str> {
    match arguments(call, "average_block_sizes") {
        Some("current") => {}
        Some("max") => return Err(MAX_MEANS),
        _ => return Err(WHICH_MEANS),
    }
    if term.is_truncated() {
        return Err(TRUNCATED);
    }
    let mean = |line: &Term| {
        let [name, Term::List(fields)] = line.tuple()? else { return None };
        let of = |set| field(fields, set)?.number().filter(|mean| *mean >= 0.0);
        Some(MeanBlockSize { allocator: name.atom()?.to_owned(), mbcs: of("mbcs")?, sbcs: of("sbcs")? })
    };
    let means: Option<Vec<MeanBlockSize>> = list.iter().map(mean).collect();
    Ok(PartData { means: means.ok_or(MALFORMED_MEANS)?, remark: Some(ROUNDED_COUNTS), ..PartData::default() })
}

/// Interprets a result of `recon_alloc:memory(allocated_types)`: the size of carriers per allocator.
fn carriers_by_type(term: &Term, list: &[Term], call: Option<&Call>) -> Result<PartData, &'static str> {
    let sizes = sums(term, list, arguments(call, "memory"), "allocated_types")?;
    let names = list.iter().filter_map(|line| line.tuple()?.first()?.atom());
    let values = names.zip(&sizes).map(|(name, size)| Value::of(&metrics::CARRIERS_SIZE, name, *size));
    Ok(PartData { values: values.collect(), ..carrier_total(TotalKind::AllocatedByType, &sizes) })
}

/// Interprets a result of `recon_alloc:memory(allocated_instances)`: the size of carriers per instance number, over all allocators.
fn carriers_by_instance(term: &Term, list: &[Term], call: Option<&Call>) -> Result<PartData, &'static str> {
    let sizes = sums(term, list, arguments(call, "memory"), ALLOCATED_INSTANCES)?;
    Ok(carrier_total(TotalKind::AllocatedByInstance, &sizes))
}

/// Returns the sizes in a list of pairs, if the first argument of the call is `what` and the sizes are current ones.
fn sums(term: &Term, list: &[Term], arguments: Option<&str>, what: &str) -> Result<Vec<i64>, &'static str> {
    check_current(arguments.and_then(|arguments| arguments.strip_prefix(what)).ok_or(WHICH_SUMS)?)?;
    if term.is_truncated() {
        return Err(TRUNCATED);
    }
    let size = |line: &Term| match line.tuple()? {
        [_, size] => size.integer().filter(|size| *size >= 0),
        _ => None,
    };
    list.iter().map(size).collect::<Option<_>>().ok_or(MALFORMED_SUM)
}

fn carrier_total(of: TotalKind, sizes: &[i64]) -> PartData {
    let sum = sizes.iter().map(|size| *size as f64).sum();
    PartData { total: Some((of, sum)), ..PartData::default() }
}

/// Checks that the arguments of `recon_alloc:memory` after the first one request current sizes.
fn check_current(after: &str) -> Result<(), &'static str> {
    match after {
        "" | ",current" => Ok(()),
        ",max" => Err(MAX_SUMS),
        _ => Err(WHICH_SUMS),
    }
}

/// Interprets a number after a call of `recon_alloc:memory`. `ends` means that no digit is missing, according to the following text.
pub fn number(call: &Call, digits: &str, ends: bool) -> Option<Result<PartData, &'static str>> {
    let arguments = arguments(Some(call), "memory")?;
    let (of, after) = [
        (TotalKind::Allocated, "allocated"),
        (TotalKind::Used, "used"),
        (TotalKind::Unused, "unused"),
        (TotalKind::Usage, "usage"),
    ]
    .into_iter()
    .find_map(|(of, name)| Some((of, arguments.strip_prefix(name).filter(|rest| !rest.starts_with('_'))?)))?;
    let read = || {
        check_current(after)?;
        if !ends {
            return Err(MAY_CONTINUE);
        }
        let number = match of {
            TotalKind::Usage => digits.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0),
            _ => digits.replace('_', "").parse().ok().map(|bytes: u64| bytes as f64),
        };
        Ok(PartData { total: Some((of, number.ok_or(MALFORMED_SUM)?)), ..PartData::default() })
    };
    Some(read())
}
