//! Pages and lists as JSON. Fields may be added, but are never changed or removed.

use beamtune_flags::{
    AbsentBehavior, AcceptedValues, Allocator, Entry, Evidence, LockClass, LockKind, Microstate, OtpVersion,
    ThreadType, entries,
};
use serde_json::{Value, json};

use super::{Hit, Topic, kind_name};
use crate::json::pretty;

/// Renders a list of pages; with a release, each page also has the values of this release.
pub fn pages_json(topics: &[Topic], otp: Option<u32>) -> String {
    let pages: Vec<Value> = topics.iter().map(|topic| page(topic, otp)).collect();
    pretty(&pages)
}

/// Lists the hits of a search (`Some`) or all settings (`None`): name, kind and description of each.
pub fn list_json(hits: Option<&[Hit]>, otp: Option<u32>) -> String {
    let line = |topic: &Topic| json!({ "name": topic.name(), "kind": topic.kind(), "does": topic.about() });
    let list: Vec<Value> = match hits {
        Some(hits) => hits.iter().map(|hit| line(&hit.topic)).collect(),
        None => entries()
            .iter()
            .filter(|entry| otp.is_none_or(|otp| entry.exists_in(otp)))
            .map(|entry| line(&Topic::Setting { entry, flag: None }))
            .collect(),
    };
    pretty(&list)
}

fn page(topic: &Topic, otp: Option<u32>) -> Value {
    let mut page = match topic {
        Topic::Setting { entry, flag } => setting(entry, flag.as_deref(), otp),
        Topic::Lock(class) => lock(class, otp),
        Topic::State(state) => microstate(state),
        Topic::Thread(thread) => thread_type(thread),
        Topic::Allocator(known) => allocator(known, otp),
    };
    page["name"] = json!(topic.name());
    page["kind"] = json!(topic.kind());
    page
}

fn text(version: Option<&OtpVersion>) -> Option<String> {
    version.map(ToString::to_string)
}

fn setting(entry: &Entry, flag: Option<&str>, otp: Option<u32>) -> Value {
    let letter = flag.and_then(|flag| entry.allocator_in(flag));
    let since: Vec<String> = entry.since.iter().map(ToString::to_string).collect();
    let default: Vec<Value> = entry
        .default
        .iter()
        .map(|step| json!({ "from": text(step.from.as_ref()), "value": step.value, "rule": step.rule }))
        .collect();
    let takes: Vec<Value> = entry.accepts.iter().map(takes).collect();
    let fatal: Vec<Value> = entry
        .fatal
        .iter()
        .map(|fatal| {
            json!({
                "from": text(fatal.from.as_ref()),
                "until": text(fatal.until.as_ref()),
                "words": fatal.words,
                "min": fatal.integer.and_then(|range| range.min),
                "max": fatal.integer.and_then(|range| range.max),
                "why": fatal.why,
            })
        })
        .collect();
    let formerly: Vec<Value> = entry
        .former_spellings
        .iter()
        .map(|old| json!({ "until": old.until.to_string(), "is": old.is }))
        .collect();
    let news: Vec<Value> = entry
        .effect_changes
        .iter()
        .map(|news| json!({ "at": news.at.to_string(), "says": news.text }))
        .collect();
    let evidence: Vec<&str> = entry
        .evidence
        .iter()
        .map(|evidence| match evidence {
            Evidence::Run => "run",
            Evidence::Source => "source",
            Evidence::Manual => "manual",
        })
        .collect();
    let where_absent = match &entry.absent_behavior {
        AbsentBehavior::Refused => json!("refused"),
        AbsentBehavior::Ignored => json!("ignored"),
        AbsentBehavior::ReadAs { flag, value } => json!({ "read_as": { "flag": flag, "value": value } }),
    };
    let in_release = otp.map(|otp| {
        json!({
            "otp": otp,
            "exists": entry.exists_in(otp),
            "works": entry.works_in(otp),
            "default": entry.default_in(otp),
            "takes": entry
                .accepted_for(letter, &OtpVersion::from(otp))
                .filter(|_| entry.exists_in(otp))
                .map(AcceptedValues::describe),
        })
    });
    json!({
        "id": entry.id,
        "spelling": entry.spelling(),
        "aliases": entry.aliases,
        "setting_kind": kind_name(entry.kind),
        "does": entry.description,
        "values": entry.values,
        "takes": takes,
        "default": default,
        "example": entry.example,
        "fatal": fatal,
        "since": since,
        "ignored_since": text(entry.ignored_since.as_ref()),
        "removed_in": text(entry.removed_in.as_ref()),
        "where_absent": where_absent,
        "formerly": formerly,
        "news": news,
        "fallback": entry.fallback,
        "read": entry.read,
        "effective": entry.effective,
        "run_time_change": entry.run_time_change,
        "at_run_time": entry.at_run_time(),
        "risk": entry.risk,
        "evidence": evidence,
        "rules": entry.rules,
        "in_release": in_release,
    })
}

fn takes(step: &AcceptedValues) -> Value {
    json!({
        "from": text(step.from.as_ref()),
        "letters": step.letters,
        "describe": step.describe(),
        "words": step.words,
        "min": step.integer.and_then(|range| range.min),
        "max": step.integer.and_then(|range| range.max),
        "unit": step.unit,
        "refuses": step.refuses,
    })
}

fn lock(class: &LockClass, otp: Option<u32>) -> Value {
    let name = |kind: LockKind| match kind {
        LockKind::Mutex => "mutex",
        LockKind::RwMutex => "rw_mutex",
        LockKind::Spinlock => "spinlock",
        LockKind::ProcessLock => "process_lock",
    };
    let kinds: Vec<Value> =
        class.kind.iter().map(|step| json!({ "from": step.from, "is": name(step.is) })).collect();
    json!({
        "protects": class.protects,
        "lock_kind": kinds,
        "category": class.category,
        "instances": class.instances,
        "only_in": class.only_in,
        "contended_by": class.contended_by,
        "remedy": class.remedy_text(),
        "settings": class.settings,
        "seen_in": class.seen_in,
        "source": class.source,
        "exists": otp.and_then(|otp| class.exists_in(otp)),
    })
}

fn microstate(state: &Microstate) -> Value {
    json!({
        "is": state.is,
        "extra": state.extra,
        "otherwise_in": state.otherwise_in,
        "high": state.high,
        "next": state.next,
        "settings": state.settings,
    })
}

fn thread_type(thread: &ThreadType) -> Value {
    json!({
        "is": thread.is,
        "since": text(thread.since.as_ref()),
        "high": thread.high,
        "next": thread.next,
        "settings": thread.settings,
    })
}

fn allocator(known: &Allocator, otp: Option<u32>) -> Value {
    json!({
        "holds": known.holds,
        "letter": known.letter,
        "carriers": known.carriers,
        "pooled": known.pooled,
        "per_scheduler": known.per_scheduler,
        "counted_in": known.counted_in,
        "removed_in": text(known.removed_in.as_ref()),
        "default_options": otp.map(|otp| known.default_options(otp, 1)),
    })
}
