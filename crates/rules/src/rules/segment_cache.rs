//! BT029: mseg segments are mapped and unmapped all the time, because the segment cache is too small for the rate at which they are
//! requested.

use beamtune_model::memory::allocators;
use beamtune_model::{
    Account, Code, Evidence, Group, Metric, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule, Topic};
use crate::signals::memory::{self, Segments};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT029"),
    name: "segment-cache",
    question: "Are memory segments mapped and unmapped all the time?",
    confirm: "compare with +MMmcs 30 under the same load (beamtune compare): page faults and system CPU time fall",
    needs: &[&metrics::MSEG_CREATES, &metrics::MSEG_DESTROYS, &metrics::MSEG_ALLOCATIONS],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    text: Some("the output of recon_alloc:cache_hit_rates()"),
    judge,
    thresholds: &[MAPPED],
    ..Rule::COMMON
};

const MAPPED: Threshold = Threshold::new(
    "segment-cache.segments_per_s",
    "segments mapped and unmapped a second",
    Scale {
        notice: 100.0,
        warning: 500.0,
        critical: 20_000.0,
        source: "judgement: each costs an mmap, a munmap and a page fault for each 4 kB that is touched",
    },
);

/// With this `sbct`, in kB, blocks of up to 4 MB share carriers.
const SHARING_SBCT_KB: f64 = 4_096.0;

/// Twice the defaults of the limits on how much larger than requested a cached segment may be (judgement; recon names these flags after
/// `+MMmcs`).
const LOOSER_FIT: &str = "+MMrmcbf 40 +MMamcbf 8192";

/// With less system CPU time, in cores, the cost is small (judgement).
const MIN_SYSTEM_CORES: f64 = 0.05;

/// With fewer requests since the VM started, the cache has not been tested (judgement).
const MIN_REQUESTS: i64 = 1_000;

const MORE_SEGMENTS: &str = "the cache then keeps three times as many segments (10 by default)";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let Segments { requested, mapped, hits } = match Segments::of(period) {
        Ok(segments) => segments,
        Err(missing) => return by_totals(period).ok_or(missing),
    };
    let Some(severity) = MAPPED.of(period).severity(mapped).filter(|_| hits < Segments::GOOD_HITS) else {
        return Ok(Judgement::Healthy(format!(
            "segments mapped and unmapped: {}/s; segment cache hits: {:.0} %",
            text::rate(mapped),
            hits * 100.0
        )));
    };
    let mut users = allocators(period);
    let size = memory::fitting_super_carrier_mb(period, &users);
    users.retain(|allocator| allocator.segment_requests_per_s.is_some_and(|rate| rate > 0.0));
    users.sort_by(|a, b| {
        b.segment_requests_per_s.unwrap_or(0.0).total_cmp(&a.segment_requests_per_s.unwrap_or(0.0))
    });
    let main = users.first();
    let letter = main.and_then(|main| beamtune_flags::allocator(&main.name)).map(|known| known.letter);
    let raises = letter.filter(|letter| view::is_lower(&period.facts, *letter, "sbct", SHARING_SBCT_KB));
    let faults = period.rate(&metrics::MINOR_FAULTS, "").ok();
    let system = period.cores(&metrics::PROCESS_SYSTEM, "").ok();
    let has_super_carrier = view::emulator_flag(&period.facts, "+MMscs").value().is_some();
    let fits_loosely = ["+MMrmcbf", "+MMamcbf"]
        .iter()
        .any(|flag| view::emulator_flag(&period.facts, flag).value().is_some());
    let prove =
        "page faults and system CPU time per request under the same load; beamtune memory: segments mapped";
    let most = main.map_or(String::new(), |main| format!(", most for {}", main.name));
    Ok(Judgement::found(
        Draft::new(severity, format!("{} mseg segments/s mapped and unmapped{most}", text::rate(mapped)))
        .detail(format!("the cache serves {:.0} % of {} requests/s", hits * 100.0, text::rate(requested)))
        .detail(system.map_or(String::new(), |cores| format!("{} cores of system CPU time", text::cores(cores))))
        .minor_if(system.is_some_and(|cores| cores < MIN_SYSTEM_CORES))
        .about(Subject::allocator(main.map_or("mseg_alloc", |main| main.name.as_str())))
        .evidence(Evidence::number("segments mapped and unmapped", mapped, Unit::PerSecond).against_scale(MAPPED.of(period)))
        .evidence(Evidence::number("segments requested", requested, Unit::PerSecond))
        .evidence(Evidence::number("cache hits", hits, Unit::Ratio).against(Segments::GOOD_HITS, "threshold of recon"))
        .because_some(main.and_then(|main| {
            Some(Evidence::number(format!("requested by {}", main.name), main.segment_requests_per_s?, Unit::PerSecond))
        }))
        .because_some(faults.map(|rate| Evidence::number("page faults", rate, Unit::PerSecond)))
        .because_some(system.map(|cores| Evidence::number("system CPU time", cores, Unit::Cores)))
        .remedy(memory::larger_segment_cache(period, MORE_SEGMENTS, prove))
        .fix_if(!fits_loosely, || {
            remedy::of(
                period,
                "+MMrmcbf",
                LOOSER_FIT,
                "a cached segment may then exceed the request by twice the default (20 %, 4 MB); otherwise it is cut, and hardly any block fits the rest",
                prove,
            )
        })
        .fix_if(!has_super_carrier, || {
            remedy::of(
                period,
                "+MMscs",
                &match size {
                    Some(megabytes) => format!("+MMscs {megabytes:.0} +MMsco false"),
                    None => "+MMscs N +MMsco false, with N in MB above the peak of all carriers and below the host's memory".to_owned(),
                },
                "segments then come out of one mapping, without a system call for each",
                prove,
            )
        })
        .remedy(raises.and_then(|letter| {
            remedy::of(
                period,
                "+M<S>sbct",
                &memory::sharing_carriers(letter, SHARING_SBCT_KB),
                "blocks of up to 4 MB then share carriers that stay; not for high memory peaks: a few small blocks would keep such carriers",
                prove,
            )
        })),
    ))
}

/// Judges from the totals since the VM started, as recon prints them.
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
    let (requests, served) = (sum(&metrics::MSEG_ALLOCATIONS)?, sum(&metrics::MSEG_CACHE_HITS)?);
    let hits = if requests > 0 { served as f64 / requests as f64 } else { 1.0 };
    let percent = hits * 100.0;
    let requested = format!("{} requests since the VM started", text::number(requests as f64));
    if requests < MIN_REQUESTS || hits >= Segments::GOOD_HITS {
        return Some(Judgement::Healthy(format!("segment cache hits: {percent:.0} % of {requested}")));
    }
    Some(Judgement::found(
        Draft::new(MINOR, format!("Segment cache serves only {percent:.0} % of requests"))
            .detail(requested)
            .about(Subject::allocator("mseg_alloc"))
            .evidence(Evidence::number("segments requested", requests as f64, Unit::Count))
            .evidence(
                Evidence::number("cache hits", hits, Unit::Ratio)
                    .against(Segments::GOOD_HITS, "threshold of recon"),
            )
            .counter_evidence("the request rate is unknown: if requests are rare, this costs nothing")
            .counter_evidence("no cache serves high memory peaks")
            .remedy(memory::larger_segment_cache(
                period,
                MORE_SEGMENTS,
                "recon_alloc:cache_hit_rates() after the same uptime; page faults and system CPU time per request",
            )),
    ))
}
