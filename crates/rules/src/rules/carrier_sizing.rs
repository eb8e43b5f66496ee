//! BT045: carriers do not fit their blocks: most blocks are slightly larger than the singleblock threshold, or carriers hold few blocks.

use beamtune_model::memory::{Allocator, Carriers, allocators};
use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::memory::{self, PAGE_BYTES, PAGE_SECONDS, Segments, format_bytes};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT045"),
    name: "carrier-sizing",
    question: "Do the sizes of carriers fit the blocks in them?",
    confirm: "raise both sizes on one node under the same load (beamtune compare): carriers per block and resident memory fall",
    needs: &[&metrics::RSS, &metrics::MBCS_CARRIERS_SIZE, &metrics::SBCS_CARRIERS_SIZE],
    account: Account::CpuUsed,
    role: Role::Symptom,
    topics: &[Topic::MemoryCpu],
    text: Some("the output of recon_alloc:fragmentation(current) and average_block_sizes(current)"),
    judge,
    thresholds: &[COST, MAPPINGS, WASTE],
    ..Rule::COMMON
};

const COST: Threshold = Threshold::new(
    "carrier-sizing.cpu_share",
    "mapping of these carriers, share of the CPU that the VM uses",
    Scale { notice: 0.02, warning: 0.10, critical: 0.50, source: "judgement; 2.2 µs a page were measured" },
);

/// Minimum CPU time that is reported as a cost, however little else the VM does.
const MIN_COST_CORES: f64 = 0.05;

const MAPPINGS: Threshold = Threshold::new(
    "carrier-sizing.mappings_share",
    "mappings of these carriers, share of the kernel's limit",
    Scale {
        notice: 0.10,
        warning: 0.40,
        critical: 0.90,
        source: "the kernel's default of vm.max_map_count, 65,530: beyond it mmap fails",
    },
);
const MAX_MAPPINGS: f64 = 65_530.0;

/// Number of singleblock carriers that an instance maps itself by default (`mmsbc`); further ones come from malloc.
const DEFAULT_MMSBC: f64 = 256.0;

/// Severity if it costs neither CPU nor mappings.
const NOTICE: f64 = 10.0;

/// Minimum size of carriers that are reported: in bytes, and as a share of resident memory.
const MIN_BYTES: f64 = 64e6;
const MIN_RESIDENT_SHARE: f64 = 0.05;

/// Blocks larger than this multiple of the threshold are meant to have their own carriers.
const MAX_THRESHOLDS: f64 = 4.0;

/// A carrier that holds fewer of its largest blocks wastes the space at its end. The default size holds at least ten (erlang/otp#9521).
const MIN_BLOCKS_PER_CARRIER: f64 = 8.0;

/// Carriers with a higher utilization waste nothing.
const GOOD_UTILIZATION: f64 = 0.85;

/// Settings in effect for an allocator; sizes in kB.
struct Sizes {
    sbct: f64,
    lmbcs: f64,
    /// Maximum number of singleblock carriers that all instances together map themselves.
    mapped: f64,
}

impl Sizes {
    fn of(period: &Period, letter: char) -> Sizes {
        let given = |name: &str| view::allocator_flag(&period.facts, letter, name);
        let size = |name, default| given(name).filter(|kb| *kb > 0.0).unwrap_or(default);
        let schedulers = period.facts.number(facts::SCHEDULERS);
        // With more than one scheduler, the default carrier size is halved.
        let split = schedulers.unwrap_or(2).clamp(1, 2) as f64;
        // Each scheduler has an instance, and all other threads share one.
        let each = given("mmsbc").filter(|count| *count >= 0.0).unwrap_or(DEFAULT_MMSBC);
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
    let min_bytes = MIN_BYTES.max(MIN_RESIDENT_SHARE * resident);
    if period.is_imported() {
        check_block_counts(period, &all, min_bytes)?;
    } else {
        let entity = format!("{}/0", first.name);
        period.stat(&metrics::MBCS_CARRIERS_SIZE, &entity)?;
        period.stat(&metrics::SBCS_CARRIERS_SIZE, &entity)?;
    }
    let drafts = all.iter().filter_map(|allocator| {
        // These have no threshold, or hold blocks only for a short time.
        if matches!(&*allocator.name, "temp_alloc" | "ll_alloc" | "literal_alloc") {
            return None;
        }
        let letter = beamtune_flags::allocator(&allocator.name)?.letter;
        let sizes = Sizes::of(period, letter);
        singleblock(period, allocator, letter, &sizes, min_bytes)
            .or_else(|| small_carriers(period, allocator, letter, &sizes, (min_bytes, resident)))
    });
    let drafts: Vec<Draft> = drafts.collect();
    if drafts.is_empty() {
        memory::all_carriers(period)?;
    }
    let single = all.iter().fold(0_i64, |sum, allocator| sum.saturating_add(allocator.sbcs.size));
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("singleblock carriers: {}, sizes fit", format_bytes(single as f64)),
    ))
}

/// Returns an error if imported text lacks the number of blocks of large carriers. Most tools print only sizes.
fn check_block_counts(period: &Period, all: &[Allocator], min_bytes: f64) -> Result<(), Missing> {
    let counted = |carriers: Carriers| carriers.blocks > 0 || (carriers.size as f64) < min_bytes;
    match all.iter().all(|allocator| counted(allocator.sbcs) && counted(allocator.multiblock())) {
        true => Ok(()),
        false => Err(period.missing_group(Group::Allocator, "number of blocks")),
    }
}

/// Drafts a finding if most blocks are slightly larger than the singleblock threshold.
fn singleblock(
    period: &Period,
    allocator: &Allocator,
    letter: char,
    sizes: &Sizes,
    min_bytes: f64,
) -> Option<Draft> {
    let single = allocator.sbcs;
    let mean_kb = single.mean_block()? / 1024.0;
    let is_most = single.blocks_size as f64 >= 0.5 * allocator.all().blocks_size as f64;
    if !is_most || (single.size as f64) < min_bytes || mean_kb > MAX_THRESHOLDS * sizes.sbct {
        return None;
    }
    // Imported text has no rates.
    let is_timed = allocator.segment_requests_per_s.is_some();
    let requested = allocator.segment_requests_per_s.unwrap_or(0.0);
    let mapped_per_s = Segments::of(period).map_or(requested, |segments| requested * (1.0 - segments.hits));
    let cores = mapped_per_s * (mean_kb * 1024.0 / PAGE_BYTES).ceil() * PAGE_SECONDS;
    let used = view::process_cores(period).ok().filter(|cores| *cores > 0.0);
    let share = used.map_or(0.0, |used| (cores / used).min(1.0));
    let mappings = mappings(period, single, sizes);
    let cost = COST.of(period).severity(share).filter(|_| cores >= MIN_COST_CORES);
    let by_mappings = MAPPINGS.of(period).severity(mappings / MAX_MAPPINGS);
    let severity = [cost, by_mappings].into_iter().flatten().fold(NOTICE, f64::max);
    let sbct = fitting_sbct_kb(mean_kb);
    let prove =
        "page faults and CPU in the kernel under the same load; beamtune memory: no singleblock carriers";
    let name = &allocator.name;
    let runtime = format!("erlang:system_flag(erts_alloc, {{{name}, sbct, {}}})", sbct * 1024.0);
    let blocks = text::counted(single.blocks as f64, "block", "blocks");
    let draft = Draft::new(severity, format!("{name}: {blocks} of {mean_kb:.0} kB, each in its own carrier"))
        .detail(format!(
            "above the singleblock threshold of {:.0} kB; {} in these carriers, {} unused",
            sizes.sbct,
            format_bytes(single.size as f64),
            format_bytes(single.free() as f64)
        ))
        .minor_if(by_mappings.is_none() && view::is_little_cpu(period, cores))
        .about(Subject::allocator(name.as_str()))
        .costs(if cost.is_some() && cost >= by_mappings {
            Cost::CpuCores(cores)
        } else {
            Cost::MemoryBytes(single.free() as f64)
        })
        .evidence(Evidence::number("singleblock carriers, size", single.size as f64, Unit::Bytes))
        .evidence(Evidence::number("singleblock carriers", single.count as f64, Unit::Count))
        .evidence(
            Evidence::number("mappings of these carriers, maximum", mappings, Unit::Count)
                .against(MAPPINGS.of(period).warning * MAX_MAPPINGS, MAPPINGS.of(period).source),
        )
        .evidence(Evidence::number("unused in singleblock carriers", single.free() as f64, Unit::Bytes))
        .because_some(is_timed.then(|| Evidence::number("segments requested", requested, Unit::PerSecond)))
        .because_some(
            is_timed.then(|| Evidence::number("segments mapped by mmap", mapped_per_s, Unit::PerSecond)),
        )
        .because_some(is_timed.then(|| {
            Evidence::number("cost of mapping, share of CPU used", share, Unit::Ratio)
                .against_scale(COST.of(period))
        }));
    Some(
        draft
            .counter_evidence(
                "a carrier is freed only with its last block: long-lived blocks then keep more memory",
            )
            .but_if(!is_timed, "the rate of requests is unknown, and so is the cost")
            .but_if(period.is_imported(), "the flags are unknown: the default threshold was assumed")
            .remedy(remedy::of(
                period,
                "+M<S>sbct",
                &format!("{}; set both together", memory::sharing_carriers(letter, sbct)),
                "blocks of that size then share carriers, which stay mapped",
                prove,
            ))
            .remedy(remedy::of(
                period,
                "system_flag.erts_alloc_sbct",
                &runtime,
                "takes effect without a restart, for new blocks",
                prove,
            )),
    )
}

/// Upper bound of the mappings that singleblock carriers create. The kernel merges adjacent mappings, so there are usually far fewer.
fn mappings(period: &Period, single: Carriers, sizes: &Sizes) -> f64 {
    let counted = period.entities(Group::HostMapping).into_iter();
    let all: Option<f64> = counted
        .filter_map(|kind| Some(period.stat(&metrics::MAPPING_COUNT, kind).ok()?.last.value as f64))
        .reduce(|a, b| a + b);
    (single.count as f64).min(sizes.mapped).min(all.unwrap_or(f64::INFINITY))
}

/// Drafts a finding if a flag made carriers hardly larger than the blocks in them.
fn small_carriers(
    period: &Period,
    allocator: &Allocator,
    letter: char,
    sizes: &Sizes,
    (min_bytes, resident): (f64, f64),
) -> Option<Draft> {
    let carriers = allocator.multiblock();
    let free = carriers.free() as f64;
    let ratio = sizes.lmbcs / sizes.sbct;
    let utilization = carriers.used()?;
    // Small blocks leave hardly any space at the end of a carrier.
    let has_large_blocks = carriers.mean_block()? / 1024.0 * MIN_BLOCKS_PER_CARRIER * 2.0 >= sizes.lmbcs;
    if ratio >= MIN_BLOCKS_PER_CARRIER
        || (carriers.size as f64) < min_bytes
        || utilization >= GOOD_UTILIZATION
        || !has_large_blocks
    {
        return None;
    }
    let resident = resident.max(1.0);
    let severity = WASTE.of(period).severity(free / resident)?;
    let name = &allocator.name;
    let prove =
        "beamtune memory before and after under the same load: carrier utilization, and number of carriers";
    Some(
        Draft::new(
            severity,
            format!("{name}: {} unused in carriers too small for their blocks", format_bytes(free)),
        )
        .detail(format!(
            "{} of at most {:.0} kB for blocks of up to {:.0} kB; utilization {:.0} %",
            text::counted(carriers.count as f64, "carrier", "carriers"),
            sizes.lmbcs,
            sizes.sbct,
            utilization * 100.0
        ))
        .about(Subject::allocator(name.as_str()))
        .costs(Cost::MemoryBytes(free))
        .evidence(
            Evidence::number("largest carrier to largest block", ratio, Unit::Ratio)
                .against(MIN_BLOCKS_PER_CARRIER, "the default holds at least ten; erlang/otp#9521"),
        )
        .evidence(
            Evidence::number("carrier utilization", utilization, Unit::Ratio)
                .against(GOOD_UTILIZATION, "judgement"),
        )
        .evidence(
            Evidence::number("unused in carriers", free, Unit::Bytes)
                .with_text(format!("{:.0} % of resident memory", free / resident * 100.0)),
        )
        .evidence(Evidence::number("mean block size", carriers.mean_block()?, Unit::Bytes))
        .remedy(remedy::of(
            period,
            "+M<S>lmbcs",
            &format!("+M{letter}lmbcs {:.0}, or leave it out", (10.0 * sizes.sbct).max(5_120.0)),
            "the unused end is then a small part of each carrier",
            prove,
        ))
        .remedy(remedy::of(
            period,
            "+M<S>sbct",
            &format!("+M{letter}sbct {:.0}, to keep small carriers", (sizes.lmbcs / 10.0).floor().max(1.0)),
            "each large block then has its own carrier, which is freed with it",
            prove,
        )),
    )
}

const WASTE: Threshold = Threshold::new(
    "carrier-sizing.unused_share",
    "unused memory in small carriers, share of resident memory",
    Scale { notice: 0.05, warning: 0.25, critical: 0.70, source: "judgement: as for fragmented-carriers" },
);

/// Returns a threshold above blocks of this mean size.
fn fitting_sbct_kb(mean_kb: f64) -> f64 {
    (2.0 * mean_kb).log2().ceil().exp2().clamp(1_024.0, 65_536.0)
}
