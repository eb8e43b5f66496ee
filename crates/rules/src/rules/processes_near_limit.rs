//! BT007: the process table is nearly full, or filling up.

use beamtune_model::{
    Account, Code, Evidence, Limit, Missing, Period, Remedy, Stand, Subject, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, WARNING};
use crate::signals::limits::{FULL, Filling, Maker, maker};
use crate::signals::staying::Staying;
use crate::signals::{products, stack};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT007"),
    name: "processes-near-limit",
    question: "Is the process table full, or filling up?",
    confirm: "erlang:system_info(process_count) an hour apart: a leak grows without load",
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
    let filling = Filling::of(period, &metrics::PROCESS_COUNT, limit)?;
    let maker = maker(period, "process");
    let staying = filling
        .growth
        .as_ref()
        .zip(maker.as_ref())
        .map(|(growth, maker)| Staying::of(period, &maker.kind, growth));
    let left = staying.as_ref().filter(|staying| staying.are_left());
    let Some(severity) = filling.severity().into_iter().chain(left.map(|_| WARNING)).reduce(f64::max) else {
        return Ok(Judgement::Healthy(filling.sentence("processes")));
    };
    let leak = filling.growth.is_some();
    let known = maker.as_ref().and_then(|maker| products::kind(&maker.kind));
    let next = (limit * 4.0).min(134_217_727.0);
    let more = staying.as_ref().zip(maker.as_ref()).map(|(staying, maker)| why_more(period, staying, maker));
    let summary = match more.zip(filling.left_seconds()) {
        Some((more, left)) => format!(
            "{more}; {:.0} processes now, the limit of {limit:.0} is reached in {}",
            filling.now,
            view::duration_text(left)
        ),
        None => filling.sentence("processes"),
    };
    let is_certain = filling.severity().is_some_and(|severity| severity >= WARNING);
    let draft = filling
        .draft_of(severity, summary, "processes")
        .inferred_if(left.is_some() && !is_certain)
        .because_some(maker.as_ref().map(|maker| maker.evidence.clone()));
    let draft = match &staying {
        Some(staying) => describe(period, staying, draft),
        None => draft,
    };
    let end = staying.as_ref().filter(|_| known.is_none()).and_then(|staying| an_end(period, staying));
    let is_started_anew = staying.as_ref().is_some_and(Staying::are_started_anew);
    Ok(Judgement::found(
        draft
            .about(maker.map_or(Subject::limit(Limit::Processes), |maker| Subject::ProcessKind {
                name: maker.kind,
                starter: maker.by,
            }))
            .but_if(leak, FILLS_UP)
            .fix_if(known.is_none() && is_started_anew, || {
                remedy::of(
                    period,
                    "code.temporary_children",
                    "restart => temporary (transient, where a crash must be mended) for children that serve one client or one job",
                    "a permanent child that ends is started anew, without what it was started for, and stays",
                    "the process count must stop growing under the same load",
                )
            })
            .fix_if(leak && end.is_none(), || {
                remedy::of(
                    period,
                    "code.bounded_processes",
                    known.map_or(
                        "end the processes when their work is done, and bound how many may run at a time",
                        |kind| &kind.instead,
                    ),
                    known
                        .map_or("a table that leaks is full one day, whatever its size", |kind| &kind.source),
                    "the process count must stop growing under the same load",
                )
            })
            .fix(end)
            .fix_if(filling.needs_room(), || {
                remedy::of(
                    period,
                    "+P",
                    &format!("+P {next:.0}"),
                    if leak {
                        "gives time, cures nothing"
                    } else {
                        "makes room for as many processes as the node really needs"
                    },
                    "restart with the flag: system_info(process_limit) shows the new size",
                )
            }),
    ))
}

/// What speaks against a leak.
const FILLS_UP: &str = "a node that has just got more users or work grows too, until all that needs a process has one: look whether it goes on";

/// So many of those that were looked at again must be in a call to one process for it to be named: most of them.
const MOSTLY: i64 = 2;

/// Why they become more, in words.
fn why_more(period: &Period, staying: &Staying<'_>, maker: &Maker) -> String {
    let by = maker.by.as_ref().map_or(String::new(), |by| format!(" made by {by}"));
    let ends = match (staying.ends(), staying.started) {
        (Some(ends), Some(started)) => format!(" ({started:.0} start, {ends:.0} end)"),
        _ => String::new(),
    };
    let more = format!("{:.0} processes more each second{ends}, mostly {}{by}", staying.growth, maker.kind);
    let Some(new) = staying.newcomers else { return more };
    let end = match new.ended {
        0 => format!("none of {} ended within seconds", new.looked_at),
        some => format!("{some} of {} ended within seconds", new.looked_at),
    };
    let place = staying.waits().map_or(String::new(), |(place, live)| {
        let on = called(period, place).map_or(String::new(), |called| format!(" for {called}"));
        let at = place.stack.first().map_or("a receive", String::as_str);
        format!(", {} of {live} wait{on} in {}", place.count, stack::with_caller(at, &place.stack))
    });
    format!("{more}: {end}{place}")
}

/// Whom most of those who stand there call.
fn called(period: &Period, place: &Stand) -> Option<String> {
    let is_call = place.stack.first().is_some_and(|function| stack::is_call(function));
    let first = place.on.first().filter(|wanted| is_call && MOSTLY * wanted.count > place.count)?;
    Some(period.title_of(&first.who))
}

fn describe(period: &Period, staying: &Staying<'_>, draft: Draft) -> Draft {
    let draft = draft
        .because_some(staying.started.map(|started| {
            Evidence::number("of this kind started in a second, about", started, Unit::PerSecond)
        }))
        .because_some(
            staying
                .ends()
                .map(|ends| Evidence::number("of these end in a second, about", ends, Unit::PerSecond)),
        )
        .because_some(staying.newcomers.map(|new| {
            Evidence::number(
                "new ones that live on some seconds later",
                (new.looked_at - new.ended) as f64,
                Unit::Count,
            )
            .with_text(format!("of {} looked at again", new.looked_at))
        }));
    let draft = draft.because_some(staying.memory_per_s.map(|bytes| {
        Evidence::number("memory of all processes, more in a second", bytes, Unit::Bytes)
            .with_text(format!("{:.1} kB for each process more", bytes / staying.growth / 1e3))
    }));
    let places = staying.newcomers.map_or(&[][..], |new| &new.places);
    let draft = places.iter().take(MAX_PLACES).fold(draft, |draft, place| {
        let at = match place.stack.first() {
            Some(at) => stack::with_caller(at, &place.stack),
            None => place.status.clone(),
        };
        let on = called(period, place).map_or(String::new(), |called| format!(", for {called}"));
        draft.because(Evidence::text("where these stand", format!("{at}{on}: {}", place.count)))
    });
    // Of those that do nothing but wait all monitors were asked for.
    let watches_nobody = staying.waits().is_some_and(|(place, _)| place.on.is_empty());
    draft
        .because_some(watches_nobody.then(|| {
            Evidence::text(
                "whom they monitor",
                "nobody, so that none learns when the one it works for has gone",
            )
        }))
        .because_some(staying.are_started_anew().then(|| {
            Evidence::text(
                "as many end as are left",
                "a supervisor does that which starts each one anew that ends (restart: permanent)",
            )
        }))
        .because_some((!staying.comes_with_ports).then(|| {
            Evidence::text(
                "ports and open files",
                "do not become more along with them, as connections of new users would",
            )
        }))
}

/// Places of those that were looked at again that are told.
const MAX_PLACES: usize = 3;

/// How those come to an end that wait, by where they do.
fn an_end(period: &Period, staying: &Staying<'_>) -> Option<Remedy> {
    let (place, _) = staying.waits().filter(|_| staying.stay())?;
    let at = place.stack.first()?;
    let own = stack::of_program(&place.stack).unwrap_or(at);
    let (change, why) = if stack::is_loop(at) {
        (
            "give them an end: stop when the work is done; a time-out while they wait ({state_timeout, Time, stop} in gen_statem, {noreply, \
             State, Time} in gen_server); and a monitor of the one they work for, to stop when that has gone"
                .to_owned(),
            "they wait for a message that does not come, and nothing else ends them",
        )
    } else if stack::is_call(at) {
        let whom = called(period, place).unwrap_or_else(|| "what they wait for".to_owned());
        (
            format!(
                "a time-out for the wait in {own}, and an end when it is over; then find out why {whom} does not answer"
            ),
            "who waits without a time-out waits for ever",
        )
    } else {
        (
            format!(
                "an `after` for the receive in {own}, and a monitor of the one they work for, to stop when that has gone"
            ),
            "they wait for a message that does not come, and nothing else ends them",
        )
    };
    remedy::of(
        period,
        "code.bounded_processes",
        &change,
        why,
        "the process count must stop growing under the same load",
    )
}
