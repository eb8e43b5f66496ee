//! Tables of the reference: all pages, and the hits of a search.

use beamtune_flags::{Kind, allocators, entries, lock_classes, microstates, thread_types};

use super::{Hit, first_sentence, kind_name};
use crate::Style;
use crate::table::{Align::Left, Table};
use crate::text::wrap;

/// The kinds of settings, in the order in which they are listed.
const KINDS: [Kind; 11] = [
    Kind::EmulatorFlag,
    Kind::InitFlag,
    Kind::Environment,
    Kind::KernelParameter,
    Kind::RuntimeSetting,
    Kind::ProcessOption,
    Kind::EtsOption,
    Kind::SocketOption,
    Kind::HostSetting,
    Kind::Build,
    Kind::CodeChange,
];

/// Lists all pages by kind. With a release, lists only settings that exist in it, with their defaults in it.
pub fn everything(otp: Option<u32>, style: Style) -> String {
    let mut out = String::new();
    for kind in KINDS {
        let mut table = Table::new(&[("name", Left), ("default", Left), ("description", Left)]);
        for entry in entries().iter().filter(|entry| entry.kind == kind) {
            if otp.is_some_and(|otp| !entry.exists_in(otp)) {
                continue;
            }
            let default = match otp {
                Some(otp) => entry.default_in(otp).unwrap_or_default(),
                None => entry.default.last().map(|step| step.text()).unwrap_or_default(),
            };
            let (name, default) = (entry.id.clone(), short(default, 24));
            table.row([name, default, first_sentence(&entry.description).to_owned()]);
        }
        if !table.is_empty() {
            out.push_str(&format!("{}\n{}\n", style.bold(&plural(kind_name(kind))), rows(&table, style)));
        }
    }
    let names = |title: &str, names: Vec<&str>| {
        format!(
            "{}\n  {}\n\n",
            style.bold(title),
            wrap(&names.join(" "), style.width.saturating_sub(2), "  ")
        )
    };
    out.push_str(&names("msacc states", microstates().iter().map(|state| state.name.as_str()).collect()));
    out.push_str(&names("msacc threads", thread_types().iter().map(|thread| thread.name.as_str()).collect()));
    out.push_str(&names(
        "allocators",
        allocators().iter().map(|allocator| allocator.name.as_str()).collect(),
    ));
    out.push_str(&names("locks", lock_classes().iter().map(|class| class.name.as_str()).collect()));
    out.push_str("beamtune flags NAME shows one in detail.\n");
    out
}

/// Lists the hits of a search, at most `most` rows.
pub fn hits(hits: &[Hit], most: usize, style: Style) -> String {
    let mut table = Table::new(&[("name", Left), ("kind", Left), ("description", Left)]);
    for hit in hits.iter().take(most) {
        let topic = &hit.topic;
        table.row([
            topic.name().to_owned(),
            topic.kind().to_owned(),
            first_sentence(topic.about()).to_owned(),
        ]);
    }
    let mut out = rows(&table, style);
    if hits.len() > most {
        out.push_str(&format!("and {} more: add a word to narrow the search\n", hits.len() - most));
    }
    out
}

/// Renders the table with its lines cut to the terminal width, since pages show the text of the last column in full.
fn rows(table: &Table, style: Style) -> String {
    // Rendered without colours and without a limit, since wrapped or coloured text cannot be cut.
    let text = table.render(Style { colour: false, width: usize::MAX });
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = short(line, style.width);
        out.push_str(&if index == 0 { style.dim(&line) } else { line });
        out.push('\n');
    }
    out
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

fn plural(kind: &str) -> String {
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::search;

    #[test]
    fn everything_is_listed_once() {
        let text = everything(None, Style::PLAIN);
        for entry in entries() {
            let lines = text.lines().filter(|line| {
                line.split(' ').next() == Some(entry.id.split(' ').next().unwrap_or_default())
            });
            assert!(lines.count() >= 1, "{} is not listed", entry.id);
        }
        assert!(text.lines().all(|line| line.chars().count() <= Style::PLAIN.width), "{text}");
        assert!(text.contains("db_tab") && text.contains("binary_alloc") && text.contains("check_io"));
    }

    #[test]
    fn list_of_a_release_has_only_settings_of_this_release() {
        let (old, new) = (everything(Some(23), Style::PLAIN), everything(Some(27), Style::PLAIN));
        let has = |text: &str, name: &str| text.lines().any(|line| line.split(' ').next() == Some(name));
        assert!(has(&old, "+Mit") && !has(&new, "+Mit"));
        assert!(!has(&old, "+hmaxib") && has(&new, "+hmaxib"));
    }

    #[test]
    fn number_of_hits_is_limited() {
        let found = search("scheduler");
        let text = hits(&found, 3, Style::PLAIN);
        assert_eq!(text.lines().count(), 1 + 3 + 1, "{text}");
        assert!(text.contains(&format!("and {} more", found.len() - 3)), "{text}");
        assert_eq!(hits(&[], 3, Style::PLAIN), "");
    }
}
