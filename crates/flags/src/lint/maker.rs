//! Tells which tool makes a release of an args file: its start script gives flags of its own, and fills in templates in its own way.

use crate::source::{Format, Fragment, Template};

/// The tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// `mix release`: `bin/NAME` gives the name and the cookie, and nothing but EEx is filled in.
    Mix,
    /// Nerves: the release is one of `mix release`, but is started by erlinit, without `bin/NAME`.
    Nerves,
    /// Distillery, which fills in shell variables at start.
    Distillery,
    /// Another one, or none.
    Unknown,
}

/// Which tool a file is for, by its format and its text.
pub(super) fn maker(fragment: &Fragment) -> Maker {
    let text = fragment.file_text();
    if fragment.format() != Format::VmArgsTemplate(Template::Eex) {
        Maker::Unknown
    } else if is_distillery(text) {
        Maker::Distillery
    } else if is_nerves(fragment, text) {
        Maker::Nerves
    } else {
        Maker::Mix
    }
}

/// Distillery gives `release_name` and `release.profile`, mix release gives `@release`.
fn is_distillery(text: &str) -> bool {
    text.split("<%=").skip(1).any(|tag| tag.trim_start().starts_with("release"))
}

/// The files that nerves_bootstrap makes say what they are for, or start the shell, which `bin/NAME` does elsewhere; and only Nerves
/// has targets.
fn is_nerves(fragment: &Fragment, text: &str) -> bool {
    text.to_ascii_lowercase().contains("nerves")
        || text.contains("for read only filesystem")
        || text.contains("Mix.target")
        || fragment.words.iter().any(|word| word.text == "-user")
}
