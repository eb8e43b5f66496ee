//! BT033: which locks threads wait for.
//!
//! With lock counting, the finding names the lock, its table, process or allocator, and the waits that would remain without this lock. With
//! samples of waiting threads, it names the operation.

use beamtune_model::units::{SECOND_NS, seconds};
use beamtune_model::{Account, Code, Cost, CpuUse, Evidence, Missing, Nanos, Period, Subject, Unit};

use crate::contention::verdict::{self, ContentionVerdict};
use crate::contention::{
    self, ContendedLocks, Explanation, LockClassWaits, LockOwner, NO_NAME, Operation, OwnerKind,
    RemainingWaits, blocked,
};
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::lock_suspects::{
    Schedulers, WAITED, candidates, is_of_metrics, metrics, metrics_by_scheduler, metrics_candidates,
};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT033"),
    name: "contended-locks",
    question: "Which locks do threads wait for?",
    confirm: "count again under the same load: the result names the same lock; beamtune compare shows the effect of the remedy",
    needs: &[],
    account: Account::CpuUsed,
    topics: &[Topic::Locks],
    judge,
    thresholds: &[WAITED],
    ..Rule::COMMON
};

/// Minimum duration of lock counting, in nanoseconds. Shorter counts may be chance.
const MIN_LENGTH_NS: i64 = SECOND_NS;

/// Maximum number of findings, and of locks or operations that a finding lists.
const MAX_NAMED: usize = 3;

const NEXT: &str = "run beamtune locks TARGET";
const NEXT_TEXT: &str = "also copy the output of lcnt:conflicts()";
const NEXT_STOCK: &str =
    "run beamtune locks TARGET as root, or use an emulator that counts locks (beamtune emulator run)";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.lock_session.is_some() {
        return Ok(by_counts(period));
    }
    Ok(match (period.lock_sampling_length(), period.lock_waits.is_empty()) {
        (Some(_), false) => sampled(period),
        (Some(length), true) => {
            Judgement::Healthy(format!("no lock wait in {:.1} s of sampling", seconds(length)))
        }
        (None, false) => Judgement::NotJudged {
            reason: "lock waits were sampled, but the length of sampling is unknown".to_owned(),
            next: NEXT.to_owned(),
        },
        (None, true) => Judgement::NotJudged {
            reason: "lock waits were neither counted nor sampled".to_owned(),
            next: if period.is_imported() { NEXT_TEXT } else { NEXT_STOCK }.to_owned(),
        },
    })
}

/// Evaluates lock counts.
fn by_counts(period: &Period) -> Judgement {
    if period.locks.is_empty() {
        return Judgement::NotJudged {
            reason: "locks were counted, but the counts are missing".to_owned(),
            next: NEXT.to_owned(),
        };
    }
    let Some(length) = contention::counting_duration(period) else {
        return Judgement::NotJudged {
            reason: "the length of lock counting is unknown".to_owned(),
            next: format!("{NEXT}; or also import the output of lcnt:information()"),
        };
    };
    let contenders = contention::lock_classes(period);
    let things = contention::contended_locks(period, &contenders);
    let schedulers = Schedulers::of(period);
    let mut drafts: Vec<Draft> = things
        .iter()
        .zip(contention::remaining_waits(period, &things, MAX_NAMED))
        .filter_map(|(thing, rest)| {
            let share = thing.share?;
            let severity = schedulers.severity_of(thing)?;
            let contender = contenders.iter().find(|contender| contender.class == thing.class)?;
            // A thread that waits for one second per second has lost one core.
            let draft =
                Draft::new(severity, format!("Waits for lock {}: {} cores", thing.name, text::cores(share)))
                    .detail(format!(
                        "{:.2} s waited in {:.2} s, all threads together",
                        seconds(thing.waited),
                        seconds(length)
                    ))
                    .costs(Cost::CpuCores(share))
                    .part(CpuUse::Locks)
                    .evidence(waited(thing.waited, length, share));
            let draft = schedulers.told(draft, share).but_if(
                schedulers.severity(share).is_none(),
                "a small share of the schedulers' time: it limits the node only if more schedulers use this lock",
            );
            Some(counted(draft, period, thing, contender, &rest))
        })
        .collect();
    // Many small waits may add up.
    if !things.iter().any(|thing| thing.share.is_some_and(|share| schedulers.severity(share).is_some())) {
        drafts.extend(spread(period, &contenders, &things, schedulers));
    }
    let categories = period.lock_session.as_ref().map_or(&[][..], |session| session.categories.as_slice());
    let lacks_processes = !categories.is_empty() && !categories.iter().any(|category| category == "process");
    let drafts = drafts.into_iter().map(|draft| {
        draft.but_if(length < MIN_LENGTH_NS, format!("locks were counted for only {:.1} s", seconds(length))).but_if(
            lacks_processes,
            "locks of processes were not counted, and may be contended as well (beamtune locks --process)",
        )
    });
    let healthy = match things.first() {
        None => "no lock waits".to_owned(),
        Some(first) => format!(
            "most contended lock: {}, {:.2} % of the time",
            first.name,
            100.0 * first.share.unwrap_or(0.0)
        ),
    };
    Judgement::found_or_healthy(drafts.collect(), healthy)
}

fn waited(waited: Nanos, length: Nanos, share: f64) -> Evidence {
    Evidence::number("wait time, share of the duration", share, Unit::Ratio).with_text(format!(
        "{:.3} s in {:.3} s",
        seconds(waited),
        seconds(length)
    ))
}

/// Adds the counts of one lock, or of the locks of one table, process or allocator.
fn counted(
    draft: Draft,
    period: &Period,
    thing: &ContendedLocks,
    contender: &LockClassWaits,
    remains: &RemainingWaits,
) -> Draft {
    let entity = contender.owners.iter().find(|entity| Some(&entity.id) == thing.id.as_ref());
    let counts = entity.map_or_else(|| contender.rest(), |entity| entity.counts);
    let is_rest = entity.is_none() && contender.owners.iter().any(|entity| entity.kind.has_own_remedy());
    let known = entity.and_then(|entity| entity.details.as_deref());
    let collisions = counts.collision_share();
    let draft = draft
        .detail(
            collisions
                .map_or_else(String::new, |share| format!("{:.0} % of the tries collide", share * 100.0)),
        )
        .about(Subject::Lock { name: thing.name.clone() })
        .because_some(collisions.map(|share| {
            Evidence::number("collisions, share of tries", share, Unit::Ratio)
                .with_text(format!("{} of {}", counts.collisions, counts.tries))
        }))
        .because_some((counts.locks > 0).then(|| {
            let what = match entity.map(|entity| entity.kind) {
                Some(OwnerKind::Allocator) => "shared allocator instances, each a lock",
                _ => "locks",
            };
            Evidence::number(what, counts.locks as f64, Unit::Count)
        }))
        .because_some(known.map(|known| Evidence::text("options and owner", known)))
        .because_some(hot_key(entity))
        .because_some(numbered(contender, thing))
        .because_some(place(contender, entity, is_rest));
    // The remedy depends on the owner of the lock. The explanation of the class is for its most contended lock.
    let answer = match entity.is_some() || is_rest {
        true => contention::explain(period, &contender.class, entity),
        false => contender.explanation.clone(),
    };
    let next = match &remains.next {
        Some((next, waited)) => format!("then {next}, {:.3} s", seconds(*waited)),
        None => "threads wait for no other lock".to_owned(),
    };
    let left = Evidence::number(
        "remaining waits without this lock and those above",
        remains.share.unwrap_or(0.0),
        Unit::Ratio,
    );
    explained(draft, &answer)
        .fix_if(
            entity.is_some_and(|entity| matches!(entity.kind, OwnerKind::Table) && is_of_metrics(&entity.id)),
            || metrics_by_scheduler(period),
        )
        .evidence(left.with_text(next))
        .but_if(!contender.is_whole, "only single locks were recorded: the class may have more")
        .but_if(is_rest, "only the most contended locks are recorded one by one; others of the same owners may be among these")
        .counter_evidence("contention may move to the next lock, so the waits that remain are a lower bound")
}

/// Share of a table's most contended lock, if it has most of the table's wait time.
fn hot_key(entity: Option<&LockOwner>) -> Option<Evidence> {
    let hottest = entity.filter(|entity| entity.is_one_hot_lock())?.hottest?;
    let evidence = Evidence::number("share of its most contended lock", hottest, Unit::Ratio);
    Some(evidence.with_text("one hot key, or a few"))
}

/// Share of the most contended of several locks that share a load, if it has most of the wait time.
fn numbered(contender: &LockClassWaits, thing: &ContendedLocks) -> Option<Evidence> {
    let first = contender.owners.first().filter(|_| thing.id.is_none())?;
    let part = first.counts.waited as f64 / contender.counts.waited.max(1) as f64;
    let is_hot = !first.kind.has_own_remedy() && contender.counts.locks > 1 && part >= 0.5;
    is_hot.then(|| Evidence::number(format!("of those for {}", first.title), part, Unit::Ratio))
}

/// The place in the emulator's source: of the owner's locks if recorded, else of the whole class.
fn place(contender: &LockClassWaits, entity: Option<&LockOwner>, is_rest: bool) -> Option<Evidence> {
    let own = entity.and_then(|entity| entity.place.as_ref());
    let of = if own.is_some() || (entity.is_none() && !is_rest) { "those" } else { "the class" };
    let (file, line, share) = own.or(contender.place.as_ref())?;
    Some(Evidence::number(format!("of {of} at {file}:{line}"), *share, Unit::Ratio))
}

/// Drafts a finding about many locks with short waits each.
fn spread(
    period: &Period,
    contenders: &[LockClassWaits],
    things: &[ContendedLocks],
    schedulers: Schedulers,
) -> Option<Draft> {
    let share: f64 = things.iter().filter_map(|thing| thing.share).sum();
    let severity = schedulers.severity(share)?;
    let first = contenders.first()?;
    let title =
        format!("Waits for {} locks: {} cores, most for {}", things.len(), text::cores(share), first.class);
    let draft =
        schedulers
            .told(
                Draft::new(severity, title)
                    .detail("short waits for each of them")
                    .about(Subject::Lock { name: "many locks".to_owned() })
                    .costs(Cost::CpuCores(share))
                    .part(CpuUse::Locks),
                share,
            )
            .because_some(first.share.map(|share| {
                Evidence::number(format!("waits for class {}", first.class), share, Unit::Ratio)
            }));
    let draft = things.iter().take(MAX_NAMED).fold(draft, |draft, thing| {
        let share = thing.share.unwrap_or(0.0);
        draft.evidence(Evidence::number(format!("waits for {}", thing.name), share, Unit::Ratio))
    });
    Some(explained(draft, &contention::explain(period, &first.class, None)))
}

/// Adds what is known about the class, and what helps.
fn explained(draft: Draft, answer: &Explanation) -> Draft {
    let advice = answer.advice.as_deref().unwrap_or("no known remedy");
    let draft = draft
        .because_some(answer.protects.as_deref().map(|text| Evidence::text("protects", text)))
        .because_some(answer.cause.as_deref().map(|text| Evidence::text("usually contended by", text)))
        .evidence(Evidence::text("usual remedy", advice));
    answer.remedies.iter().cloned().fold(draft, |draft, remedy| draft.remedy(Some(remedy)))
}

/// Sampled lock waits.
struct Waits {
    share: f64,
    /// What the share refers to.
    of: &'static str,
    severity: Option<f64>,
}

/// Drafts a finding from samples of waiting threads.
fn sampled(period: &Period) -> Judgement {
    let operations = contention::operations(period);
    let first = operations.first();
    let name = first.map_or(NO_NAME, Operation::title);
    let look = verdict::of_period(period);
    let is_cleared = look.as_ref().is_some_and(|look| look.verdict == blocked::Verdict::No);
    let schedulers = Schedulers::of(period);
    let waits = match look.as_ref().and_then(|ContentionVerdict { sampled: seen, .. }| *seen) {
        Some(seen) => {
            Waits { share: seen.share, of: "busy time", severity: WAITED.of(period).severity(seen.share) }
        }
        // Without the threads' times, the share of busy time is unknown.
        None => {
            let share = operations.iter().filter_map(|operation| operation.share).sum();
            Waits { share, of: "sampled time", severity: schedulers.severity(share) }
        }
    };
    let waited = format!("{:.0} % of {}, most in {name}", 100.0 * waits.share, waits.of);
    let Some(severity) = waits.severity.filter(|_| !is_cleared) else {
        return Judgement::Healthy(format!("lock waits: {waited}"));
    };
    let stack = first.map_or_else(String::new, |first| first.stack.join(" ← "));
    let mut draft = Draft::new(severity, format!("Lock waits take {waited}"))
        .detail(stack.as_str())
        .about(Subject::Lock { name: name.to_owned() })
        .evidence(
            Evidence::number(format!("lock waits, share of {}", waits.of), waits.share, Unit::Ratio)
                .against_scale(WAITED.of(period)),
        );
    for operation in operations.iter().take(MAX_NAMED) {
        let of = operation.class.map_or_else(String::new, |class| format!(", for locks such as {class}"));
        let waited = Evidence::number(
            format!("waits in {}", operation.title()),
            operation.share.unwrap_or(0.0),
            Unit::Ratio,
        );
        draft = draft.evidence(waited.with_text(format!("sampled {} times{of}", operation.samples)));
    }
    if let Some(first) = first {
        draft = operation(draft, period, first, stack);
    }
    Judgement::found(draft.counter_evidence("without lock counting, the lock itself is unknown").remedy(remedy::of(
        period,
        "build.lock_counting",
        "run the same load on an emulator that counts locks (beamtune emulator run), then beamtune locks TARGET",
        "it names the lock, the table, and the place in the source",
        "the lock with the longest wait time is the one to remove",
    )))
}

/// Adds what is known about an operation.
fn operation(mut draft: Draft, period: &Period, first: &Operation, stack: String) -> Draft {
    if !stack.is_empty() {
        draft = draft.evidence(Evidence::text("call stack", stack));
    }
    let Some(class) = first.class else { return draft };
    if class.starts_with("db_") {
        let how = "of the tables that several processes write, those most used with this operation";
        draft = draft
            .evidence(Evidence::text("candidate tables", how))
            .because_some(candidates(period))
            .because_some(metrics(period))
            .remedy(metrics_candidates(period));
    }
    explained(draft, &contention::explain(period, class, None))
}
