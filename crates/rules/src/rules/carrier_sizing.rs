//! BT045: carriers do not fit the blocks: blocks a little too large to share one, or carriers hardly larger than the blocks in them.

use beamtune_model::memory::{Allocator, Carriers, allocators};
use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::memory::{self, PAGE_BYTES, PAGE_SECONDS, Segments, megabytes};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT045"),
    name: "carrier-sizing",
    question: "Do the sizes of carriers fit the blocks in them?",
    confirm: "both sizes raised on one node, under the same load: carriers per block and resident memory must fall (beamtune compare)",
    needs: &[&metrics::RSS, &metrics::MBCS_CARRIERS_SIZE, &metrics::SBCS_CARRIERS_SIZE],
    account: Account::CpuUsed,
    role: Role::Symptom,
    topics: &[Topic::MemoryCpu],
    text: Some("what recon_alloc:fragmentation(current) and average_block_sizes(current) print"),
    judge,
    thresholds: &[COST, MAPPINGS, WASTE],
    ..Rule::COMMON
};

/// Of the CPU that the VM uses, what mapping these carriers again and again takes.
const COST: Threshold = Threshold::new(
    "carrier-sizing.cpu_share",
    "mapping of these carriers, share of the CPU that the VM uses",
    Scale { notice: 0.02, warning: 0.10, critical: 0.50, source: "judgement; 2.2 µs a page were measured" },
);

/// Below this nobody would win anything by it, however little else the VM does.
const WORTH_CORES: f64 = 0.05;

/// Mappings, as a share of those that the kernel allows a process.
const MAPPINGS: Threshold = Threshold::new(
    "carrier-sizing.mappings_share",
    "mappings of these carriers, share of the kernel's limit",
    Scale {
        notice: 0.10,
        warning: 0.40,
        critical: 0.90,
        source: "the kernel's default of vm.max_map_count, 65,530: beyond it no memory can be had",
    },
);
const MOST_MAPPINGS: f64 = 65_530.0;

/// Single-block carriers that an instance maps itself, unless it is told otherwise (`mmsbc`); those beyond are malloc's.
const MOST_MAPPED: f64 = 256.0;

/// Where it costs neither: worth knowing.
const WORTH_KNOWING: f64 = 10.0;

/// Below this, or below this share of what is resident, it is not worth a change.
const WORTH_BYTES: f64 = 64e6;
const WORTH_SHARE: f64 = 0.05;

/// Blocks that are larger than so many thresholds are meant to have a carrier of their own.
const A_LITTLE_ABOVE: f64 = 4.0;

/// A carrier of fewer of its largest blocks wastes what is left at its end (the default has ten and more; erlang/otp#9521).
const FEW_BLOCKS: f64 = 8.0;

/// Carriers that are used better than this waste nothing.
const WELL_USED: f64 = 0.85;

/// What is in effect for an allocator, sizes in kB.
struct Sizes {
    sbct: f64,
    lmbcs: f64,
    /// Single-block carriers that all instances together map themselves, at most.
    mapped: f64,
}

impl Sizes {
    fn of(period: &Period, letter: char) -> Sizes {
        let given = |name: &str| view::allocator_flag(&period.facts, letter, name);
        let size = |name, default| given(name).filter(|kb| *kb > 0.0).unwrap_or(default);
        let schedulers = period.facts.number(facts::SCHEDULERS);
        // By default schedulers have half of the largest carrier each, where there is more than one.
        let split = schedulers.unwrap_or(2).clamp(1, 2) as f64;
        // Each scheduler has an instance, and all other threads share one.
        let each = given("mmsbc").filter(|count| *count >= 0.0).unwrap_or(MOST_MAPPED);
        let mapped = schedulers.map_or(f64::INFINITY, |schedulers| each * (schedulers as f64 + 1.0));
        Sizes { sbct: size("sbct", memory::DEFAULT_SBCT_KB), lmbcs: size("lmbcs", 10_240.0 / split), mapped }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let all = allocators(period);
    let (resident, _) = memory::resident_or_carriers(period, &all)?;
    let Some(first) = all.first() else {
        return Err(period.missing_group(Group::Allocator, "sizes of carriers and blocks"));
    };
    let worth = WORTH_BYTES.max(WORTH_SHARE * resident);
    if period.is_imported() {
        all_counted(period, &all, worth)?;
    } else {
        let entity = format!("{}/0", first.name);
        period.stat(&metrics::MBCS_CARRIERS_SIZE, &entity)?;
        period.stat(&metrics::SBCS_CARRIERS_SIZE, &entity)?;
    }
    let drafts = all.iter().filter_map(|allocator| {
        // These have no limit, or hold nothing for long.
        if matches!(&*allocator.name, "temp_alloc" | "ll_alloc" | "literal_alloc") {
            return None;
        }
        let letter = beamtune_flags::allocator(&allocator.name)?.letter;
        let sizes = Sizes::of(period, letter);
        alone(period, allocator, letter, &sizes, worth)
            .or_else(|| crowded(period, allocator, letter, &sizes, (worth, resident)))
    });
    let drafts: Vec<Draft> = drafts.collect();
    if drafts.is_empty() {
        memory::all_carriers(period)?;
    }
    let single = all.iter().fold(0_i64, |sum, allocator| sum.saturating_add(allocator.sbcs.size));
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("blocks with a carrier of their own take {}, where that is not their size's due", {
            megabytes(single as f64)
        }),
    ))
}

/// That imported text tells how many blocks there are, where that matters: mostly it tells sizes alone.
fn all_counted(period: &Period, all: &[Allocator], worth: f64) -> Result<(), Missing> {
    let counted = |carriers: Carriers| carriers.blocks > 0 || (carriers.size as f64) < worth;
    match all.iter().all(|allocator| counted(allocator.sbcs) && counted(allocator.multiblock())) {
        true => Ok(()),
        false => Err(period.missing_group(Group::Allocator, "the numbers of blocks")),
    }
}

/// Blocks a little above the threshold.
fn alone(period: &Period, allocator: &Allocator, letter: char, sizes: &Sizes, worth: f64) -> Option<Draft> {
    let single = allocator.sbcs;
    let mean_kb = single.mean_block()? / 1024.0;
    let most = single.blocks_size as f64 >= 0.5 * allocator.all().blocks_size as f64;
    if !most || (single.size as f64) < worth || mean_kb > A_LITTLE_ABOVE * sizes.sbct {
        return None;
    }
    // Imported text tells nothing of it, and nothing of the flags.
    let is_timed = allocator.segments_asked_per_s.is_some();
    let asked = allocator.segments_asked_per_s.unwrap_or(0.0);
    let anew = Segments::of(period).map_or(asked, |segments| asked * (1.0 - segments.hits));
    let cores = anew * (mean_kb * 1024.0 / PAGE_BYTES).ceil() * PAGE_SECONDS;
    let used = view::process_cores(period).ok().filter(|cores| *cores > 0.0);
    let share = used.map_or(0.0, |used| (cores / used).min(1.0));
    let mapped = mappings(period, single, sizes);
    let cost = COST.of(period).severity(share).filter(|_| cores >= WORTH_CORES);
    let by_mappings = MAPPINGS.of(period).severity(mapped / MOST_MAPPINGS);
    let severity = [cost, by_mappings].into_iter().flatten().fold(WORTH_KNOWING, f64::max);
    let sbct = fitting_sbct_kb(mean_kb);
    let prove = "the same load: page faults and CPU in the kernel; beamtune memory: single-block carriers must be gone";
    let name = &allocator.name;
    let runtime = format!("erlang:system_flag(erts_alloc, {{{name}, sbct, {}}})", sbct * 1024.0);
    let draft = Draft::new(
        severity,
        format!(
            "{} blocks of {name}, {mean_kb:.0} kB each on average, have a carrier of their own each: the threshold is {:.0} kB",
            single.blocks, sizes.sbct
        ),
    )
    .minor_if(by_mappings.is_none() && view::is_little_cpu(period, cores))
    .about(Subject::allocator(name.as_str()))
    .costs(if cost.is_some() && cost >= by_mappings { Cost::CpuCores(cores) } else { Cost::MemoryBytes(single.free() as f64) })
    .because(Evidence::number("in single-block carriers", single.size as f64, Unit::Bytes))
    .because(Evidence::number("these carriers", single.count as f64, Unit::Count))
    .because(Evidence::number("mappings that they make at most", mapped, Unit::Count).against(
        MAPPINGS.of(period).warning * MOST_MAPPINGS,
        MAPPINGS.of(period).source,
    ))
    .because(Evidence::number("used by no block", single.free() as f64, Unit::Bytes))
    .because_some(is_timed.then(|| Evidence::number("asked for by it", asked, Unit::PerSecond)))
    .because_some(is_timed.then(|| Evidence::number("of these mapped anew", anew, Unit::PerSecond)))
    .because_some(is_timed.then(|| {
        let what = "CPU that this takes, of what the VM uses";
        Evidence::number(what, share, Unit::Ratio).against_scale(COST.of(period))
    }));
    let risk = "a carrier goes back only when all of its blocks are gone: blocks that live longer than others then keep more";
    Some(
        draft
            .but(risk)
            .but_if(!is_timed, "how often they are asked for is not known, so what it costs is not, either")
            .but_if(period.is_imported(), "flags are not told: the default threshold was taken")
            .fix(remedy::of(
                period,
                "+M<S>sbct",
                &format!("{}, both together", memory::sharing_carriers(letter, sbct)),
                "blocks of that size then share carriers, which stay mapped",
                prove,
            ))
            .fix(remedy::of(
                period,
                "system_flag.erts_alloc_sbct",
                &runtime,
                "to try it: for blocks from then on",
                prove,
            )),
    )
}

/// The mappings that single-block carriers can have made. The kernel merges neighbours, so that there are mostly far fewer.
fn mappings(period: &Period, single: Carriers, sizes: &Sizes) -> f64 {
    let counted = period.entities(Group::HostMapping).into_iter();
    let all: Option<f64> = counted
        .filter_map(|kind| Some(period.stat(&metrics::MAPPING_COUNT, kind).ok()?.last.value as f64))
        .reduce(|a, b| a + b);
    (single.count as f64).min(sizes.mapped).min(all.unwrap_or(f64::INFINITY))
}

/// Carriers hardly larger than the blocks in them, by a flag.
fn crowded(
    period: &Period,
    allocator: &Allocator,
    letter: char,
    sizes: &Sizes,
    (worth, resident): (f64, f64),
) -> Option<Draft> {
    let carriers = allocator.multiblock();
    let free = carriers.free() as f64;
    let ratio = sizes.lmbcs / sizes.sbct;
    let used = carriers.used()?;
    // Small blocks leave nothing at the end of any carrier.
    let large = carriers.mean_block()? / 1024.0 * FEW_BLOCKS * 2.0 >= sizes.lmbcs;
    if ratio >= FEW_BLOCKS || (carriers.size as f64) < worth || used >= WELL_USED || !large {
        return None;
    }
    let resident = resident.max(1.0);
    let severity = WASTE.of(period).severity(free / resident)?;
    let name = &allocator.name;
    let prove =
        "beamtune memory before and after, under the same load: used share of the carriers, and their number";
    Some(
        Draft::new(
            severity,
            format!(
                "{name} has {} carriers of {:.0} kB at most for blocks of up to {:.0} kB: so few fit in that {} of them are used by no block",
                carriers.count,
                sizes.lmbcs,
                sizes.sbct,
                megabytes(free)
            ),
        )
        .about(Subject::allocator(name.as_str()))
        .costs(Cost::MemoryBytes(free))
        .because(Evidence::number("largest carrier for each largest block", ratio, Unit::Ratio).against(FEW_BLOCKS, "the default has ten and more; erlang/otp#9521"))
        .because(Evidence::number("of the carriers used", used, Unit::Ratio).against(WELL_USED, "judgement"))
        .because(Evidence::number("used by no block", free, Unit::Bytes).with_text(format!("{:.0} % of what is resident", free / resident * 100.0)))
        .because(Evidence::number("average block", carriers.mean_block()?, Unit::Bytes))
        .fix(remedy::of(
            period,
            "+M<S>lmbcs",
            &format!("+M{letter}lmbcs {:.0}, or leave it out", (10.0 * sizes.sbct).max(5_120.0)),
            "what is left at the end of a carrier is then a small part of it",
            prove,
        ))
        .fix(remedy::of(
            period,
            "+M<S>sbct",
            &format!("+M{letter}sbct {:.0}, if the carriers are to stay small", (sizes.lmbcs / 10.0).floor().max(1.0)),
            "large blocks then have a carrier of their own, which goes back with them",
            prove,
        )),
    )
}

/// Of what is resident, what lies unused in carriers that are too small.
const WASTE: Threshold = Threshold::new(
    "carrier-sizing.unused_share",
    "unused memory in small carriers, share of resident memory",
    Scale { notice: 0.05, warning: 0.25, critical: 0.70, source: "judgement: as of fragmented-carriers" },
);

/// A threshold that blocks of this mean size stay below.
fn fitting_sbct_kb(mean_kb: f64) -> f64 {
    (2.0 * mean_kb).log2().ceil().exp2().clamp(1_024.0, 65_536.0)
}
