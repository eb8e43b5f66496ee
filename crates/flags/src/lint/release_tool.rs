//! Detects which tool builds a release from an args file. Tools differ in the flags that the start script adds, and in how they expand
//! templates.

use crate::source::{Format, Fragment, Template};

/// A release tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReleaseTool {
    /// `mix release`: `bin/NAME` sets the node name and the cookie; only EEx is expanded.
    Mix,
    /// Nerves: `mix release` builds the release, but erlinit starts it, without `bin/NAME`.
    Nerves,
    /// Distillery, which expands shell variables at start.
    Distillery,
    /// Another tool, or none.
    Unknown,
}

/// Detects the tool from the format and the text of a file.
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

/// Whether a template is for Distillery, which has `release_name` and `release.profile` instead of `@release`.
fn is_distillery(text: &str) -> bool {
    text.split("<%=").skip(1).any(|tag| tag.trim_start().starts_with("release"))
}

/// Whether a template is for Nerves. The files of nerves_bootstrap mention Nerves, or start the shell, which `bin/NAME` does in other
/// releases. Only Nerves has targets (`Mix.target`).
fn is_nerves(fragment: &Fragment, text: &str) -> bool {
    text.to_ascii_lowercase().contains("nerves")
        || text.contains("for read only filesystem")
        || text.contains("Mix.target")
        || fragment.words.iter().any(|word| word.text == "-user")
}
