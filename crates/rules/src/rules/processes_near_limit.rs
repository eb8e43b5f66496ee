//! BT007: the process table is nearly full, or fills up.

use beamtune_model::{
    Account, Code, Evidence, Limit, MemoryKind, Missing, Period, Remedy, Signal, Subject, Unit, WaitSample,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, WARNING};
use crate::signals::limits::{FULL, FrequentKind, LimitUsage, frequent_kind, grows_by_new_ones};
use crate::signals::staying::KindGrowth;
use crate::signals::{products, stack};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT007"),
    name: "processes-near-limit",
    question: "Is the process table full, or filling up?",
    confirm: "compare erlang:system_info(process_count) an hour apart: a leak grows without load",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::HeadRoom,
    text: Some("what rabbitmq-diagnostics status prints"),
    judges_dumps: true,
    needs_minutes: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let limit = period.fact_number(facts::PROCESS_LIMIT)? as f64;
    let filling = LimitUsage::of(period, &metrics::PROCESS_COUNT, limit)?;
    let maker = frequent_kind(period, "process");
    let staying = filling
        .growth
        .as_ref()
        .zip(maker.as_ref())
        .map(|(growth, maker)| KindGrowth::of(period, maker, growth));
    let is_leak = staying.as_ref().is_some_and(KindGrowth::is_leak);
    let of_leak = is_leak.then_some(WARNING);
    let Some(severity) = filling.severity().into_iter().chain(of_leak).reduce(f64::max) else {
        return Ok(Judgement::Healthy(filling.sentence("processes")));
    };
    let grows = filling.growth.is_some();
    let known = maker.as_ref().and_then(|maker| products::kind(&maker.kind));
    let next = (limit * 4.0).min(134_217_727.0);
    let kind = maker.as_ref().filter(|_| grows).map(|maker| kind_text(&maker.kind));
    let is_certain = filling.severity().is_some_and(|severity| severity >= WARNING);
    let draft = filling
        .draft_of(severity, title(&filling, severity, kind.as_deref(), is_leak), "processes")
        .detail(match kind.as_deref() {
            Some(kind) if !is_leak => format!("most new processes: {kind}"),
            _ => String::new(),
        })
        .detail(filling.consequence("spawn fails with system_limit"))
        .inferred_if(is_leak && !is_certain)
        .signals(
            staying
                .as_ref()
                .is_some_and(|staying| grows_by_new_ones(period, "processes", filling.now, staying.growth))
                .then_some(Signal::Grows(MemoryKind::Processes)),
        )
        .because_some(maker.as_ref().map(|maker| maker.evidence.clone()));
    let draft = match staying.as_ref().zip(maker.as_ref()) {
        Some((staying, maker)) => with_evidence(period, staying, with_detail(period, staying, maker, draft)),
        None => draft,
    };
    let end = staying.as_ref().filter(|_| known.is_none()).and_then(|staying| an_end(period, staying));
    let is_started_anew = staying.as_ref().is_some_and(KindGrowth::are_restarted);
    Ok(Judgement::found(
        draft
            .about(maker.map_or(Subject::limit(Limit::Processes), |maker| Subject::ProcessKind {
                name: maker.kind,
                starter: maker.by,
            }))
            .but_if(grows, MAY_BE_LOAD)
            .fix_if(known.is_none() && is_started_anew, || {
                remedy::of(
                    period,
                    "code.temporary_children",
                    "set restart => temporary for children that serve one client or job (transient, if a \
                     crash must be repaired)",
                    "a permanent child that ends is restarted without its client or job, and stays",
                    "the process count stops growing under the same load",
                )
            })
            .fix_if(grows && end.is_none(), || {
                remedy::of(
                    period,
                    "code.bounded_processes",
                    known.map_or(
                        "end the processes when their work is done, and limit how many run at once",
                        |kind| &kind.instead,
                    ),
                    known.map_or("a leak fills a table of any size", |kind| &kind.source),
                    "the process count stops growing under the same load",
                )
            })
            .remedy(end)
            .fix_if(filling.needs_room(), || {
                remedy::of(
                    period,
                    "+P",
                    &format!("+P {next:.0}"),
                    if grows {
                        "buys time, does not fix the leak"
                    } else {
                        "makes room for the processes that the node needs"
                    },
                    "restart with the flag: system_info(process_limit) shows the new size",
                )
            }),
    ))
}

const MAY_BE_LOAD: &str =
    "a node with more users or work also grows, but levels off: check whether growth continues";

/// Formats a kind for titles: `match`, `processes started by match_sup`.
fn kind_text(kind: &str) -> String {
    let text = text::processes(kind);
    text.strip_suffix(" processes").map_or(text.clone(), str::to_owned)
}

/// Returns the title; for a leak, it names the kind that grows, if known.
fn title(filling: &LimitUsage, severity: f64, kind: Option<&str>, is_leak: bool) -> String {
    match kind.zip(filling.growth).filter(|_| is_leak) {
        Some((kind, trend)) => {
            let left = filling.near_end_seconds();
            let end = left.map_or(String::new(), |left| format!(", limit in {}", view::duration_text(left)));
            format!("Likely process leak: {kind} +{}/s{end}", text::number(trend.slope))
        }
        None => filling.title(severity, "processes"),
    }
}

/// Adds why the number of processes increases, if that is known.
fn with_detail(period: &Period, staying: &KindGrowth<'_>, maker: &FrequentKind, draft: Draft) -> Draft {
    let by = match (&maker.by, staying.ended_starters) {
        (Some(by), Some((ended, all))) => {
            format!("spawned by {by}, of which {ended} of {all} ended within seconds")
        }
        (Some(by), None) => format!("spawned by {by}"),
        (None, _) => String::new(),
    };
    let rates = match (staying.ends(), staying.started) {
        (Some(exits), Some(spawns)) => format!("{spawns:.0} spawned and {exits:.0} exited per second"),
        _ => String::new(),
    };
    let draft = draft.detail(by).detail(rates);
    let Some(new) = staying.newcomers else { return draft };
    let ended = match new.ended {
        0 => format!("none of {} new ones ended within seconds", new.sampled),
        some => format!("{some} of {} new ones ended within seconds", new.sampled),
    };
    let waits = staying.waits().map_or(String::new(), |(place, live)| {
        let on = callee(period, place).map_or(String::new(), |callee| format!(" for {callee}"));
        let at = place.stack.first().map_or("a receive", String::as_str);
        format!("{} of {live} wait{on} in {}", place.count, stack::with_caller(at, &place.stack))
    });
    draft.detail(ended).detail(waits)
}

/// Returns the process that most processes at this place call.
fn callee(period: &Period, place: &WaitSample) -> Option<String> {
    let is_call = place.stack.first().is_some_and(|function| stack::is_call(function));
    let first = place.targets.first().filter(|wanted| is_call && 2 * wanted.count > place.count)?;
    Some(period.title_of(&first.name))
}

fn with_evidence(period: &Period, staying: &KindGrowth<'_>, draft: Draft) -> Draft {
    let rate = |what: &str, value: f64| Evidence::number(what, value, Unit::PerSecond);
    let draft = draft
        .because_some(staying.started.map(|spawns| rate("spawn rate of this kind, estimated", spawns)))
        .because_some(staying.ends().map(|exits| rate("exit rate of this kind, estimated", exits)))
        .because_some(staying.newcomers.map(|new| {
            let alive = (new.sampled - new.ended) as f64;
            Evidence::number("new processes still alive after a few seconds", alive, Unit::Count)
                .with_text(format!("of {} sampled again", new.sampled))
        }));
    let draft = draft.because_some(staying.memory_per_s.map(|bytes| {
        Evidence::number("growth of process memory per second", bytes, Unit::Bytes)
            .with_text(format!("{:.1} kB per process", bytes / staying.growth / 1e3))
    }));
    let places = staying.newcomers.map_or(&[][..], |new| &new.stacks);
    let draft = places.iter().take(MAX_PLACES).fold(draft, |draft, place| {
        let at = match place.stack.first() {
            Some(at) => stack::with_caller(at, &place.stack),
            None => place.status.clone(),
        };
        let on = callee(period, place).map_or(String::new(), |callee| format!(", for {callee}"));
        draft.evidence(Evidence::text(
            "current function of new processes",
            format!("{at}{on}: {}", place.count),
        ))
    });
    // All monitors of processes that only wait are known.
    let monitors_none = staying.waits().is_some_and(|(place, _)| place.targets.is_empty());
    draft
        .because_some(monitors_none.then(|| {
            Evidence::text("monitors", "none: they do not notice the exit of the process that they work for")
        }))
        .because_some(staying.are_restarted().then(|| {
            Evidence::text(
                "exit rate equal to growth",
                "a supervisor that restarts each one that ends (restart: permanent) causes that",
            )
        }))
        .because_some((!staying.comes_with_ports).then(|| {
            Evidence::text("ports and open files", "not growing; connections of new users would add some")
        }))
}

/// Maximum number of current functions in evidence.
const MAX_PLACES: usize = 3;

/// Returns how to end processes that wait, by the function in which they wait.
fn an_end(period: &Period, staying: &KindGrowth<'_>) -> Option<Remedy> {
    let (place, _) = staying.waits().filter(|_| staying.stay())?;
    let at = place.stack.first()?;
    let own = stack::of_program(&place.stack).unwrap_or(at);
    let (change, why) = if stack::is_loop(at) {
        (
            "end them: stop when the work is done, use a timeout while they wait ({state_timeout, Time, stop} in \
             gen_statem, {noreply, State, Time} in gen_server), and monitor the process that they work for"
                .to_owned(),
            "they wait for a message that does not come, and nothing else terminates them",
        )
    } else if stack::is_call(at) {
        let callee = callee(period, place).unwrap_or_else(|| "the callee".to_owned());
        (
            format!(
                "set a timeout for the wait in {own}, and end when it expires; then find out why {callee} does not answer"
            ),
            "a call without a timeout waits forever",
        )
    } else {
        (
            format!("add an `after` to the receive in {own}, and monitor the process that they work for"),
            "they wait for a message that does not come, and nothing else terminates them",
        )
    };
    remedy::of(
        period,
        "code.bounded_processes",
        &change,
        why,
        "the process count stops growing under the same load",
    )
}
