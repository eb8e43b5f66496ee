//! BT082: new processes are started with large arguments.
//!
//! The spawning process copies the arguments, including the variables of a closure, to the new heap. A closure that uses one field of a
//! server's state contains the whole state.

use std::collections::BTreeMap;

use beamtune_model::{
    Account, Code, Confidence, Cost, CpuUse, Evidence, Missing, Period, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::{events, new_processes};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT082"),
    name: "large-arguments",
    question: "Are large terms copied to new processes?",
    confirm: "compute erts_debug:flat_size(Fun) * 8 of the closure, or of the arguments, where the process is started: it matches the size measured here",
    needs: &[&metrics::SCAN_SPAWNED],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    thresholds: &[COST],
    ..Rule::COMMON
};

const COST: Threshold = Threshold::new(
    "large-arguments.cpu_share",
    "copying arguments of new processes, share of the VM's CPU",
    Scale {
        notice: 0.02,
        warning: 0.10,
        critical: 0.75,
        source: "judgement: the cost of copies that could be avoided",
    },
);

/// Copying that takes fewer cores is not worth a change (judgement).
const MIN_CORES: f64 = 0.02;

/// Fewer sampled processes may be a state that is handed over once (judgement).
const MIN_SAMPLED: i64 = 5;

/// Time to copy a byte, including the creation and the end of the new heap. Measured on OTP 25 with nested maps: 0.5 ns for terms of 0.1 to
/// 1 MB. Terms of 8 to 28 MB, which fit into no CPU cache, took 3 to 12 ns.
const SECONDS_PER_BYTE: f64 = 0.5e-9;
const SECONDS_PER_BYTE_UNCACHED: f64 = 3.0e-9;
/// Terms of this size or more fit into no CPU cache (the same measurement).
const UNCACHED_BYTES: f64 = 4e6;

/// Arguments of the sampled processes with one initial call and one parent.
#[derive(Default)]
struct Given {
    count: i64,
    bytes: i64,
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let spawned = period.rate(&metrics::SCAN_SPAWNED, "")?;
    let sampled = new_processes::rows(period).map(|row| row.count);
    let sampled = sampled.fold(0_i64, i64::saturating_add);
    let mut all: BTreeMap<(&str, &str), Given> = BTreeMap::new();
    for row in period.spawns.iter().filter(|row| row.what == "given") {
        let maker = row.creator.as_deref().unwrap_or_default();
        let given = all.entry((&row.kind, maker)).or_default();
        given.count = given.count.saturating_add(row.count);
        given.bytes = given.bytes.saturating_add(row.bytes.unwrap_or(0));
    }
    let most = all.into_iter().max_by_key(|(_, given)| given.bytes);
    let Some(((kind, maker), given)) = most.filter(|(_, given)| given.count >= MIN_SAMPLED) else {
        return Ok(Judgement::Healthy(format!(
            "fewer than {MIN_SAMPLED} of {sampled} sampled new processes have 32 kB of arguments or more"
        )));
    };
    let each = given.bytes as f64 / given.count as f64;
    // A lower bound: processes that end between two scans are missed.
    let rate = spawned * given.count as f64 / sampled.max(given.count) as f64;
    let seconds_per_byte = if each >= UNCACHED_BYTES { SECONDS_PER_BYTE_UNCACHED } else { SECONDS_PER_BYTE };
    // Long time slices of the copying process contain the copies, so the larger of both estimates is used.
    let slices = slices_of(period, maker);
    let cores = slices.unwrap_or(0.0).max(rate * each * seconds_per_byte);
    let used = view::process_cores(period)?;
    let share = cores / used.max(cores).max(f64::MIN_POSITIVE);
    let Some(severity) = COST.of(period).severity(share).filter(|_| cores >= MIN_CORES) else {
        return Ok(Judgement::Healthy(format!(
            "{} get {} of arguments; copying takes {cores:.3} cores",
            text::processes(kind),
            text::bytes(each)
        )));
    };
    let size = text::bytes(each);
    let title = match maker {
        "" => format!("New {} get {size} of arguments each", text::processes(kind)),
        maker => format!("{maker} copies {size} to each new process"),
    };
    // The supervisor that started them, if another process requested that.
    let parent = new_processes::rows(period).find(|row| row.kind == kind);
    let names = [kind, maker, parent.and_then(|row| row.creator.as_deref()).unwrap_or_default()];
    let draft = Draft::new(severity, title)
        .detail(if maker.is_empty() { String::new() } else { format!("started with {kind}") })
        .detail(format!("at least {}/s, {} cores", text::rate(rate), text::cores(cores)))
        .about(Subject::kind(if maker.is_empty() { kind } else { maker }))
        .costs(Cost::CpuCores(cores))
        .part(CpuUse::Code)
        .signals(
            names.into_iter().filter(|name| !name.is_empty()).map(|name| Signal::RunBy(Subject::kind(name))),
        )
        .evidence(
            Evidence::number("arguments of a new process", each, Unit::Bytes)
                .with_text(format!("mean of {} sampled", given.count)),
        )
        .evidence(
            Evidence::number("new processes of this kind", rate, Unit::PerSecond)
                .with_text("at least: those alive in a scan"),
        )
        .evidence(
            Evidence::number("copying, share of the VM's CPU", share, Unit::Ratio)
                .against_scale(COST.of(period))
                .with_text(format!(
                    "at {:.1} ns per byte, or by long_schedule events",
                    seconds_per_byte * 1e9
                )),
        )
        .because_some(
            slices.map(|cores| Evidence::number("long time slices of the parent", cores, Unit::Cores)),
        )
        .because_some((!maker.is_empty()).then(|| Evidence::text("started by", maker)))
        .evidence(Evidence::text("initial call", kind));
    Ok(Judgement::found(draft.remedy(remedy::of(
        period,
        "code.small_closures",
        "take what the new process needs out of the state before the closure (host = state.host), pass an id, or keep shared data in ETS or persistent_term",
        "a closure copies each variable that it uses, a server's state as a whole, and the server handles no message meanwhile",
        "CPU per request and the longest time slice under the same load",
    ))))
}

/// Returns the time in long time slices of this process, in cores, if it has the most of these events.
fn slices_of(period: &Period, maker: &str) -> Option<f64> {
    let slices = events::of_kind(period, "long_schedule").ok()?;
    let culprit = slices.culprit.as_ref()?;
    let is_maker = !maker.is_empty() && Subject::process(culprit.subject).names().contains(&maker);
    let share = culprit.count as f64 / culprit.of.max(1) as f64;
    is_maker.then(|| slices.seconds * share / period.seconds().max(1.0))
}
