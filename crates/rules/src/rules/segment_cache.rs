//! BT029: segments are mapped and given back all the time, since the cache of segments is too small for what is going on.

use beamtune_model::memory::allocators;
use beamtune_model::{
    Account, Code, Evidence, Group, Metric, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule, Topic};
use crate::signals::memory::{self, Segments};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT029"),
    name: "segment-cache",
    question: "Are segments of memory mapped and unmapped all the time?",
    confirm: "+MMmcs 30 under the same load: page faults and system CPU must fall (beamtune compare)",
    needs: &[&metrics::MSEG_CREATES, &metrics::MSEG_DESTROYS, &metrics::MSEG_ALLOCATIONS],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    text: Some("what recon_alloc:cache_hit_rates() prints"),
    judge,
    thresholds: &[MAPPED],
    ..Rule::COMMON
};

/// Segments mapped and unmapped again per second.
const MAPPED: Threshold = Threshold::new(
    "segment-cache.segments_per_s",
    "segments mapped and unmapped a second",
    Scale {
        notice: 100.0,
        warning: 500.0,
        critical: 20_000.0,
        source: "judgement: a call of mmap, one of munmap and a page fault for each 4 kB that is touched",
    },
);

/// A threshold below which blocks of up to 4 MB share carriers, in kB.
const SHARING_SBCT_KB: f64 = 4_096.0;

/// Twice the default of what a cached segment may be larger than what is asked for (judgement; recon names these flags after `+MMmcs`).
const LOOSER: &str = "+MMrmcbf 40 +MMamcbf 8192";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let Segments { asked, mapped, hits } = match Segments::of(period) {
        Ok(segments) => segments,
        Err(missing) => return by_totals(period).ok_or(missing),
    };
    let Some(severity) = MAPPED.of(period).severity(mapped).filter(|_| hits < Segments::GOOD_HITS) else {
        return Ok(Judgement::Healthy(format!(
            "{mapped:.0} segments a second are mapped and unmapped again ({:.0} % come from the cache)",
            hits * 100.0
        )));
    };
    let mut askers = allocators(period);
    let size = memory::fitting_super_carrier_mb(period, &askers);
    askers.retain(|allocator| allocator.segments_asked_per_s.is_some_and(|rate| rate > 0.0));
    askers.sort_by(|a, b| {
        b.segments_asked_per_s.unwrap_or(0.0).total_cmp(&a.segments_asked_per_s.unwrap_or(0.0))
    });
    let most = askers.first();
    let letter = most.and_then(|most| beamtune_flags::allocator(&most.name)).map(|known| known.letter);
    let raises = letter.filter(|letter| view::is_lower(&period.facts, *letter, "sbct", SHARING_SBCT_KB));
    let faults = period.rate(&metrics::MINOR_FAULTS, "").ok();
    let system = period.cores(&metrics::PROCESS_SYSTEM, "").ok();
    let has_super_carrier = view::emulator_flag(&period.facts, "+MMscs").value().is_some();
    let fits_loosely = ["+MMrmcbf", "+MMamcbf"]
        .iter()
        .any(|flag| view::emulator_flag(&period.facts, flag).value().is_some());
    let prove = "the same load: page faults and CPU in the kernel, per request; beamtune memory: segments mapped anew";
    Ok(Judgement::found(
        Draft::new(
            // What it costs is the kernel's time: without much of that it is a notice.
            severity,
            format!(
                "{mapped:.0} segments a second are mapped anew and as many unmapped; the cache serves {:.0} % of what is asked for{}",
                hits * 100.0,
                most.map_or(String::new(), |most| format!(", most of it by {}", most.name))
            ),
        )
        .minor_if(system.is_some_and(|cores| cores < 0.05))
        .about(Subject::allocator(most.map_or("mseg_alloc", |most| most.name.as_str())))
        .because(Evidence::number("segments mapped and unmapped", mapped, Unit::PerSecond).against_scale(MAPPED.of(period)))
        .because(Evidence::number("asked for", asked, Unit::PerSecond))
        .because(Evidence::number("served by the cache", hits, Unit::Ratio).against(Segments::GOOD_HITS, "recon's threshold"))
        .because_some(most.and_then(|most| {
            Some(Evidence::number(format!("asked for by {}", most.name), most.segments_asked_per_s?, Unit::PerSecond))
        }))
        .because_some(faults.map(|rate| Evidence::number("page faults", rate, Unit::PerSecond)))
        .because_some(system.map(|cores| Evidence::number("CPU in the kernel", cores, Unit::Cores)))
        .fix(memory::larger_segment_cache(
            period,
            "the cache then keeps three times as many segments (10 by default)",
            prove,
        ))
        .fix_if(!fits_loosely, || {
            remedy::of(
                period,
                "+MMrmcbf",
                LOOSER,
                "a cached segment that is up to twice as much too large is then taken as it is; by default (20 %, 4 MB) it is cut, and the rest is of use to hardly anybody",
                prove,
            )
        })
        .fix_if(!has_super_carrier, || {
            remedy::of(
                period,
                "+MMscs",
                &match size {
                    Some(megabytes) => format!("+MMscs {megabytes:.0} +MMsco false"),
                    None => "+MMscs N with N in MB above the peak of all carriers and below the node's memory, and +MMsco false".to_owned(),
                },
                "segments then come out of one mapping, without a call of the kernel for each",
                prove,
            )
        })
        .fix(raises.and_then(|letter| {
            remedy::of(
                period,
                "+M<S>sbct",
                &memory::sharing_carriers(letter, SHARING_SBCT_KB),
                "blocks of up to 4 MB then share carriers that stay, in place of a segment for each; not where memory comes in high peaks, for a few small blocks then keep such carriers",
                prove,
            )
        })),
    ))
}

/// With fewer segments asked for than this since the VM was started the cache has had no occasion yet (judgement).
const FEW_ASKED: i64 = 1_000;

/// By what recon has printed: what the cache has served since the VM was started.
fn by_totals(period: &Period) -> Option<Judgement> {
    let instances = period.entities(Group::Mseg);
    if !period.is_imported() || instances.is_empty() {
        return None;
    }
    let sum = |metric: &'static Metric| -> Option<i64> {
        instances.iter().try_fold(0_i64, |sum, instance| {
            Some(sum.saturating_add(period.stat(metric, instance).ok()?.last.value))
        })
    };
    let (asked, served) = (sum(&metrics::MSEG_ALLOCATIONS)?, sum(&metrics::MSEG_CACHE_HITS)?);
    let hits = if asked > 0 { served as f64 / asked as f64 } else { 1.0 };
    let said = format!(
        "the cache of segments has served {:.0} % of {asked} calls since the VM was started",
        hits * 100.0
    );
    if asked < FEW_ASKED || hits >= Segments::GOOD_HITS {
        return Some(Judgement::Healthy(said));
    }
    Some(Judgement::found(
        Draft::new(MINOR, said)
            .about(Subject::allocator("mseg_alloc"))
            .because(Evidence::number("asked for", asked as f64, Unit::Count))
            .because(
                Evidence::number("served by the cache", hits, Unit::Ratio)
                    .against(Segments::GOOD_HITS, "recon's threshold"),
            )
            .but("how often segments are asked for is not known: seldom, it costs nothing")
            .but("memory that comes in high peaks is served by no cache")
            .fix(memory::larger_segment_cache(
                period,
                "the cache then keeps three times as many segments (10 by default)",
                "recon_alloc:cache_hit_rates() of a node that has run as long with it; page faults and CPU in the kernel, per request",
            )),
    ))
}
