//! Answers of `erlang:memory()`, `scheduler:utilization(…)` and `recon_alloc`, which a shell has printed as terms.

use beamtune_model::{Metric, metrics};

use crate::part::{CUT_OFF, Told, Tool, Value};
use crate::term::Term;

/// The name of the tool that tells of allocators.
pub const RECON: Tool = "recon_alloc";

/// The fewest kinds of memory by which the list is known.
const OF_MEMORY: [&str; 3] = ["total", "processes", "system"];

/// Only shares are printed. The times that are made of them are in nanoseconds, whatever the VM's own unit is.
const NATIVE_PER_US: i64 = 1_000;

/// Of a length that nobody told, shares are of a second.
pub const UNKNOWN_LENGTH_US: i64 = 1_000_000;

const SUM: &str = "the total is not the sum of processes and system, so it is no answer of erlang:memory()";
const NO_BYTES: &str = "it holds something that is no number of bytes";
const ODD_UTILIZATION: &str =
    "it is not what scheduler:utilization gives: a share is not between 0 and 1, or schedulers are missing";
const WHICH_SIZES: &str = "whether these sizes are current or the largest is not known: copy the call too (recon_alloc:fragmentation(current))";
const ODD_INSTANCE: &str = "it is not what recon_alloc:fragmentation gives: blocks are larger than their carriers, or a size is missing";
const ODD_CACHE: &str =
    "it is not what recon_alloc:cache_hit_rates gives: more hits than calls, or a number is missing";
const AVERAGES: &str = "nothing is judged by averages or shares alone: print recon_alloc:fragmentation(current), which tells the sizes";
const PARTIAL: &str =
    "the shell has cut off the list of allocators: print rp(recon_alloc:fragmentation(current))";
const POOL: &str = "recon counts abandoned carriers with the others";

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
    let first = list.first()?.tuple()?;
    match first {
        [name, Term::Integer(_)] if name.atom() == Some("total") => {
            Some(("erlang:memory", memory(term, list)))
        }
        [name, Term::Float(_) | Term::Integer(_), Term::Text(_) | Term::Atom(_)]
            if name.atom() == Some("total") =>
        {
            Some(("scheduler:utilization", utilization(term, list, call)))
        }
        [Term::Tuple(key), Term::List(values)] => instances(key, values, term, list, call),
        [Term::Tuple(key), value] if value.number().is_some() && is_instance(key) => {
            Some((RECON, Err(AVERAGES)))
        }
        [Term::Atom(name), Term::List(_) | Term::Integer(_)] if is_allocator(name) => {
            Some((RECON, Err(AVERAGES)))
        }
        _ => None,
    }
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
    if total.is_none() || total != processes.zip(system).and_then(|(a, b)| a.checked_add(b)) {
        return Err(SUM);
    }
    let values = kinds.iter().map(|(kind, size)| Value::named(&metrics::MEMORY, "", kind, *size)).collect();
    Ok(Told { values, ..Told::default() })
}

fn utilization(term: &Term, list: &[Term], call: Option<&Call>) -> Result<Told, &'static str> {
    if term.is_cut() {
        return Err(CUT_OFF);
    }
    let mut threads: Vec<(&str, i64, f64)> = Vec::new();
    for line in list.iter().filter_map(Term::tuple) {
        let ([_, share, _] | [_, _, share, _]) = line else { return Err(ODD_UTILIZATION) };
        let share = share.number().filter(|share| (0.0..=1.0).contains(share) || line.len() == 3);
        let share = share.ok_or(ODD_UTILIZATION)?;
        match (line, line[0].atom()) {
            ([_, _, _], Some("total" | "weighted")) => {}
            ([_, id, _, _], Some(kind)) => threads.push((kind, id.integer().ok_or(ODD_UTILIZATION)?, share)),
            _ => return Err(ODD_UTILIZATION),
        }
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
    if !in_turn || dirty_cpu == 0 {
        return Err(ODD_UTILIZATION);
    }
    Ok(Told { values, length_us: told_us, ..Told::default() })
}

fn instances(
    key: &[Term],
    values: &[Term],
    term: &Term,
    list: &[Term],
    call: Option<&Call>,
) -> Option<(Tool, Result<Told, &'static str>)> {
    match key {
        [Term::Atom(name), Term::Integer(_)] if name == "instance" => Some((RECON, cache(term, list))),
        _ if is_instance(key) && field(values, "mbcs_usage").is_some() => {
            Some((RECON, fragmentation(list, call)))
        }
        _ => None,
    }
}

fn field<'a>(values: &'a [Term], name: &str) -> Option<&'a Term> {
    values.iter().find_map(|value| match value.tuple()? {
        [key, value] if key.atom() == Some(name) => Some(value),
        _ => None,
    })
}

fn amount(values: &[Term], name: &str) -> Option<i64> {
    field(values, name)?.integer().filter(|amount| *amount >= 0)
}

fn cache(term: &Term, list: &[Term]) -> Result<Told, &'static str> {
    if term.is_cut() {
        return Err(CUT_OFF);
    }
    let mut told = Told::default();
    for line in list {
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
            told.partial = Some(PARTIAL);
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
