//! BT024: an allocator's carriers are resident and hold few blocks.
//!
//! Blocks do not move. After a peak, a few that live on keep whole carriers; where sizes do not fit, carriers are never
//! full. The first is told from the second by the largest size that the blocks have ever had.

use beamtune_model::memory::{Allocator, Bridge, Carriers, allocators, content};
use beamtune_model::{
    Account, CarrierRow, Code, Cost, Evidence, Group, Missing, Period, Remedy, Scale, Subject, Threshold,
    Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, MINOR, Rule, Topic};
use crate::signals::collected;
use crate::signals::memory::{self, Unused, megabytes};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT024"),
    name: "fragmented-carriers",
    question: "Do allocators hold memory that no block uses?",
    confirm: "beamtune memory a while after the peak: free room in carriers that stays, while blocks do not grow, is fragmentation",
    needs: &[&metrics::RSS, &metrics::MBCS_CARRIERS_SIZE],
    account: Account::Memory,
    topics: &[Topic::Memory],
    text: Some("what recon_alloc:fragmentation(current) and fragmentation(max) print"),
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Resident and unused, as a share of what is resident.
const SHARE: Threshold = Threshold::new(
    "fragmented-carriers.unused_share",
    "resident memory in carriers that no block uses, share of resident memory",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.70,
        source: "judgement; operators call carriers that are used to less than 50 % fragmented",
    },
);

/// Carriers that are used better than this are what every allocator has.
const WELL_USED: f64 = 0.75;

/// Below this it is not worth a change …
const WORTH_BYTES: f64 = 32e6;
/// … and below this nobody is in need of it (judgement).
const WORTH_WARNING_BYTES: f64 = 100e6;

/// From here on the VM itself takes carriers for used: it begins to share those of heaps below 45 % only, others below 60 % (erl_alloc.c,
/// ERTS_ALC_DEFAULT_ENABLED_ACUL). That is worth no more than a notice …
const HALF_USED: f64 = 0.5;
/// … unless so much lies in them (judgement).
const MUCH_BYTES: f64 = 1e9;

/// Blocks have filled the carriers once, if they have reached this share of their largest size …
const FILLED: f64 = 0.70;
/// … and have become fewer since, if they are at most this share of their own largest size.
const FALLEN: f64 = 0.60;

/// Where so much of it is given back already, the kernel only has not taken it: that is never critical …
const MOSTLY_GIVEN_BACK: f64 = 0.5;
/// … and from so much on it is told.
const GIVEN_BACK_WORTH_A_WORD: f64 = 0.1;

/// Carriers of this size are the smallest that are worth the calls for them (`+M<S>lmbcs`, in kB).
const SMALL_CARRIER_KB: f64 = 256.0;

/// A threshold below which blocks of up to 2 MB share carriers (`+M<S>sbct`, in kB).
const SHARING_SBCT_KB: f64 = 2_048.0;

/// So many carriers of single blocks may come from segments where all blocks from 64 kB on have one (`+M<S>mmsbc`), of an instance at
/// most, and by default; beyond these, malloc gives them.
const MANY_SINGLE: usize = 8_192;
const DEFAULT_SINGLE: usize = 256;
/// Each is a mapping of its own, of which a process has at most 65,530 (vm.max_map_count): about half of that is for one allocator.
const MOST_MAPPINGS: usize = 30_000;

/// Carriers that are used to less than this are shared by all schedulers (`+M<S>acul`, in %) …
const SHARED_BELOW: f64 = 80.0;
/// … and give free pages back (`+M<S>acful`, in %).
const FREED_BELOW: f64 = 60.0;

/// With these strategies no carrier is ever given to another instance: they set acul to 0 (run on OTP 25).
const KEEP_CARRIERS: [&str; 3] = ["bf", "aobf", "gf"];

/// Which carriers it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Multiblock,
    SingleBlock,
}

struct Sparse<'a> {
    allocator: &'a Allocator,
    set: Set,
    carriers: Carriers,
    unused: Unused,
    /// What of all resident memory is given back (MADV_FREE), and not yet taken. Whose it is, the kernel does not tell.
    given_back: f64,
    /// What a walk through the carriers has found, where somebody has asked for one.
    walked: Vec<&'a CarrierRow>,
}

impl Sparse<'_> {
    /// They were filled once, and most of that has gone.
    fn after_peak(&self) -> bool {
        let (carriers, blocks) = self.allocator.mbcs_largest;
        let now = self.allocator.multiblock().blocks_size as f64;
        self.set == Set::Multiblock
            && blocks as f64 >= FILLED * carriers as f64
            && now <= FALLEN * blocks as f64
    }

    /// Whether a peak would show: the largest sizes were read, as they are of every node. Imported text may not tell them.
    fn knows_peak(&self, period: &Period) -> bool {
        !period.is_imported() || self.set == Set::SingleBlock || self.allocator.mbcs_largest.1 > 0
    }

    /// The peak has come, and gone, while the node was looked at: it is one of many. Only binaries are known well enough.
    fn comes_again(&self, period: &Period) -> bool {
        let binaries =
            period.find(Group::Memory, "", "binary").filter(|_| self.allocator.name == "binary_alloc");
        binaries.is_some_and(|stat| {
            let most = stat.max as f64;
            let ends = stat.first.value.max(stat.last.value) as f64;
            self.after_peak() && ends <= FALLEN * most && most - ends >= WORTH_BYTES
        })
    }

    /// What each instance may map as carriers of single blocks (`+M<S>mmsbc`).
    fn single_from_segments(&self) -> usize {
        (MOST_MAPPINGS / self.allocator.instances.max(1)).clamp(DEFAULT_SINGLE, MANY_SINGLE)
    }

    /// Letter of the allocator in flags.
    fn letter(&self) -> Option<char> {
        beamtune_flags::allocator(&self.allocator.name).map(|known| known.letter)
    }

    /// What would be left of the carriers if they were of another size and the same blocks lay in them at random: those without
    /// any block would have gone back. After a walk it is reckoned for each kind of carriers by itself, for some are crowded and
    /// others hold a single block. Of carriers as large as now, or larger, all are left that hold a block.
    fn left_with(&self, carrier_bytes: f64) -> f64 {
        // A carrier of now would be so many parts; each block lies in one of them.
        let left = |carriers: i64, bytes: i64, blocks: i64| {
            let (carriers, bytes) = (carriers.max(1) as f64, bytes as f64);
            let part = (carrier_bytes * carriers / bytes.max(1.0)).min(1.0);
            bytes * (1.0 - (1.0 - part).powf(blocks as f64 / carriers))
        };
        if self.walked.is_empty() && self.carriers.count == 0 {
            // Nobody told how many blocks there are.
            return self.carriers.size as f64;
        }
        if self.walked.is_empty() {
            return left(self.carriers.count, self.carriers.size, self.carriers.blocks);
        }
        let blocks = |row: &CarrierRow| row.blocks.iter().fold(0_i64, |sum, of| sum.saturating_add(of.count));
        self.walked.iter().map(|row| left(row.carriers, row.bytes, blocks(row))).sum()
    }

    /// What smaller carriers would have saved, in bytes.
    fn saved_by_small(&self) -> f64 {
        let saved = self.left_with(f64::INFINITY) - self.left_with(SMALL_CARRIER_KB * 1024.0);
        saved.clamp(0.0, self.unused.bytes)
    }

    /// What pages without a block could go back of the pool, in bytes: at most two pages are kept by each block.
    fn saved_by_pages(&self) -> f64 {
        let pool = self.allocator.pool;
        let kept = 2.0 * memory::PAGE_BYTES * pool.blocks as f64;
        (pool.free() as f64 - kept).clamp(0.0, self.unused.bytes)
    }
}

/// A share of little is little, and so is what carriers that are half full lack.
fn by_need(severity: f64, unused_bytes: f64, used: f64) -> f64 {
    let is_usual = used >= HALF_USED && unused_bytes <= MUCH_BYTES;
    if unused_bytes < WORTH_WARNING_BYTES || is_usual { severity.min(MINOR) } else { severity }
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
    let bridge = Bridge::of(period);
    let given_back = bridge.total(|mapping| mapping.lazy_free) as f64;
    let blocks = all.iter().fold(0_i64, |sum, allocator| sum.saturating_add(allocator.all().blocks_size));
    let mut drafts = Vec::new();
    // Scratch memory is empty by its nature, and the literal area is not given back.
    for allocator in
        all.iter().filter(|allocator| !matches!(&*allocator.name, "temp_alloc" | "literal_alloc"))
    {
        let multiblock = allocator.multiblock();
        for (set, names, carriers) in [
            (Set::Multiblock, [content::MBCS, content::POOL].as_slice(), multiblock),
            (Set::SingleBlock, [content::SBCS].as_slice(), allocator.sbcs),
        ] {
            let unused = memory::unused(&bridge, allocator, names, carriers, blocks);
            let sparse = carriers.used().is_some_and(|used| used < WELL_USED) && unused.bytes >= WORTH_BYTES;
            let Some(severity) =
                SHARE.of(period).severity(unused.bytes / resident.max(1.0)).filter(|_| sparse)
            else {
                continue;
            };
            let is_given_back = given_back >= MOSTLY_GIVEN_BACK * unused.bytes;
            let severity = if is_given_back { severity.min(BELOW_CRITICAL) } else { severity };
            let of_set = |row: &&CarrierRow| {
                row.allocator == allocator.name
                    && row.skipped.is_none()
                    && row.single == (set == Set::SingleBlock)
            };
            let walked = period.carriers.iter().filter(of_set).collect();
            drafts.push(draft(
                period,
                by_need(severity, unused.bytes, carriers.used().unwrap_or(0.0)),
                (resident, of),
                &Sparse { allocator, set, carriers, unused, given_back, walked },
            ));
        }
    }
    if drafts.is_empty() {
        memory::all_carriers(period)?;
    }
    let sum = all.iter().fold(Carriers::default(), |sum, allocator| sum.plus(allocator.all()));
    let used = sum.used().unwrap_or(0.0) * 100.0;
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("blocks take {used:.0} % of the {} in carriers", megabytes(sum.size as f64)),
    ))
}

/// Of imported text that tells no more than sums over all allocators.
fn all_together(period: &Period) -> Result<Judgement, Missing> {
    let Some((carriers, Some(blocks))) = beamtune_model::memory::all_together(period) else {
        return Err(period.missing_group(Group::Allocator, "sizes of carriers and blocks"));
    };
    let (carriers, blocks) = (carriers as f64, blocks as f64);
    let (used, unused) = (blocks / carriers.max(1.0), (carriers - blocks).max(0.0));
    let sparse = used < WELL_USED && unused >= WORTH_BYTES;
    let (all, of) = match memory::resident(period) {
        Ok(resident) => (resident, memory::OF_RESIDENT),
        Err(_) => (carriers, "of all carriers"),
    };
    let Some(severity) = SHARE.of(period).severity(unused / all.max(1.0)).filter(|_| sparse) else {
        return Ok(Judgement::Healthy(format!(
            "blocks take {:.0} % of the {} in carriers",
            used * 100.0,
            megabytes(carriers)
        )));
    };
    Ok(Judgement::found(
        Draft::new(
            by_need(severity, unused, used),
            format!(
                "the allocators keep {} that no block uses: their carriers are used to {:.0} %; which of them keeps it is not known",
                megabytes(unused),
                used * 100.0
            ),
        )
        .costs(Cost::MemoryBytes(unused))
        .because(
            Evidence::number("in carriers and used by no block", unused, Unit::Bytes)
                .with_text(format!("{:.0} % {of}", unused / all.max(1.0) * 100.0)),
        )
        .because(Evidence::number("carriers", carriers, Unit::Bytes))
        .because(Evidence::number("of the carriers used", used, Unit::Ratio).against(WELL_USED, SHARE.of(period).source))
        .but("what helps depends on the allocator and on its peak: import recon_alloc:fragmentation(current) and (max) with it"),
    ))
}

/// `resident` is what the share is of, and how that is called.
fn draft(period: &Period, severity: f64, (resident, of): (f64, &str), sparse: &Sparse<'_>) -> Draft {
    let Sparse { allocator, set, carriers, unused, .. } = sparse;
    let name = &allocator.name;
    let used = carriers.used().unwrap_or(0.0);
    let why = match (set, sparse.after_peak()) {
        (Set::SingleBlock, _) => "each is larger than the block in it",
        (Set::Multiblock, true) => "a peak filled them, and the few blocks that have outlived it keep them",
        (Set::Multiblock, false) if !sparse.knows_peak(period) => {
            "whether they were ever fuller is not known"
        }
        (Set::Multiblock, false) => "they have never been full: the sizes of its blocks do not fit",
    };
    let pool = allocator.pool;
    let share = unused.bytes / resident.max(1.0);
    let (peak_carriers, peak_blocks) = allocator.mbcs_largest;
    let blocks = Evidence::number("blocks in them", carriers.blocks_size as f64, Unit::Bytes);
    let draft = Draft::new(
        severity,
        format!(
            "{name} keeps {} that no block uses: its {}carriers are used to {:.0} %; {why}",
            megabytes(unused.bytes),
            if carriers.count > 0 { format!("{} ", carriers.count) } else { String::new() },
            used * 100.0
        ),
    )
    .about(Subject::allocator(name.as_str()))
    .costs(Cost::MemoryBytes(unused.bytes))
    .because(
        Evidence::number(
            if unused.looked { "resident and used by no block" } else { "in carriers and used by no block" },
            unused.bytes,
            Unit::Bytes,
        )
        .with_text(format!("{:.0} % {of}", share * 100.0)),
    )
    .because(Evidence::number("carriers", carriers.size as f64, Unit::Bytes))
    .because(match carriers.mean_block() {
        Some(mean) => blocks.with_text(format!("{} blocks, {mean:.0} bytes each on average", carriers.blocks)),
        None => blocks,
    })
    .because(Evidence::number("of the carriers used", used, Unit::Ratio).against(WELL_USED, SHARE.of(period).source))
    .because_some(
        (*set == Set::Multiblock && pool.size > 0)
            .then(|| Evidence::number("of them abandoned to the pool", pool.size as f64, Unit::Bytes)),
    )
    .because_some((*set == Set::Multiblock && peak_blocks > 0).then(|| {
        Evidence::number("most that blocks have taken", peak_blocks as f64, Unit::Bytes)
            .with_text(format!("of {} in carriers", megabytes(peak_carriers as f64)))
    }))
    .because_some(
        allocator.allocations_per_s.map(|rate| Evidence::number("allocations", rate, Unit::PerSecond)),
    )
    .but_if(!unused.looked, format!("what of it is resident is not known: {}", view::not_looked_at(period)))
    .but_if(
        sparse.given_back >= GIVEN_BACK_WORTH_A_WORD * unused.bytes,
        format!(
            "{} of what is resident are given back already (MADV_FREE): the kernel takes them when it needs them, before it kills anybody",
            megabytes(sparse.given_back)
        ),
    )
    .but_if(
        sparse.after_peak() && !sparse.comes_again(period),
        "if the peak comes again, this memory is used again",
    )
    .but_if(
        sparse.comes_again(period),
        "the peak has come again meanwhile: a part of this memory is used then",
    );
    remedies(period, draft, sparse)
}

fn remedies(period: &Period, draft: Draft, sparse: &Sparse<'_>) -> Draft {
    let name = sparse.allocator.name.as_str();
    if !sparse.knows_peak(period) {
        return draft.but("what helps follows from whether a peak has left it: import recon_alloc:fragmentation(max) with it");
    }
    let Some(letter) = sparse.letter() else { return draft };
    let prove = "the same load with the same peak, then beamtune memory again: resident, and how far the carriers are used";
    let sbct = "beamtune memory again after the same load: resident, and single-block carriers";
    let is_lower = |name: &str, than: f64| view::is_lower(&period.facts, letter, name, than);
    if sparse.set == Set::SingleBlock {
        let are_below = sparse.carriers.mean_block().is_some_and(|bytes| bytes <= SHARING_SBCT_KB * 1024.0);
        return draft
            .fix_if(are_below && is_lower("sbct", SHARING_SBCT_KB), || {
                remedy::of(
                    period,
                    "+M<S>sbct",
                    &memory::sharing_carriers(letter, SHARING_SBCT_KB),
                    "blocks of this size then share carriers in place of taking one each",
                    sbct,
                )
            })
            .fix(remedy::of(
                period,
                "+M<S>rsbcst",
                &format!("+M{letter}rsbcst 10"),
                "a block that has shrunk moves to a smaller carrier sooner",
                sbct,
            ));
    }
    let after_peak = sparse.after_peak();
    let apart = format!("+M{letter}sbct 64 +M{letter}mmsbc {}", sparse.single_from_segments());
    let large_apart = |bytes: Option<f64>| {
        remedy::of(
            period,
            "+M<S>sbct",
            &apart,
            "blocks of 64 kB and more then have a carrier each, which is a mapping of its own and goes with them, and small ones no longer keep theirs; without mmsbc those beyond 256 for each instance come from malloc",
            prove,
        )
        .map(|remedy| bytes.into_iter().fold(remedy, Remedy::saving))
    };
    // Who lets large blocks share carriers has had a reason: carriers of their own were too many (BT045).
    let given = view::allocator_flag(&period.facts, letter, "sbct");
    let is_raised = given.is_some_and(|kilobytes| kilobytes > memory::DEFAULT_SBCT_KB);
    let keeps = keeps_carriers(period, letter);
    let room = sparse.carriers.blocks_size as f64 * (1.0 / WELL_USED - 1.0);
    draft
        // What waves of large binaries have left between small ones; whether they are large is not known.
        .but_if(is_raised, "sbct is above its default, so that larger blocks share carriers: free room in these is its price")
        .fix_if(sparse.comes_again(period) && !is_raised, || {
            large_apart(Some((sparse.unused.bytes - room).max(0.0)))
        })
        .fix_if(after_peak && name == "binary_alloc", || {
            remedy::of(
                period,
                "code.binary_copy",
                "copy what is kept when the peak is over (binary:copy/1), or make what is kept before the peak",
                "new blocks go into the fullest carriers, and those that then are empty go back to the system",
                prove,
            ).map(|remedy| remedy.saving(sparse.unused.bytes))
        })
        // Where that was just done, what is left is left all the same.
        .fix_if(after_peak && name == "eheap_alloc" && !collected::of_most(period), || {
            remedy::of(
                period,
                "code.hibernate",
                "let the processes that have outlived the peak collect: hibernate, or erlang:garbage_collect/1 once",
                "a collection moves a heap, out of the sparse carriers into fuller ones",
                prove,
            ).map(|remedy| remedy.saving(sparse.unused.bytes))
        })
        // A heap is made anew each time it grows or is collected: those above 64 kB would be mapped and unmapped all the time.
        .fix_if(after_peak && !is_raised && name != "eheap_alloc" && sparse.saved_by_small() >= 0.1 * sparse.unused.bytes, || {
            remedy::of(
                period,
                "+M<S>lmbcs",
                &format!("+M{letter}lmbcs {SMALL_CARRIER_KB:.0} +M{letter}smbcs {SMALL_CARRIER_KB:.0} {apart}"),
                "the smaller carriers are, the more of them are left without a block; each larger block has a carrier and a mapping of its own, beyond 256 for each instance from malloc unless mmsbc allows more",
                prove,
            )
            .map(|remedy| remedy.saving(sparse.saved_by_small()))
        })
        .fix_if(sparse.allocator.pool.size > 0 && is_lower("acful", FREED_BELOW), || {
            remedy::of(
                period,
                "+M<S>acful",
                &format!("+M{letter}acful {FREED_BELOW:.0}"),
                "free pages of carriers in the pool are given back with MADV_FREE; they count as resident until the kernel takes them (from 28.1 on, +Mumadtn true takes them at once)",
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
                    "with {}, in place of which it stands, an instance keeps its carriers for itself (acul is 0), however few blocks are in them; with this one they are shared",
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
                "carriers that are used to less than 80 % are then shared and filled by all schedulers (60 % by default, 45 % for heaps)",
                prove,
            )
        })
}

/// The flag with which an allocator's instances keep their carriers for themselves. Of it and `acul` the later one counts: an `acul`
/// after it changes the strategy (run on OTP 25).
fn keeps_carriers(period: &Period, letter: char) -> Option<String> {
    let mut keeps = None;
    for setting in beamtune_flags::parse_emu_args(&period.facts.list(facts::EMU_ARGS)?) {
        let of = |name: &str| [letter, 'u'].iter().any(|of| setting.flag == format!("+M{of}{name}"));
        let value = setting.value.as_deref().unwrap_or_default();
        if of("as") {
            keeps = KEEP_CARRIERS.contains(&value).then(|| format!("{} {value}", setting.flag));
        } else if of("acul") && value != "0" {
            keeps = None;
        }
    }
    keeps
}
