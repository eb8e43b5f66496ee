//! The built-in reference of the VM: pages of flags, locks, microstates and allocators; a search; and changes by an OTP upgrade.

mod changed;
mod find;
mod json;
mod list;
mod page;

pub use changed::{changed, changed_json};
pub use find::{Hit, Topic, named, nearest, search};
pub use json::{list_json, pages_json};
pub use list::{everything, hits};
pub use page::page;

use beamtune_flags::{Kind, OtpVersion};

/// The releases that the reference covers.
pub const RELEASES: std::ops::RangeInclusive<u32> = 21..=29;

/// Returns the name of a kind of setting.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::EmulatorFlag => "emulator flag",
        Kind::InitFlag => "init flag",
        Kind::Environment => "environment variable",
        Kind::RuntimeSetting => "run-time setting",
        Kind::KernelParameter => "kernel parameter",
        Kind::EtsOption => "ETS table option",
        Kind::ProcessOption => "process option",
        Kind::SocketOption => "socket option",
        Kind::HostSetting => "host setting",
        Kind::Build => "build property",
        Kind::CodeChange => "code change",
    }
}

/// Returns the first sentence of a text.
pub fn first_sentence(text: &str) -> &str {
    let end = text.match_indices(". ").map(|(at, _)| at + 1).find(|end| {
        // A full stop as in "e.g. x" or "1. x" does not end a sentence.
        text.get(end + 1..).is_some_and(|rest| rest.starts_with(|c: char| c.is_uppercase() || c == '+'))
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

/// Formats the first version for which something is true: `from 26.0`, or `always` if it is true for all versions.
fn from_version(from: Option<&OtpVersion>) -> String {
    from.map_or_else(|| "always".to_owned(), |from| format!("from {from}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_where_the_next_begins() {
        let check = |text: &str, expect: &str| assert_eq!(first_sentence(text), expect);
        check("One. Two.", "One.");
        check("One only.", "One only.");
        check("As R16B. 2 of them. Three", "As R16B. 2 of them.");
        check("", "");
        check("Of 0.5 s. é", "Of 0.5 s. é");
    }
}
