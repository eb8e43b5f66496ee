//! The allocators of the emulator: what each one allocates, and its default options.
//!
//! `erlang:system_info({allocator, A})` reports sizes and options of each instance of an allocator. Instance 0 serves
//! all threads other than normal schedulers; the defaults here are those of the schedulers' instances. The data is in
//! `data/allocators.toml`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::OtpVersion;
use crate::catalog::broken;

const DATA: &str = include_str!("../data/allocators.toml");

/// An allocator of the emulator.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocator {
    /// The name: `binary_alloc`.
    pub name: String,
    /// The letter in flags: `B` of `+MBas`.
    pub letter: char,
    /// The first version without this allocator.
    pub removed_in: Option<OtpVersion>,
    /// Whether the allocator manages blocks in carriers and has options, as the allocators that
    /// `erlang:system_info(alloc_util_allocators)` lists do.
    pub carriers: bool,
    /// Whether its carriers migrate between schedulers through a pool.
    #[serde(default)]
    pub pooled: bool,
    /// Whether each scheduler has its own instance.
    #[serde(default)]
    pub per_scheduler: bool,
    /// What the allocator is used for.
    pub holds: String,
    /// The keys of `erlang:memory/0` that include this memory.
    pub counted_in: String,
}

/// An option of the allocators with carriers, and the default of this option.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultOption {
    /// The name: `sbct`.
    pub name: String,
    /// The unit of the value; `None` for keywords.
    pub unit: Option<String>,
    /// The id of the flag that sets the option.
    pub flag: String,
    /// The first version with this default; `None`: it applies from the first release on.
    pub from: Option<OtpVersion>,
    /// The first version without this default.
    pub until: Option<OtpVersion>,
    /// The default, as `~w` prints it; `<S>` stands for the letter of the allocator.
    pub default: String,
    /// If present, the default is divided by the number of schedulers, but at most by this number.
    pub divided_by: Option<u64>,
    /// Different defaults of some allocators, by name. These are not divided.
    #[serde(default)]
    pub except: BTreeMap<String, String>,
    /// Different defaults of some allocators, by name. These are divided.
    #[serde(default)]
    pub except_divided: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    allocator: Vec<Allocator>,
    option: Vec<DefaultOption>,
}

fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| toml::from_str(DATA).unwrap_or_else(|error| broken("allocators", &error)))
}

/// Returns all allocators of OTP 21 and later.
pub fn allocators() -> &'static [Allocator] {
    &file().allocator
}

/// Finds an allocator by name (`binary_alloc`) or letter (`B`).
pub fn allocator(name: &str) -> Option<&'static Allocator> {
    let mut letters = name.chars();
    let letter = letters.next().filter(|_| letters.next().is_none());
    allocators().iter().find(|allocator| allocator.name == name || Some(allocator.letter) == letter)
}

impl Allocator {
    /// Whether this version has the allocator.
    pub fn exists_in(&self, otp: impl Into<OtpVersion>) -> bool {
        let otp = otp.into();
        self.removed_in.as_ref().is_none_or(|removed| otp < *removed)
    }

    /// Returns the default options in this version, by name and as `~w` prints them. `schedulers` is the total number of
    /// schedulers (the first number of `+S`). Empty for an allocator without carriers.
    pub fn default_options(
        &self,
        otp: impl Into<OtpVersion>,
        schedulers: u64,
    ) -> BTreeMap<&'static str, String> {
        let otp = otp.into();
        if !self.carriers {
            return BTreeMap::new();
        }
        file()
            .option
            .iter()
            .filter(|option| option.from.as_ref().is_none_or(|from| otp >= *from))
            .filter(|option| option.until.as_ref().is_none_or(|until| otp < *until))
            .map(|option| (option.name.as_str(), option.default_of(self, schedulers)))
            .collect()
    }
}

impl DefaultOption {
    fn default_of(&self, allocator: &Allocator, schedulers: u64) -> String {
        if let Some(other) = self.except.get(&allocator.name) {
            return other.clone();
        }
        let default = self.except_divided.get(&allocator.name).unwrap_or(&self.default);
        let whole = default.parse::<u64>().ok();
        match (whole, self.divided_by) {
            (Some(whole), Some(max)) => (whole / schedulers.clamp(1, max.max(1))).to_string(),
            _ => default.replace("<S>", &allocator.letter.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry;

    #[test]
    fn allocators_are_unique_and_complete() {
        let mut names = BTreeSet::new();
        for allocator in allocators() {
            assert!(names.insert(allocator.name.clone()), "{}", allocator.name);
            assert!(names.insert(allocator.letter.to_string()), "{}", allocator.letter);
            for text in [&allocator.holds, &allocator.counted_in] {
                assert!(text.ends_with('.'), "{}: {text:?}", allocator.name);
            }
        }
        let with_carriers =
            allocators().iter().filter(|allocator| allocator.carriers && allocator.exists_in(29));
        assert_eq!(with_carriers.count(), 10);
    }

    #[test]
    fn every_option_has_a_flag_and_names_allocators_that_exist() {
        for option in &file().option {
            assert!(entry(&option.flag).is_some(), "{}: no entry {}", option.name, option.flag);
            for name in option.except.keys().chain(option.except_divided.keys()) {
                assert!(allocator(name).is_some_and(|found| found.name == *name), "{}: {name}", option.name);
            }
            assert!(
                option.divided_by.is_none() || option.default.parse::<u64>().is_ok(),
                "{}: {} cannot be divided",
                option.name,
                option.default
            );
        }
    }

    #[test]
    fn allocators_are_found_by_name_and_letter() {
        assert_eq!(allocator("binary_alloc").map(|found| found.letter), Some('B'));
        assert_eq!(allocator("H").map(|found| found.name.as_str()), Some("eheap_alloc"));
        assert!(allocator("exec_alloc").is_some_and(|found| found.exists_in(23) && !found.exists_in(24)));
        assert!(allocator("").is_none() && allocator("XY").is_none());
    }

    #[test]
    fn defaults_depend_on_allocator_release_and_schedulers() {
        let check = |name: &str, otp: &str, schedulers: u64, option: &str, expect: Option<&str>| {
            let version = OtpVersion::parse(otp).expect(otp);
            let options = allocator(name).expect(name).default_options(version, schedulers);
            assert_eq!(options.get(option).map(String::as_str), expect, "{option} of {name} in OTP {otp}");
        };
        check("eheap_alloc", "25", 2, "mmbcs", Some("262144"));
        check("binary_alloc", "25", 64, "mmbcs", Some("32768"));
        check("temp_alloc", "25", 64, "mmbcs", Some("131072"));
        check("binary_alloc", "25", 1, "lmbcs", Some("10485760"));
        check("binary_alloc", "25", 8, "lmbcs", Some("5242880"));
        check("binary_alloc", "23.1", 2, "cp", None);
        check("binary_alloc", "23.2.6", 2, "cp", Some("'@'"));
        check("binary_alloc", "25", 2, "cp", Some("'B'"));
        check("temp_alloc", "25", 2, "cp", Some("undefined"));
        check("binary_alloc", "23", 2, "acful", None);
        check("eheap_alloc", "25", 2, "acul", Some("45"));
        check("temp_alloc", "25", 2, "as", Some("af"));
        check("sys_alloc", "25", 2, "as", None);
    }
}
