//! The catalogue of all entries: parses the embedded data once, and finds entries by id or by a word of a command line.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::entry::{Entry, Kind};

const FILES: &[(&str, &str)] = &[
    ("scheduler", include_str!("../data/scheduler.toml")),
    ("io", include_str!("../data/io.toml")),
    ("limits", include_str!("../data/limits.toml")),
    ("heap", include_str!("../data/heap.toml")),
    ("ets", include_str!("../data/ets.toml")),
    ("distribution", include_str!("../data/distribution.toml")),
    ("emulator", include_str!("../data/emulator.toml")),
    ("allocator", include_str!("../data/allocator.toml")),
    ("host", include_str!("../data/host.toml")),
    ("build", include_str!("../data/build.toml")),
    ("code", include_str!("../data/code.toml")),
    ("socket", include_str!("../data/socket.toml")),
    ("logger", include_str!("../data/logger.toml")),
];

/// Letters of the allocators in flags `+M<S>…`; `u` means all allocators. Source: erts_alloc(3).
const ALLOCATORS: &[char] = &['B', 'D', 'E', 'F', 'H', 'I', 'L', 'R', 'S', 'T', 'u'];

/// Returns all entries, in the order of the data files.
pub fn entries() -> &'static [Entry] {
    &catalog().entries
}

/// Finds an entry by its id.
pub fn entry(id: &str) -> Option<&'static Entry> {
    let catalog = catalog();
    catalog.by_id.get(id).and_then(|&index| catalog.entries.get(index))
}

/// A word of a command line that starts with a known flag.
pub(crate) struct Recognised<'w> {
    pub(crate) entry: &'static Entry,
    /// The flag in the spelling of the entry: `+MBas` for `+M<S>as`, `+hms` for `+h`.
    pub(crate) flag: String,
    /// The rest of the word after the flag, which is the value; empty if the word is only the flag.
    pub(crate) glued: &'w str,
}

/// Finds the flag at the start of a word such as `+sbwt`, `+S4` or `+MBasaobf`. As in the emulator, the longest match
/// wins.
pub(crate) fn recognise(word: &str) -> Option<Recognised<'_>> {
    let catalog = catalog();
    let (prefix, found) = longest_prefix(&catalog.flags, word)?;
    let entry = catalog.entries.get(found.entry)?;
    Some(match found.spelling {
        Spelling::Complete => Recognised {
            entry,
            flag: found.flag.clone(),
            glued: word.get(prefix.len()..).unwrap_or_default(),
        },
        Spelling::Prefix => Recognised { entry, flag: word.to_owned(), glued: "" },
    })
}

/// Finds the longest key that is a prefix of the word.
fn longest_prefix<'m, V>(map: &'m BTreeMap<String, V>, word: &str) -> Option<(&'m str, &'m V)> {
    let mut rest = word;
    loop {
        let (key, value) = map.range::<str, _>((Bound::Unbounded, Bound::Included(rest))).next_back()?;
        if rest.starts_with(key.as_str()) {
            return Some((key, value));
        }
        // Every prefix of the word is also a prefix of this key, because both sort after it.
        let common = key.bytes().zip(rest.bytes()).take_while(|(one, other)| one == other).count();
        rest = rest.get(..common)?;
    }
}

struct Catalog {
    entries: Vec<Entry>,
    by_id: BTreeMap<String, usize>,
    flags: BTreeMap<String, Flag>,
}

/// The flag to which a spelling refers.
struct Flag {
    entry: usize,
    flag: String,
    spelling: Spelling,
}

/// Whether a spelling is a complete flag, which a value may follow, or only the prefix of a flag (`+MX<P>`).
#[derive(Clone, Copy)]
enum Spelling {
    Complete,
    Prefix,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    entry: Vec<Entry>,
}

fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| {
        let mut entries = Vec::new();
        for (name, text) in FILES {
            let file = read(text).unwrap_or_else(|error| broken(name, &error));
            entries.extend(file.entry);
        }
        Catalog::new(entries)
    })
}

fn read(text: &str) -> Result<File, toml::de::Error> {
    toml::from_str(text)
}

#[expect(clippy::panic, reason = "the data is embedded, and a test parses all of it")]
pub(crate) fn broken(name: &str, error: &toml::de::Error) -> ! {
    panic!("data/{name}.toml: {error}")
}

impl Catalog {
    fn new(entries: Vec<Entry>) -> Catalog {
        let by_id = entries.iter().enumerate().map(|(index, entry)| (entry.id.clone(), index)).collect();
        let mut flags = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::EmulatorFlag)
        {
            for spelling in entry.spellings() {
                for (prefix, flag, kind) in prefixes(entry, spelling) {
                    flags.insert(prefix, Flag { entry: index, flag, spelling: kind });
                }
            }
        }
        Catalog { entries, by_id, flags }
    }
}

/// Returns the prefixes by which words with this flag are recognised, each with the full name of the flag.
fn prefixes(entry: &Entry, spelling: &str) -> Vec<(String, String, Spelling)> {
    if let Some(beginning) = spelling.strip_suffix("<P>") {
        return vec![(beginning.to_owned(), spelling.to_owned(), Spelling::Prefix)];
    }
    match spelling.split_once("<S>") {
        Some((before, after)) => ALLOCATORS
            .iter()
            .map(|letter| format!("{before}{letter}{after}"))
            .map(|flag| (flag.clone(), flag, Spelling::Complete))
            .collect(),
        None => vec![(spelling.to_owned(), entry.spelling().to_owned(), Spelling::Complete)],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::OtpVersion;
    use crate::entry::Argument;

    #[test]
    fn every_file_parses_and_has_entries() {
        for (name, text) in FILES {
            let file = read(text).unwrap_or_else(|error| panic!("data/{name}.toml: {error}"));
            assert!(!file.entry.is_empty(), "data/{name}.toml");
        }
    }

    #[test]
    fn ids_and_spellings_are_unique() {
        let mut seen = BTreeSet::new();
        for entry in entries() {
            assert!(seen.insert(entry.id.clone()), "duplicate id {}", entry.id);
        }
        let mut seen = BTreeSet::new();
        for entry in entries() {
            for spelling in entry.spellings() {
                for (prefix, _, _) in prefixes(entry, spelling) {
                    assert!(seen.insert(prefix.clone()), "duplicate spelling {prefix}");
                }
            }
        }
    }

    #[test]
    fn entries_have_the_fields_of_their_kind() {
        for entry in entries() {
            let id = &entry.id;
            let is_sentence = |text: &str| text.ends_with('.') && text.trim() == text;
            assert!(is_sentence(&entry.description), "{id}: what it does");
            // The linter appends it to a subject.
            let verb = entry.description.split(' ').next().unwrap_or_default();
            let is_verb = verb.ends_with('s') && verb.starts_with(|c: char| c.is_uppercase());
            assert!(is_verb, "{id}: what it does must start with a verb, not with {verb}");
            assert!(is_sentence(&entry.risk), "{id}: its risk");
            assert!(!entry.evidence.is_empty(), "{id}: evidence");
            assert_eq!(entry.argument.is_some(), entry.kind == Kind::EmulatorFlag, "{id}: argument");
            let bound_to_releases = !matches!(entry.kind, Kind::HostSetting | Kind::Build | Kind::CodeChange);
            assert_eq!(!entry.since.is_empty(), bound_to_releases, "{id}: since");
            if bound_to_releases {
                assert!(!entry.accepts.is_empty() && !entry.default.is_empty(), "{id}: values and default");
            }
            // No Erlang function returns the setting of the test allocator, or a setting that every release rejects.
            let nothing_to_read =
                entry.kind == Kind::CodeChange || entry.removed_in.is_some() || id == "+MZ<P>";
            assert_eq!(entry.read.is_none(), nothing_to_read, "{id}: read");
        }
    }

    #[test]
    fn defaults_ascend_by_release_and_backports_are_older_than_the_first_version() {
        for entry in entries() {
            let from: Vec<_> = entry.default.iter().map(|step| step.from.clone()).collect();
            assert!(
                from.first().is_none_or(Option::is_none),
                "{}: the first default must not have `from`",
                entry.id
            );
            assert!(from.windows(2).all(|pair| pair[0] < pair[1]), "{}: defaults out of order", entry.id);
            if let Some((first, backports)) = entry.since.split_first() {
                assert!(backports.iter().all(|patch| patch < first), "{}: backports", entry.id);
            }
            for gone in [&entry.removed_in, &entry.ignored_since].into_iter().flatten() {
                assert!(
                    entry.since.first().is_none_or(|first| first < gone),
                    "{}: removed before it was added",
                    entry.id
                );
            }
        }
    }

    #[test]
    fn every_flag_has_a_default_in_every_release_that_has_it() {
        for release in 21..=29 {
            for entry in
                entries().iter().filter(|entry| entry.kind == Kind::EmulatorFlag && entry.exists_in(release))
            {
                assert!(entry.default_in(release).is_some(), "{} in OTP {release}", entry.id);
            }
        }
    }

    #[test]
    fn fallbacks_are_environment_variables_with_an_entry() {
        let fallbacks: Vec<_> = entries().iter().filter_map(|entry| entry.fallback.as_deref()).collect();
        assert!(fallbacks.contains(&"ERL_MAX_PORTS"));
        for name in fallbacks {
            assert_eq!(entry(name).map(|entry| entry.kind), Some(Kind::Environment), "{name}");
        }
    }

    #[test]
    fn longest_prefix_is_found_among_keys_with_a_common_start() {
        let keys = ["+a", "+ab", "+abcd", "+abd", "+b", "-a"].map(|key| (key.to_owned(), ()));
        let map = BTreeMap::from(keys);
        let check = |word: &str, expect: Option<&str>| {
            assert_eq!(longest_prefix(&map, word).map(|(key, ())| key), expect, "{word}");
        };
        check("+abcz", Some("+ab"));
        check("+abcde", Some("+abcd"));
        check("+abé", Some("+ab"));
        check("+z", None);
        check("+aa", Some("+a"));
        check("+", None);
        check("", None);
        check("é", None);
        check("-ab", Some("-a"));
    }

    #[test]
    fn words_are_recognised_by_the_longest_flag() {
        let check = |word: &str, id: &str, flag: &str, glued: &str| {
            let found = recognise(word).unwrap_or_else(|| panic!("{word}"));
            assert_eq!(
                (found.entry.id.as_str(), found.flag.as_str(), found.glued),
                (id, flag, glued),
                "{word}"
            );
        };
        check("+sbwt", "+sbwt", "+sbwt", "");
        check("+sbwtdcpu", "+sbwtdcpu", "+sbwtdcpu", "");
        check("+sbwtvery_long", "+sbwt", "+sbwt", "very_long");
        check("+S4", "+S", "+S", "4");
        check("+SDcpu4:4", "+SDcpu", "+SDcpu", "4:4");
        check("+SDPcpu50:50", "+SDPcpu", "+SDPcpu", "50:50");
        check("+dcg8", "+dcg", "+dcg", "8");
        check("+d", "+d", "+d", "");
        check("+h", "+hms", "+hms", "");
        check("+hmaxk", "+hmaxk", "+hmaxk", "");
        check("+MBas", "+M<S>as", "+MBas", "");
        check("+MBasaobf", "+M<S>as", "+MBas", "aobf");
        check("+MHasbcst4048", "+M<S>asbcst", "+MHasbcst", "4048");
        check("+Muacul0", "+M<S>acul", "+Muacul", "0");
        check("+Muatags", "+M<S>atags", "+Muatags", "");
        check("+Mummc", "+Mummc", "+Mummc", "");
        check("+Mummbcs", "+M<S>mmbcs", "+Mummbcs", "");
        check("+MXe", "+MX<P>", "+MXe", "");
        check("+MMscs", "+MMscs", "+MMscs", "");
        check("+fnuw", "+fnu", "+fnu", "w");
        assert!(recognise("+xyz").is_none());
        assert!(recognise("-noshell").is_none());
    }

    #[test]
    fn flags_without_a_value_have_no_example() {
        for entry in entries() {
            if entry.argument == Some(Argument::None) {
                assert_eq!(entry.example, None, "{}", entry.id);
            }
        }
    }

    #[test]
    fn versions_before_17_sort_before_all_others() {
        assert!(entry("+S").expect("+S").since.iter().all(|since| *since < OtpVersion::from(17)));
    }
}
