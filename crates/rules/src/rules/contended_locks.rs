//! BT033: which locks threads wait for.
//!
//! Where locks were counted it names the lock, what it belongs to, and what would be waited for without it. Where they were not, but
//! somebody has looked at where threads wait, it names the operation.

use beamtune_model::units::{SECOND_NS, seconds};
use beamtune_model::{Account, Code, Cost, Evidence, Missing, Nanos, Period, Subject, Unit, Use};

use crate::contention::look::{self, Look};
use crate::contention::{
    self, Answer, Contender, Entity, NAMELESS, Operation, Remains, Thing, What, blocked,
};
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::lock_suspects::{
    Schedulers, WAITED, candidates, is_of_metrics, metrics, metrics_by_scheduler, metrics_candidates,
};

pub const RULE: Rule = Rule {
    code: Code("BT033"),
    name: "contended-locks",
    question: "Which locks do threads wait for?",
    confirm: "a second count under the same load names the same lock; beamtune compare with the remedy tells what it is worth",
    needs: &[],
    account: Account::CpuUsed,
    topics: &[Topic::Locks],
    judge,
    thresholds: &[WAITED],
    ..Rule::COMMON
};

/// Counts of a shorter time than this are by chance, in nanoseconds.
const SHORT: i64 = SECOND_NS;

/// Findings at most, and things that are named in one.
const MOST: usize = 3;

/// What those who look themselves are to type.
const NEXT: &str = "beamtune locks TARGET";

/// What helps those who may not look, or who want more than an operation.
const NEXT_TEXT: &str = "copy what lcnt:conflicts() prints, too";
const NEXT_STOCK: &str =
    "beamtune locks TARGET, as root; or on an emulator that counts locks (beamtune emulator run)";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.lock_session.is_some() {
        return Ok(by_counts(period));
    }
    Ok(match (period.watched(), period.waits.is_empty()) {
        (Some(_), false) => seen_waiting(period),
        (Some(length), true) => Judgement::Healthy(format!(
            "threads were watched for {:.1} s, and none was seen waiting for a lock",
            seconds(length)
        )),
        (None, false) => Judgement::NotJudged {
            reason: "threads were seen waiting for locks, but how long the look was is not known".to_owned(),
            next: NEXT.to_owned(),
        },
        (None, true) => Judgement::NotJudged {
            reason:
                "locks were not counted, and nobody has watched what threads wait for, or saw enough of it"
                    .to_owned(),
            next: if period.is_imported() { NEXT_TEXT } else { NEXT_STOCK }.to_owned(),
        },
    })
}

fn by_counts(period: &Period) -> Judgement {
    if period.locks.is_empty() {
        return Judgement::NotJudged {
            reason: "locks were counted, but none was told of".to_owned(),
            next: NEXT.to_owned(),
        };
    }
    let Some(length) = contention::length(period) else {
        return Judgement::NotJudged {
            reason: "for how long locks were counted is not known".to_owned(),
            next: format!("{NEXT}; or import what lcnt:information() prints too"),
        };
    };
    let contenders = contention::contenders(period);
    let things = contention::things(period, &contenders);
    let schedulers = Schedulers::of(period);
    let mut drafts: Vec<Draft> = things
        .iter()
        .zip(contention::what_remains(period, &things, MOST))
        .filter_map(|(thing, rest)| {
            let share = thing.share?;
            let severity = schedulers.severity_of(thing)?;
            let contender = contenders.iter().find(|contender| contender.class == thing.class)?;
            let draft = Draft::new(
                severity,
                format!(
                    "threads wait for {}: {:.0} % of the duration, all threads together",
                    thing.name,
                    100.0 * share
                ),
            );
            // Threads that wait for one second in each second have lost one core.
            let draft = draft.costs(Cost::CpuCores(share)).part(Use::Locks).because(waited(thing.waited, length, share));
            let draft = schedulers.told(draft, share).but_if(
                schedulers.severity(share).is_none(),
                "of the time that all schedulers have it is little: it limits the node once they all come here",
            );
            Some(counted(draft, period, thing, contender, &rest))
        })
        .collect();
    // Each a little may be much together.
    if !things.iter().any(|thing| thing.share.is_some_and(|share| schedulers.severity(share).is_some())) {
        drafts.extend(spread(period, &contenders, &things, schedulers));
    }
    let categories = period.lock_session.as_ref().map_or(&[][..], |session| session.categories.as_slice());
    let are_processes_left_out =
        !categories.is_empty() && !categories.iter().any(|category| category == "process");
    let doubted = drafts.into_iter().map(|draft| {
        draft.but_if(length < SHORT, format!("locks were counted for {:.1} s only", seconds(length))).but_if(
            are_processes_left_out,
            "locks of processes were not counted, and may be waited for as well (beamtune locks --process)",
        )
    });
    let healthy = match things.first() {
        None => "nobody waited for a lock".to_owned(),
        Some(most) => format!(
            "no lock was waited for much: the most for {}, {:.2} % of the duration",
            most.name,
            100.0 * most.share.unwrap_or(0.0)
        ),
    };
    Judgement::found_or_healthy(doubted.collect(), healthy)
}

fn waited(waited: Nanos, length: Nanos, share: f64) -> Evidence {
    Evidence::number("time waited, of the duration", share, Unit::Ratio).with_text(format!(
        "{:.3} s in {:.3} s",
        seconds(waited),
        seconds(length)
    ))
}

/// A finding by what was counted of one thing.
fn counted(draft: Draft, period: &Period, thing: &Thing, contender: &Contender, remains: &Remains) -> Draft {
    let entity = contender.entities.iter().find(|entity| Some(&entity.id) == thing.id.as_ref());
    let counts = entity.map_or_else(|| contender.rest(), |entity| entity.counts);
    let is_rest = entity.is_none() && contender.entities.iter().any(|entity| entity.what.is_apart());
    let known = entity.and_then(|entity| entity.known.as_deref());
    let draft = draft
        .about(Subject::Lock { name: thing.name.clone() })
        .because_some(counts.collision_share().map(|share| {
            Evidence::number("tries that found it taken", share, Unit::Ratio)
                .with_text(format!("{} of {}", counts.collisions, counts.tries))
        }))
        .because_some((counts.locks > 0).then(|| {
            let what = match entity.map(|entity| entity.what) {
                Some(What::Allocator) => "instances that threads share, each with a lock",
                _ => "locks",
            };
            Evidence::number(what, counts.locks as f64, Unit::Count)
        }))
        .because_some(known.map(|known| Evidence::text("what it is", known)))
        .because_some(hot_key(entity))
        .because_some(numbered(contender, thing))
        .because_some(place(contender, entity, is_rest));
    // What helps depends on whose lock it is, and the class was asked for the one that is waited for the longest.
    let answer = match entity.is_some() || is_rest {
        true => contention::answer(period, &contender.class, entity),
        false => contender.answer.clone(),
    };
    let next = match &remains.next {
        Some((next, waited)) => format!("then {next}, {:.3} s", seconds(*waited)),
        None => "nothing else is waited for".to_owned(),
    };
    let left = Evidence::number(
        "what would remain without it and those above",
        remains.share.unwrap_or(0.0),
        Unit::Ratio,
    );
    explained(draft, &answer)
        .fix_if(
            entity.is_some_and(|entity| matches!(entity.what, What::Table) && is_of_metrics(&entity.id)),
            || metrics_by_scheduler(period),
        )
        .because(left.with_text(next))
        .but_if(!contender.is_whole, "only single locks were told, so there may be more of this class")
        .but_if(
            is_rest,
            "only locks that stand out are told one by one: others of the same ones may be among these",
        )
        .but("whoever does not wait here any more comes to the next lock sooner: at least that would remain")
}

/// Of a table's many locks, whether one has most of the waiting.
fn hot_key(entity: Option<&Entity>) -> Option<Evidence> {
    let hottest = entity.filter(|entity| entity.is_one_hot_lock())?.hottest?;
    let evidence = Evidence::number("of that for one of its locks", hottest, Unit::Ratio);
    Some(evidence.with_text("a key that all want, or a few"))
}

/// Of locks that share a load, how evenly they are waited for.
fn numbered(contender: &Contender, thing: &Thing) -> Option<Evidence> {
    let first = contender.entities.first().filter(|_| thing.id.is_none())?;
    let part = first.counts.waited as f64 / contender.counts.waited.max(1) as f64;
    let is_hot = !first.what.is_apart() && contender.counts.locks > 1 && part >= 0.5;
    is_hot.then(|| Evidence::number(format!("of that for {}", first.title), part, Unit::Ratio))
}

/// Where in the emulator's source it was waited for: of the entity's own locks where that was told, else of the whole class.
fn place(contender: &Contender, entity: Option<&Entity>, is_rest: bool) -> Option<Evidence> {
    let own = entity.and_then(|entity| entity.place.as_ref());
    let of = if own.is_some() || (entity.is_none() && !is_rest) { "that" } else { "the class" };
    let (file, line, share) = own.or(contender.place.as_ref())?;
    Some(Evidence::number(format!("of {of} at {file}:{line}"), *share, Unit::Ratio))
}

/// A finding of many locks that are each waited for a little.
fn spread(
    period: &Period,
    contenders: &[Contender],
    things: &[Thing],
    schedulers: Schedulers,
) -> Option<Draft> {
    let share: f64 = things.iter().filter_map(|thing| thing.share).sum();
    let severity = schedulers.severity(share)?;
    let first = contenders.first()?;
    let summary = format!(
        "threads wait for {} different locks, for none of them much: {:.0} % of the duration, all threads together, most of it for {}",
        things.len(),
        100.0 * share,
        first.class
    );
    let draft = schedulers
        .told(
            Draft::new(severity, summary)
                .about(Subject::Lock { name: "many locks".to_owned() })
                .costs(Cost::CpuCores(share))
                .part(Use::Locks),
            share,
        )
        .because_some(first.share.map(|share| {
            Evidence::number(format!("waited for the class {}", first.class), share, Unit::Ratio)
        }));
    let draft = things.iter().take(MOST).fold(draft, |draft, thing| {
        let share = thing.share.unwrap_or(0.0);
        draft.because(Evidence::number(format!("waited for {}", thing.name), share, Unit::Ratio))
    });
    Some(explained(draft, &contention::answer(period, &first.class, None)))
}

/// What the class is, and what helps.
fn explained(draft: Draft, answer: &Answer) -> Draft {
    let advice = answer.advice.as_deref().unwrap_or("no known remedy");
    let draft = draft
        .because_some(answer.protects.as_deref().map(|text| Evidence::text("it guards", text)))
        .because_some(answer.cause.as_deref().map(|text| Evidence::text("usually contended by", text)))
        .because(Evidence::text("what usually helps", advice));
    answer.remedies.iter().cloned().fold(draft, |draft, remedy| draft.fix(Some(remedy)))
}

/// How much was waited.
struct Waits {
    share: f64,
    of: &'static str,
    severity: Option<f64>,
}

/// A finding by where threads were seen waiting.
fn seen_waiting(period: &Period) -> Judgement {
    let operations = contention::operations(period);
    let first = operations.first();
    let name = first.map_or(NAMELESS, Operation::title);
    let look = look::of_period(period);
    let is_cleared = look.as_ref().is_some_and(|look| look.answer == blocked::Answer::No);
    let schedulers = Schedulers::of(period);
    let waits = match look.as_ref().and_then(|Look { seen, .. }| *seen) {
        Some(seen) => Waits {
            share: seen.share,
            of: "the time in which schedulers had work",
            severity: WAITED.of(period).severity(seen.share),
        },
        // Nothing tells how the threads spent their time otherwise.
        None => {
            let share = operations.iter().filter_map(|operation| operation.share).sum();
            Waits { share, of: "the look, all threads together", severity: schedulers.severity(share) }
        }
    };
    let said = format!("{:.0} % of {}, most of it in {name}", 100.0 * waits.share, waits.of);
    let Some(severity) = waits.severity.filter(|_| !is_cleared) else {
        return Judgement::Healthy(format!("threads were seen waiting for locks for {said}"));
    };
    let mut draft = Draft::new(severity, format!("threads wait for locks: {said}"))
        .about(Subject::Lock { name: name.to_owned() })
        .because(
            Evidence::number(format!("waited, of {}", waits.of), waits.share, Unit::Ratio)
                .against_scale(WAITED.of(period)),
        );
    for operation in operations.iter().take(MOST) {
        let of = operation.class.map_or_else(String::new, |class| format!(", for locks such as {class}"));
        let waited = Evidence::number(
            format!("waited in {}", operation.title()),
            operation.share.unwrap_or(0.0),
            Unit::Ratio,
        );
        draft = draft.because(waited.with_text(format!("seen {} times{of}", operation.seen)));
    }
    if let Some(first) = first {
        draft = operation(draft, period, first);
    }
    Judgement::found(draft.but("which lock it is does not show on a VM that does not count locks").fix(
        remedy::of(
            period,
            "build.lock_counting",
            "the same load on an emulator that counts locks (beamtune emulator run), then beamtune locks",
            "it names the lock, the table, and the place in the source",
            "the lock with the most waiting time is the one to get rid of",
        ),
    ))
}

/// What is known of an operation.
fn operation(mut draft: Draft, period: &Period, first: &Operation) -> Draft {
    if !first.stack.is_empty() {
        draft = draft.because(Evidence::text("where", first.stack.join(" ← ")));
    }
    let Some(class) = first.class else { return draft };
    if class.starts_with("db_") {
        let how =
            "look for the tables that the program uses with it most, of those that several processes write";
        draft = draft
            .because(Evidence::text("how to find the table", how))
            .because_some(candidates(period))
            .because_some(metrics(period))
            .fix(metrics_candidates(period));
    }
    explained(draft, &contention::answer(period, class, None))
}
