//! BT024: an allocator's carriers are resident but contain few blocks.
//!
//! Blocks do not move. After a peak, a few surviving blocks keep whole carriers; if block sizes do not fit the free space, carriers are
//! never full. The peak size of the blocks distinguishes the two cases.

use beamtune_model::memory::{Allocator, Carriers, MemoryBreakdown, allocators, content};
use beamtune_model::{
    Account, CarrierRow, Code, Cost, Evidence, Group, Missing, Period, Remedy, Scale, Subject, Threshold,
    Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, MINOR, Rule, Topic};
use crate::signals::collected;
use crate::signals::memory::{self, Unused};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT024"),
    name: "fragmented-carriers",
    question: "Do allocators hold memory that no block uses?",
    confirm: "run beamtune memory some minutes after the peak: free space in carriers that stays while blocks do not grow is fragmentation",
    needs: &[&metrics::RSS, &metrics::MBCS_CARRIERS_SIZE],
    account: Account::Memory,
    topics: &[Topic::Memory],
    text: Some("what recon_alloc:fragmentation(current) and fragmentation(max) print"),
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "fragmented-carriers.unused_share",
    "free memory in carriers, share of resident memory",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.70,
        source: "judgement; operators call carriers below 50 % utilization fragmented",
    },
);

/// Carriers with this utilization or above are not reported: no allocator uses them much better.
const GOOD_UTILIZATION: f64 = 0.75;

/// Minimum free memory that is reported.
const MIN_FREE_BYTES: f64 = 32e6;
/// Minimum free memory for a warning (judgement).
const MIN_WARNING_BYTES: f64 = 100e6;

/// At this utilization or above, a finding is a notice: the VM itself regards such carriers as used. It begins to share carriers of heaps
/// below 45 %, others below 60 % (erl_alloc.c, ERTS_ALC_DEFAULT_ENABLED_ACUL).
const HALF_USED: f64 = 0.5;
/// More free memory than this is a warning at any utilization (judgement).
const MAX_NOTICE_BYTES: f64 = 1e9;

/// Blocks once filled the carriers if their peak was at least this share of the peak of the carriers.
const PEAK_UTILIZATION: f64 = 0.70;
/// The peak is over if the blocks are at most this share of it now.
const AFTER_PEAK_SHARE: f64 = 0.60;

/// A finding is never critical if this share of the free memory is freed with MADV_FREE: the kernel takes that memory when it needs it.
const MOSTLY_LAZY_FREE: f64 = 0.5;
/// Minimum share of memory freed with MADV_FREE that is mentioned.
const MIN_LAZY_FREE: f64 = 0.1;

/// Smallest maximum size of multiblock carriers that is worth the mapping calls (`+M<S>lmbcs`, in kB).
const SMALL_CARRIER_KB: f64 = 256.0;

/// Singleblock threshold with which blocks of up to 2 MB share carriers (`+M<S>sbct`, in kB).
const SHARING_SBCT_KB: f64 = 2_048.0;

/// Maximum and default number of singleblock carriers that an instance may map as mseg segments (`+M<S>mmsbc`); others come from malloc.
const MAX_SINGLEBLOCK: usize = 8_192;
const DEFAULT_SINGLEBLOCK: usize = 256;
/// Each of these carriers is a mapping. A process has at most 65,530 mappings (vm.max_map_count); one allocator may use about half of them.
const MAX_MAPPINGS: usize = 30_000;

/// Utilization below which all schedulers share a carrier (`+M<S>acul`, in %).
const SHARED_BELOW: f64 = 80.0;
/// Utilization below which a carrier releases free pages (`+M<S>acful`, in %).
const FREED_BELOW: f64 = 60.0;

/// Strategies that set acul to 0, so that no carrier moves to another instance (tested on OTP 25).
const UNSHARED_STRATEGIES: [&str; 3] = ["bf", "aobf", "gf"];

/// Kind of carriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Multiblock,
    SingleBlock,
}

/// Carriers of one kind of an allocator, with low utilization.
struct Sparse<'a> {
    allocator: &'a Allocator,
    set: Set,
    carriers: Carriers,
    unused: Unused,
    /// Memory of the whole VM that is freed with MADV_FREE but still resident. The kernel does not say in which mappings it is.
    lazy_free: f64,
    /// Rows of a carrier walk, if one was requested.
    walked: Vec<&'a CarrierRow>,
}

impl Sparse<'_> {
    /// Whether blocks once filled the carriers, and most of those blocks are gone.
    fn after_peak(&self) -> bool {
        let (carriers, blocks) = self.allocator.mbcs_largest;
        let now = self.allocator.multiblock().blocks_size as f64;
        self.set == Set::Multiblock
            && blocks as f64 >= PEAK_UTILIZATION * carriers as f64
            && now <= AFTER_PEAK_SHARE * blocks as f64
    }

    /// Whether peak sizes are known. Imported text may lack them.
    fn knows_peak(&self, period: &Period) -> bool {
        !period.is_imported() || self.set == Set::SingleBlock || self.allocator.mbcs_largest.1 > 0
    }

    /// Whether the peak began and ended within the period, so that it is one of many. Only binaries are recorded well enough for this.
    fn comes_again(&self, period: &Period) -> bool {
        let binaries =
            period.find(Group::Memory, "", "binary").filter(|_| self.allocator.name == "binary_alloc");
        binaries.is_some_and(|stat| {
            let most = stat.max as f64;
            let ends = stat.first.value.max(stat.last.value) as f64;
            self.after_peak() && ends <= AFTER_PEAK_SHARE * most && most - ends >= MIN_FREE_BYTES
        })
    }

    /// Singleblock carriers that each instance may map as mseg segments (`+M<S>mmsbc`).
    fn max_mseg_singleblock(&self) -> usize {
        (MAX_MAPPINGS / self.allocator.instances.max(1)).clamp(DEFAULT_SINGLEBLOCK, MAX_SINGLEBLOCK)
    }

    /// Letter of the allocator in flags.
    fn letter(&self) -> Option<char> {
        beamtune_flags::allocator(&self.allocator.name).map(|known| known.letter)
    }

    /// Estimates the size of the carriers if each had `carrier_bytes` and the same blocks were distributed at random: carriers without a
    /// block would have been freed. With rows of a carrier walk, each row is estimated separately, because some carriers are crowded and
    /// others hold a single block. Carriers of the present size or larger all stay if they hold a block.
    fn left_with(&self, carrier_bytes: f64) -> f64 {
        // A present carrier is divided into parts, and each block is in one of them.
        let left = |carriers: i64, bytes: i64, blocks: i64| {
            let (carriers, bytes) = (carriers.max(1) as f64, bytes as f64);
            let part = (carrier_bytes * carriers / bytes.max(1.0)).min(1.0);
            bytes * (1.0 - (1.0 - part).powf(blocks as f64 / carriers))
        };
        if self.walked.is_empty() && self.carriers.count == 0 {
            // The number of blocks is unknown.
            return self.carriers.size as f64;
        }
        if self.walked.is_empty() {
            return left(self.carriers.count, self.carriers.size, self.carriers.blocks);
        }
        let blocks = |row: &CarrierRow| row.blocks.iter().fold(0_i64, |sum, of| sum.saturating_add(of.count));
        self.walked.iter().map(|row| left(row.carriers, row.bytes, blocks(row))).sum()
    }

    /// Bytes that smaller carriers would have saved.
    fn saved_by_small_carriers(&self) -> f64 {
        let saved = self.left_with(f64::INFINITY) - self.left_with(SMALL_CARRIER_KB * 1024.0);
        saved.clamp(0.0, self.unused.bytes)
    }

    /// Bytes of free pages in carriers of the pool. Each block keeps at most two pages.
    fn saved_by_pages(&self) -> f64 {
        let pool = self.allocator.pool;
        let kept = 2.0 * memory::PAGE_BYTES * pool.blocks as f64;
        (pool.free() as f64 - kept).clamp(0.0, self.unused.bytes)
    }
}

/// Limits the severity if little memory is free, or if carriers are half used.
fn limited(severity: f64, free_bytes: f64, used: f64) -> f64 {
    let is_usual = used >= HALF_USED && free_bytes <= MAX_NOTICE_BYTES;
    if free_bytes < MIN_WARNING_BYTES || is_usual { severity.min(MINOR) } else { severity }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let all = allocators(period);
    let (resident, of) = memory::resident_or_carriers(period, &all)?;
    if !all.iter().any(|allocator| allocator.all().size > 0) {
        return all_together(period);
    }
    if !period.is_imported() {
        period.stat(&metrics::MBCS_CARRIERS_SIZE, &format!("{}/0", all[0].name))?;
    }
    let bridge = MemoryBreakdown::of(period);
    let lazy_free = bridge.total(|mapping| mapping.lazy_free) as f64;
    let blocks = all.iter().fold(0_i64, |sum, allocator| sum.saturating_add(allocator.all().blocks_size));
    let mut drafts = Vec::new();
    // temp_alloc is normally empty, and the literal area is never freed.
    for allocator in
        all.iter().filter(|allocator| !matches!(&*allocator.name, "temp_alloc" | "literal_alloc"))
    {
        let multiblock = allocator.multiblock();
        for (set, names, carriers) in [
            (Set::Multiblock, [content::MBCS, content::POOL].as_slice(), multiblock),
            (Set::SingleBlock, [content::SBCS].as_slice(), allocator.sbcs),
        ] {
            let unused = memory::unused(&bridge, allocator, names, carriers, blocks);
            let sparse =
                carriers.used().is_some_and(|used| used < GOOD_UTILIZATION) && unused.bytes >= MIN_FREE_BYTES;
            let Some(severity) =
                SHARE.of(period).severity(unused.bytes / resident.max(1.0)).filter(|_| sparse)
            else {
                continue;
            };
            let is_lazy_free = lazy_free >= MOSTLY_LAZY_FREE * unused.bytes;
            let severity = if is_lazy_free { severity.min(BELOW_CRITICAL) } else { severity };
            let of_set = |row: &&CarrierRow| {
                row.allocator == allocator.name
                    && row.skipped.is_none()
                    && row.single == (set == Set::SingleBlock)
            };
            let walked = period.carriers.iter().filter(of_set).collect();
            drafts.push(draft(
                period,
                limited(severity, unused.bytes, carriers.used().unwrap_or(0.0)),
                (resident, of),
                &Sparse { allocator, set, carriers, unused, lazy_free, walked },
            ));
        }
    }
    if drafts.is_empty() {
        memory::all_carriers(period)?;
    }
    let sum = all.iter().fold(Carriers::default(), |sum, allocator| sum.plus(allocator.all()));
    let used = sum.used().unwrap_or(0.0);
    Ok(Judgement::found_or_healthy(drafts, utilization_text(used, sum.size as f64)))
}

fn utilization_text(used: f64, carriers: f64) -> String {
    format!("carrier utilization: {:.0} % of {}", used * 100.0, text::bytes(carriers))
}

/// Evaluates imported text that has only sums over all allocators.
fn all_together(period: &Period) -> Result<Judgement, Missing> {
    let Some((carriers, Some(blocks))) = beamtune_model::memory::allocator_totals(period) else {
        return Err(period.missing_group(Group::Allocator, "sizes of carriers and blocks"));
    };
    let (carriers, blocks) = (carriers as f64, blocks as f64);
    let (used, unused) = (blocks / carriers.max(1.0), (carriers - blocks).max(0.0));
    let sparse = used < GOOD_UTILIZATION && unused >= MIN_FREE_BYTES;
    let (all, of) = match memory::resident(period) {
        Ok(resident) => (resident, memory::OF_RESIDENT),
        Err(_) => (carriers, "of all carriers"),
    };
    let Some(severity) = SHARE.of(period).severity(unused / all.max(1.0)).filter(|_| sparse) else {
        return Ok(Judgement::Healthy(utilization_text(used, carriers)));
    };
    Ok(Judgement::found(
        Draft::new(
            limited(severity, unused, used),
            format!("Carriers have {} free, {:.0} % used", text::bytes(unused), used * 100.0),
        )
        .detail("allocator unknown")
        .costs(Cost::MemoryBytes(unused))
        .evidence(
            Evidence::number("free in carriers", unused, Unit::Bytes)
                .with_text(format!("{:.0} % {of}", unused / all.max(1.0) * 100.0)),
        )
        .evidence(Evidence::number("carriers", carriers, Unit::Bytes))
        .evidence(
            Evidence::number("carrier utilization", used, Unit::Ratio)
                .against(GOOD_UTILIZATION, SHARE.of(period).source),
        )
        .counter_evidence("the remedy depends on the allocator and its peak: import recon_alloc:fragmentation(current) and (max) as well"),
    ))
}

/// `resident` is the base of the share, and `of` its name.
fn draft(period: &Period, severity: f64, (resident, of): (f64, &str), sparse: &Sparse<'_>) -> Draft {
    let Sparse { allocator, set, carriers, unused, .. } = sparse;
    let name = &allocator.name;
    let used = carriers.used().unwrap_or(0.0);
    let why = match (set, sparse.after_peak()) {
        (Set::SingleBlock, _) => "each larger than its block",
        (Set::Multiblock, true) => "filled during a peak and kept by a few blocks that remain",
        (Set::Multiblock, false) if !sparse.knows_peak(period) => "peak utilization unknown",
        (Set::Multiblock, false) => "never full: block sizes do not fit the free space",
    };
    let kind = match set {
        Set::Multiblock => "multiblock",
        Set::SingleBlock => "singleblock",
    };
    let count =
        if carriers.count > 0 { format!("{} ", text::number(carriers.count as f64)) } else { String::new() };
    let pool = allocator.pool;
    let share = unused.bytes / resident.max(1.0);
    let (peak_carriers, peak_blocks) = allocator.mbcs_largest;
    let blocks = Evidence::number("blocks", carriers.blocks_size as f64, Unit::Bytes);
    let draft = Draft::new(
        severity,
        format!("{name} has {} free in carriers, {:.0} % used", text::bytes(unused.bytes), used * 100.0),
    )
    .detail(format!("{count}{kind} carriers, {why}"))
    .about(Subject::allocator(name.as_str()))
    .costs(Cost::MemoryBytes(unused.bytes))
    .evidence(
        Evidence::number(
            if unused.is_measured { "free in carriers, resident" } else { "free in carriers" },
            unused.bytes,
            Unit::Bytes,
        )
        .with_text(format!("{:.0} % {of}", share * 100.0)),
    )
    .evidence(Evidence::number("carriers", carriers.size as f64, Unit::Bytes))
    .evidence(match carriers.mean_block() {
        Some(mean) => blocks.with_text(format!("{} blocks, mean {mean:.0} bytes", carriers.blocks)),
        None => blocks,
    })
    .evidence(
        Evidence::number("carrier utilization", used, Unit::Ratio)
            .against(GOOD_UTILIZATION, SHARE.of(period).source),
    )
    .because_some(
        (*set == Set::Multiblock && pool.size > 0)
            .then(|| Evidence::number("carriers in the pool", pool.size as f64, Unit::Bytes)),
    )
    .because_some((*set == Set::Multiblock && peak_blocks > 0).then(|| {
        Evidence::number("peak of blocks", peak_blocks as f64, Unit::Bytes)
            .with_text(format!("in {} of carriers", text::bytes(peak_carriers as f64)))
    }))
    .because_some(
        allocator.allocations_per_s.map(|rate| Evidence::number("allocation rate", rate, Unit::PerSecond)),
    )
    .but_if(!unused.is_measured, format!("the resident part is not known: {}", view::pages_not_read(period)))
    .but_if(
        sparse.lazy_free >= MIN_LAZY_FREE * unused.bytes,
        format!(
            "{} of resident memory is freed with MADV_FREE: the kernel takes it before it kills a process",
            text::bytes(sparse.lazy_free)
        ),
    )
    .but_if(sparse.after_peak() && !sparse.comes_again(period), "the next peak would use this memory again")
    .but_if(sparse.comes_again(period), "another peak within the period used part of this memory");
    remedies(period, draft, sparse)
}

fn remedies(period: &Period, draft: Draft, sparse: &Sparse<'_>) -> Draft {
    let name = sparse.allocator.name.as_str();
    if !sparse.knows_peak(period) {
        return draft.counter_evidence(
            "the remedy depends on the peak: import recon_alloc:fragmentation(max) as well",
        );
    }
    let Some(letter) = sparse.letter() else { return draft };
    let prove = "RSS and carrier utilization in beamtune memory after the same load with the same peak";
    let prove_single = "RSS and singleblock carriers in beamtune memory after the same load";
    let is_lower = |name: &str, than: f64| view::is_lower(&period.facts, letter, name, than);
    if sparse.set == Set::SingleBlock {
        let are_below = sparse.carriers.mean_block().is_some_and(|bytes| bytes <= SHARING_SBCT_KB * 1024.0);
        return draft
            .fix_if(are_below && is_lower("sbct", SHARING_SBCT_KB), || {
                remedy::of(
                    period,
                    "+M<S>sbct",
                    &memory::sharing_carriers(letter, SHARING_SBCT_KB),
                    "blocks of this size then share carriers instead of taking one each",
                    prove_single,
                )
            })
            .remedy(remedy::of(
                period,
                "+M<S>rsbcst",
                &format!("+M{letter}rsbcst 10"),
                "a block that has shrunk moves to a smaller carrier sooner",
                prove_single,
            ));
    }
    let after_peak = sparse.after_peak();
    let apart = format!("+M{letter}sbct 64 +M{letter}mmsbc {}", sparse.max_mseg_singleblock());
    let large_apart = |bytes: Option<f64>| {
        remedy::of(
            period,
            "+M<S>sbct",
            &apart,
            "each block of 64 kB or more gets its own carrier, which is unmapped with it; without mmsbc, those beyond 256 per instance come from malloc",
            prove,
        )
        .map(|remedy| bytes.into_iter().fold(remedy, Remedy::saving))
    };
    // A raised sbct is intentional: too many blocks had carriers of their own (BT045).
    let given = view::allocator_flag(&period.facts, letter, "sbct");
    let is_raised = given.is_some_and(|kilobytes| kilobytes > memory::DEFAULT_SBCT_KB);
    let keeps = keeps_carriers(period, letter);
    let usual_free = sparse.carriers.blocks_size as f64 * (1.0 / GOOD_UTILIZATION - 1.0);
    draft
        .but_if(is_raised, "sbct is above its default: larger blocks share carriers, at the price of free space")
        // Waves of large binaries leave free space between small ones. It is unknown whether these binaries are large.
        .fix_if(sparse.comes_again(period) && !is_raised, || {
            large_apart(Some((sparse.unused.bytes - usual_free).max(0.0)))
        })
        .fix_if(after_peak && name == "binary_alloc", || {
            remedy::of(
                period,
                "code.binary_copy",
                "copy what is kept after the peak (binary:copy/1), or create it before the peak",
                "new blocks go into the fullest carriers, and empty carriers are freed",
                prove,
            ).map(|remedy| remedy.saving(sparse.unused.bytes))
        })
        // A GC does not help if most processes were just collected.
        .fix_if(after_peak && name == "eheap_alloc" && !collected::of_most(period), || {
            remedy::of(
                period,
                "code.hibernate",
                "hibernate the processes that outlived the peak, or call erlang:garbage_collect/1 for each once",
                "a GC moves the heap out of sparse carriers into fuller ones",
                prove,
            ).map(|remedy| remedy.saving(sparse.unused.bytes))
        })
        // Not for heaps: each GC allocates a new heap, so heaps above 64 kB would be mapped and unmapped all the time.
        .fix_if(after_peak && !is_raised && name != "eheap_alloc" && sparse.saved_by_small_carriers() >= 0.1 * sparse.unused.bytes, || {
            remedy::of(
                period,
                "+M<S>lmbcs",
                &format!("+M{letter}lmbcs {SMALL_CARRIER_KB:.0} +M{letter}smbcs {SMALL_CARRIER_KB:.0} {apart}"),
                "the smaller carriers are, the more of them become empty; blocks of 64 kB or more get mappings of their own",
                prove,
            )
            .map(|remedy| remedy.saving(sparse.saved_by_small_carriers()))
        })
        .fix_if(sparse.allocator.pool.size > 0 && is_lower("acful", FREED_BELOW), || {
            remedy::of(
                period,
                "+M<S>acful",
                &format!("+M{letter}acful {FREED_BELOW:.0}"),
                "free pages of carriers in the pool are freed with MADV_FREE: resident until the kernel takes them (at once with +Mumadtn true, OTP 28.1)",
                prove,
            )
            .map(|remedy| remedy.saving(sparse.saved_by_pages()))
        })
        .fix_if(!after_peak && name == "binary_alloc" && !is_raised, || large_apart(None))
        .fix_if(!after_peak && keeps.is_some(), || {
            remedy::of(
                period,
                "+M<S>as",
                &format!("+M{letter}as aoffcbf"),
                &format!(
                    "with {} instances do not share carriers (acul is 0), however few blocks are in them; aoffcbf replaces it",
                    keeps.as_deref().unwrap_or_default()
                ),
                prove,
            )
        })
        .fix_if(!after_peak && keeps.is_none() && is_lower("acul", SHARED_BELOW), || {
            remedy::of(
                period,
                "+M<S>acul",
                &format!("+M{letter}acul {SHARED_BELOW:.0}"),
                "all schedulers then share and fill carriers below 80 % utilization (default 60 %, heaps 45 %)",
                prove,
            )
        })
}

/// Returns the flag whose strategy keeps instances from sharing carriers. The later one of this flag and `acul` takes effect: an `acul`
/// after it changes the strategy (tested on OTP 25).
fn keeps_carriers(period: &Period, letter: char) -> Option<String> {
    let mut keeps = None;
    for setting in beamtune_flags::parse_emu_args(&period.facts.list(facts::EMU_ARGS)?) {
        let of = |name: &str| [letter, 'u'].iter().any(|of| setting.flag == format!("+M{of}{name}"));
        let value = setting.value.as_deref().unwrap_or_default();
        if of("as") {
            keeps = UNSHARED_STRATEGIES.contains(&value).then(|| format!("{} {value}", setting.flag));
        } else if of("acul") && value != "0" {
            keeps = None;
        }
    }
    keeps
}
