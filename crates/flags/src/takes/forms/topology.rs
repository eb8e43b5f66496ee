//! The CPU topology of `+sct`: `L0-3c0-3p0:L4-7c0-3p1`.
//!
//! Entries are separated by colons. Each entry lists logical processors and their threads, cores, processors and
//! NUMA nodes, from the inner to the outer level. The checks are those of `erts_init_cpu_topology_string` in OTP 23
//! to 27.

/// Maximum id on any level (`ERTS_MAX_CPU_TOPOLOGY_ID`).
const MAX_ID: i64 = 0xffff;

/// Maximum number of CPUs, above that of any host. Limits the time for input such as `L0-65535:L0-65535:…`.
const MAX_CPUS: usize = 1 << 17;

/// A logical processor and its position in the topology. Levels that the entry omits have the emulator's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cpu {
    node: i64,
    processor: i64,
    processor_node: i64,
    core: i64,
    thread: i64,
    logical: i64,
}

/// The levels of the topology, from inner to outer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Logical,
    Thread,
    Core,
    ProcessorNode,
    Processor,
    Node,
}

/// Checks whether a VM accepts this topology. The error is the reason why not.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("missing CPU topology".to_owned());
    }
    let mut cpus = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        rest = entry(rest, &mut cpus)?;
        if cpus.len() > MAX_CPUS {
            return Err(format!("more than {MAX_CPUS} CPUs"));
        }
    }
    verify(cpus)
}

/// Parses one entry, appends its CPUs to `cpus` and returns the rest of the text.
fn entry<'t>(text: &'t str, cpus: &mut Vec<Cpu>) -> Result<&'t str, String> {
    let mut levels: [Option<Vec<i64>>; 6] = Default::default();
    let mut last = None;
    let mut rest = text;
    while let Some(letter) = rest.chars().next().filter(|&letter| letter != ':') {
        let level =
            level(letter, rest, last).ok_or_else(|| format!("`{letter}` is not the letter of a level"))?;
        if last.is_some_and(|last| level <= last) {
            return Err(format!("`{letter}` is out of order; the order is L, t, c, p, n"));
        }
        last = Some(level);
        let (ids, after) = ids(rest.get(letter.len_utf8()..).unwrap_or_default())?;
        if let Some(place) = levels.get_mut(level as usize) {
            *place = Some(ids);
        }
        rest = after;
    }
    let [logical, thread, core, processor_node, processor, node] = levels;
    let logical = logical.ok_or("missing logical processors (L)")?;
    // A single id applies to all logical processors of the entry; otherwise there is one id for each of them.
    let of = |ids: Option<&[i64]>, absent: i64, at: usize| match ids {
        None => Ok(absent),
        Some([one]) => Ok(*one),
        Some(many) if many.len() == logical.len() => Ok(many.get(at).copied().unwrap_or(absent)),
        Some(many) => Err(format!("{} numbers for {} logical processors", many.len(), logical.len())),
    };
    for (at, &logical) in logical.iter().enumerate() {
        cpus.push(Cpu {
            node: of(node.as_deref(), -1, at)?,
            processor: of(processor.as_deref(), 0, at)?,
            processor_node: of(processor_node.as_deref(), -1, at)?,
            core: of(core.as_deref(), 0, at)?,
            thread: of(thread.as_deref(), 0, at)?,
            logical,
        });
    }
    Ok(rest.strip_prefix(':').unwrap_or(rest))
}

/// Returns the level of a letter. A node that precedes the processor of its entry is inside that processor.
fn level(letter: char, rest: &str, last: Option<Level>) -> Option<Level> {
    Some(match letter {
        'L' => Level::Logical,
        't' | 'T' => Level::Thread,
        'c' | 'C' => Level::Core,
        'p' | 'P' => Level::Processor,
        'n' | 'N' => {
            let entry = rest.split(':').next().unwrap_or_default();
            let inside = last < Some(Level::Processor) && entry.contains(['p', 'P']);
            if inside { Level::ProcessorNode } else { Level::Node }
        }
        _ => return None,
    })
}

/// Parses comma-separated ids and ranges, ascending or descending, and returns them with the rest of the text.
fn ids(text: &str) -> Result<(Vec<i64>, &str), String> {
    let mut ids = Vec::new();
    let mut rest = text;
    loop {
        let (first, after) = id(rest)?;
        rest = after;
        match rest.strip_prefix('-') {
            Some(range) => {
                let (last, after) = id(range)?;
                rest = after;
                if first <= last { ids.extend(first..=last) } else { ids.extend((last..=first).rev()) }
            }
            None => ids.push(first),
        }
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Ok((ids, rest)),
        }
        if ids.len() > MAX_CPUS {
            return Err(format!("more than {MAX_CPUS} CPUs"));
        }
    }
}

fn id(text: &str) -> Result<(i64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    match digits.parse::<i64>() {
        Ok(id) if id <= MAX_ID => Ok((id, rest)),
        _ => Err(format!("expected a number from 0 to {MAX_ID} before `{rest}`")),
    }
}

/// Verifies a topology as `verify_topology` of the emulator does.
fn verify(mut cpus: Vec<Cpu>) -> Result<(), String> {
    let mut logical: Vec<_> = cpus.iter().map(|cpu| cpu.logical).collect();
    logical.sort_unstable();
    if let Some(twice) = logical.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("logical processor {} is listed twice", twice[0]));
    }
    cpus.sort_unstable_by_key(|cpu| {
        (cpu.processor, cpu.node, cpu.processor_node, cpu.core, cpu.thread, cpu.logical)
    });
    let place = |cpu: &Cpu| (cpu.processor, cpu.node, cpu.processor_node, cpu.core, cpu.thread);
    if cpus.windows(2).any(|pair| place(&pair[0]) == place(&pair[1])) {
        return Err("two logical processors have the same place in the topology".to_owned());
    }
    let without_nodes = cpus.first().is_some_and(|cpu| cpu.node < 0 && cpu.processor_node < 0);
    let nodes_differ = cpus.windows(2).any(|pair| {
        let (before, cpu) = (&pair[0], &pair[1]);
        if without_nodes {
            return cpu.node >= 0 || cpu.processor_node >= 0;
        }
        (cpu.processor == before.processor && cpu.node != before.node)
            || (cpu.node >= 0) == (cpu.processor_node >= 0)
    });
    if nodes_differ {
        return Err("some CPUs have a NUMA node and others have none".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn topologies_that_the_emulator_accepts_are_accepted() {
        for text in [
            "L0-1c0-1",
            "L0c0",
            "L0-3c0-3p0N0:L4-7c0-3p1N1",
            "L0,4t0-1c0p0:L1,5t0-1c1p0",
            "L0-1t0-1c0p0n0",
            "L1-0c0-1",
            "L0-1c0-1n0p0",
            "L0-1t0-1:",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_topologies_are_rejected() {
        for text in [
            "",
            "0-1",
            "l0-1",
            "L",
            "L0-",
            "L0-65536c0-65536",
            "c0-1L0-1",
            "L0-1c0-1c0-1",
            "c0",
            "L0-1",
            "L0-1c0-2",
            "L0,0c0-1",
            "L0c0:L0c1",
            "L0c0p0n0:L1c0p1",
            "L0-1c0-1x0",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
