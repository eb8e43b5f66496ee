//! Allocators: in total, and per instance.

use beamtune_model::memory::{self, Carriers};
use beamtune_model::{Group, Metric, Period, facts, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Renders one row per allocator, summed over its instances, and the hit rate of the mseg segment cache.
pub fn allocators(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[
        ("allocator", Left),
        ("carriers", Right),
        ("largest", Right),
        ("blocks", Right),
        ("used", Right),
        ("mbcs", Right),
        ("used", Right),
        ("block", Right),
        ("sbcs", Right),
        ("used", Right),
        ("block", Right),
        ("sbct", Right),
        ("pool", Right),
        ("used", Right),
        ("calls", Right),
    ]);
    let mean = |carriers: Carriers| carriers.mean_block().map_or(String::new(), text::bytes);
    for allocator in memory::allocators(period) {
        let all = allocator.all();
        table.row([
            text::clean(&allocator.name),
            size(all.size),
            size(allocator.max_size),
            size(all.blocks_size),
            text::share(all.used()),
            size(allocator.mbcs.size),
            text::share(allocator.mbcs.used()),
            mean(allocator.multiblock()),
            size(allocator.sbcs.size),
            text::share(allocator.sbcs.used()),
            mean(allocator.sbcs),
            threshold(period, &allocator.name).unwrap_or_default(),
            size(allocator.pool.size),
            text::share(allocator.pool.used()),
            allocator.allocations_per_s.map_or(String::new(), |calls| format!("{}/s", text::decimal(calls))),
        ]);
    }
    let mut out = table.render(style);
    if !table.is_empty() {
        let legend = "largest: maxima of the instances since the VM started, added up; block: mean size; sbct: singleblock carrier threshold";
        out.push_str(&format!("{}\n", style.dim(&text::wrap(legend, style.width, ""))));
    }
    for instance in period.entities(Group::Mseg) {
        let hits = period.rate(&metrics::MSEG_CACHE_HITS, instance);
        let asked = period.rate(&metrics::MSEG_ALLOCATIONS, instance);
        if let (Ok(hits), Ok(asked)) = (hits, asked)
            && asked > 0.0
        {
            out.push_str(&format!(
                "segment cache {}: {:.0} % hits, {} requests/s\n",
                text::clean(instance),
                hits * 100.0 / asked,
                text::decimal(asked)
            ));
        }
    }
    out
}

/// Renders one row per allocator instance: current values, maxima in this recording, and maxima since the VM was started.
pub fn instances(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[
        ("instance", Left),
        ("mbcs", Right),
        ("used", Right),
        ("max recorded", Right),
        ("max ever", Right),
        ("pool", Right),
        ("used", Right),
        ("max recorded", Right),
        ("sbcs", Right),
        ("used", Right),
        ("max recorded", Right),
    ]);
    for entity in period.entities(Group::Allocator) {
        let stat = |metric: &Metric| period.find(metric.group, entity, metric.name);
        let last = |metric: &Metric| stat(metric).map_or(0, |stat| stat.last.value);
        let most = |metric: &Metric| size(stat(metric).map_or(0, |stat| stat.max));
        let used = |blocks: &Metric, carriers: &Metric| {
            let carriers = last(carriers);
            text::share((carriers > 0).then(|| last(blocks) as f64 / carriers as f64))
        };
        use metrics::*;
        if !entity.contains('/')
            || [&MBCS_CARRIERS_SIZE, &POOL_CARRIERS_SIZE, &SBCS_CARRIERS_SIZE].iter().all(|of| last(of) == 0)
        {
            continue;
        }
        table.row([
            text::clean(entity),
            size(last(&MBCS_CARRIERS_SIZE)),
            used(&MBCS_BLOCKS_SIZE, &MBCS_CARRIERS_SIZE),
            most(&MBCS_CARRIERS_SIZE),
            size(last(&MBCS_CARRIERS_SIZE_MAX)),
            size(last(&POOL_CARRIERS_SIZE)),
            used(&POOL_BLOCKS_SIZE, &POOL_CARRIERS_SIZE),
            most(&POOL_CARRIERS_SIZE),
            size(last(&SBCS_CARRIERS_SIZE)),
            used(&SBCS_BLOCKS_SIZE, &SBCS_CARRIERS_SIZE),
            most(&SBCS_CARRIERS_SIZE),
        ]);
    }
    table.render(style)
}

fn size(bytes: i64) -> String {
    if bytes > 0 { text::bytes(bytes as f64) } else { String::new() }
}

/// Returns the singleblock carrier threshold of an allocator: from its own flag, from the flag for all allocators, or the default.
fn threshold(period: &Period, allocator: &str) -> Option<String> {
    let known = beamtune_flags::allocator(allocator)?;
    let args = period.facts.list(facts::EMU_ARGS)?;
    let flag = |letter: char| beamtune_flags::effective_value(&args, &format!("+M{letter}sbct"));
    if let Some(kilobytes) = flag(known.letter).or_else(|| flag('u')) {
        return Some(text::bytes(kilobytes.parse::<f64>().ok()? * 1024.0));
    }
    let schedulers = period.facts.number(facts::SCHEDULERS_ONLINE).and_then(|n| u64::try_from(n).ok());
    let defaults = known.default_options(period.facts.otp_release()?, schedulers.unwrap_or(1));
    // The largest possible number means that there is no threshold.
    let bytes = defaults.get("sbct")?.parse::<f64>().ok()?;
    Some(if bytes < 1e15 { text::bytes(bytes) } else { "none".to_owned() })
}
