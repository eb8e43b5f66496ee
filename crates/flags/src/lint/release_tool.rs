//! Detects which tool builds a release from an args file. Its start script adds flags, and each tool expands templates differently.

use crate::source::{Format, Fragment, Template};

/// A release tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReleaseTool {
    /// `mix release`: `bin/NAME` sets the name and the cookie; only EEx is expanded.
    Mix,
    /// Nerves: the release is made by `mix release` but started by erlinit, without `bin/NAME`.
    Nerves,
    /// Distillery, which expands shell variables at start.
    Distillery,
    /// Another tool, or none.
    Unknown,
}

/// The tool of a file, by its format and its text.
pub(super) fn release_tool(fragment: &Fragment) -> ReleaseTool {
    let text = fragment.file_text();
    if fragment.format() != Format::VmArgsTemplate(Template::Eex) {
        ReleaseTool::Unknown
    } else if is_distillery(text) {
        ReleaseTool::Distillery
    } else if is_nerves(fragment, text) {
        ReleaseTool::Nerves
    } else {
        ReleaseTool::Mix
    }
}

/// Distillery has `release_name` and `release.profile` where `mix release` has `@release`.
fn is_distillery(text: &str) -> bool {
    text.split("<%=").skip(1).any(|tag| tag.trim_start().starts_with("release"))
}

/// The files of nerves_bootstrap mention Nerves, or start the shell, which `bin/NAME` does elsewhere. Only Nerves has targets.
fn is_nerves(fragment: &Fragment, text: &str) -> bool {
    text.to_ascii_lowercase().contains("nerves")
        || text.contains("for read only filesystem")
        || text.contains("Mix.target")
        || fragment.words.iter().any(|word| word.text == "-user")
}
