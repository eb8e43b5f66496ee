//! Changes of flags and settings by an OTP upgrade, the most important ones first.

use beamtune_flags::{Change, ChangeKind, OtpVersion, changes, entry};
use serde_json::{Value, json};

use super::{first_sentence, kind_name};
use crate::Style;
use crate::json::pretty;
use crate::text::wrap;

/// A group of changes.
struct Group {
    name: &'static str,
    /// What these changes mean for an upgrade.
    title: &'static str,
    holds: fn(&ChangeKind) -> bool,
}

/// The groups in order: first changes that stop a VM from starting, then changes of its behaviour, then information.
const GROUPS: [Group; 7] = [
    Group {
        name: "removed",
        title: "Removed: a VM with one of these flags does not start",
        holds: |what| matches!(what, ChangeKind::Removed),
    },
    Group {
        name: "default",
        title: "New default: affects nodes that do not set it",
        holds: |what| matches!(what, ChangeKind::Default { .. }),
    },
    Group {
        name: "takes",
        title: "Accepted values changed",
        holds: |what| matches!(what, ChangeKind::AcceptedValues { .. }),
    },
    Group {
        name: "without_effect",
        title: "No longer has an effect",
        holds: |what| matches!(what, ChangeKind::WithoutEffect),
    },
    Group {
        name: "effect",
        title: "Changed effect",
        holds: |what| matches!(what, ChangeKind::Effect { .. }),
    },
    Group {
        name: "spelling",
        title: "Changed spelling",
        holds: |what| matches!(what, ChangeKind::Spelling { .. }),
    },
    Group { name: "new", title: "New", holds: |what| matches!(what, ChangeKind::New) },
];

/// Renders the changes from one version to a later one as text.
pub fn changed(from: &OtpVersion, to: &OtpVersion, style: Style) -> String {
    let all = changes(from.clone(), to.clone());
    if all.is_empty() {
        return format!("No known changes from OTP {from} to {to}.\n");
    }
    let mut out = format!("{}\n", style.bold(&format!("From OTP {from} to {to}")));
    for group in &GROUPS {
        let of_group: Vec<&Change> = all.iter().filter(|change| (group.holds)(&change.kind)).collect();
        if of_group.is_empty() {
            continue;
        }
        out.push_str(&format!("\n{}\n", style.bold(group.title)));
        let width = of_group.iter().map(|change| change.id.chars().count()).max().unwrap_or(0);
        for change in of_group {
            let indent = " ".repeat(width + 4);
            let text = wrap(&says(change), style.width.saturating_sub(indent.len()), &indent);
            out.push_str(&format!("  {:<width$}  {text}\n", change.id));
        }
    }
    out
}

fn says(change: &Change) -> String {
    let does = entry(change.id).map(|entry| first_sentence(&entry.description)).unwrap_or_default();
    match &change.kind {
        ChangeKind::New | ChangeKind::Removed | ChangeKind::WithoutEffect => does.to_owned(),
        ChangeKind::Default { from, to } => format!("{from} → {to}"),
        ChangeKind::AcceptedValues { from, to } => format!("{from} → {to}"),
        ChangeKind::Spelling { from, to } => format!("{from} → {to}"),
        ChangeKind::Effect { at, text: says } => format!("{says} ({at})"),
    }
}

/// Renders the changes as JSON: a list in the same order.
pub fn changed_json(from: &OtpVersion, to: &OtpVersion) -> String {
    let all = changes(from.clone(), to.clone());
    let mut list = Vec::new();
    for group in &GROUPS {
        list.extend(
            all.iter()
                .filter(|change| (group.holds)(&change.kind))
                .map(|change| document(group.name, change)),
        );
    }
    pretty(&json!({ "from": from.to_string(), "to": to.to_string(), "changes": list }))
}

fn document(group: &str, change: &Change) -> Value {
    let (from, to, says) = match &change.kind {
        ChangeKind::New | ChangeKind::Removed | ChangeKind::WithoutEffect => (None, None, None),
        ChangeKind::Default { from, to } | ChangeKind::Spelling { from, to } => {
            (Some(*from), Some(*to), None)
        }
        ChangeKind::AcceptedValues { from, to } => (Some(from.as_str()), Some(to.as_str()), None),
        ChangeKind::Effect { text: says, .. } => (None, None, Some(*says)),
    };
    json!({
        "id": change.id,
        "kind": entry(change.id).map(|entry| kind_name(entry.kind)),
        "what": group,
        "from": from,
        "to": to,
        "says": says,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> OtpVersion {
        OtpVersion::parse(text).expect(text)
    }

    #[test]
    fn changes_that_stop_a_vm_come_first_and_new_flags_last() {
        let text = changed(&version("23"), &version("27"), Style::PLAIN);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in\n{text}"));
        assert!(at("Removed") < at("New default") && at("New default") < at("\nNew\n"));
        assert!(text.contains("262144 → 1048576"), "{text}");
        assert!(at("+Mit") < at("New default"));
    }

    #[test]
    fn every_change_is_in_a_group() {
        for (from, to) in [("21", "29"), ("25", "26"), ("26", "27")] {
            let all = changes(version(from), version(to));
            let grouped: usize = GROUPS
                .iter()
                .map(|group| all.iter().filter(|change| (group.holds)(&change.kind)).count())
                .sum();
            assert_eq!(grouped, all.len(), "{from} {to}");
            let json: Value =
                serde_json::from_str(&changed_json(&version(from), &version(to))).expect("JSON");
            assert_eq!(json["changes"].as_array().map(Vec::len), Some(all.len()));
        }
    }

    #[test]
    fn upgrade_without_changes_is_reported() {
        assert!(changed(&version("27"), &version("27"), Style::PLAIN).starts_with("No known changes"));
    }
}
