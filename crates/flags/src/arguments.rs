//! Parses the arguments of a running emulator.
//!
//! The launcher `erlexec` merges command line, args files and environment variables. It passes `+sbwt none` to the
//! emulator as `-sbwt none`, and all emulator flags precede the first `--`. `erlang:system_info(emu_args)` and
//! `/proc/PID/cmdline` therefore show the same list (tested on OTP 23, 25, 27 and 29). Words after the first `--` are
//! for `init`: they may look like emulator flags, but do not affect the emulator.

use crate::catalog::recognise;
use crate::entry::{Argument, Entry};

/// A flag and its effective value.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The spelling in the catalogue, with the allocator's letter: `+sbwt`, `+hms` for `+h 233`, `+MBas`.
    pub flag: String,
    /// The catalogue entry of the flag; `None` for an unknown flag.
    pub entry: Option<&'static Entry>,
    /// The value; `None` for a flag without a value.
    pub value: Option<String>,
    /// The origin of the value.
    pub origin: Origin,
    /// Earlier values of the same flag, which have no effect.
    pub overridden: Vec<OverriddenValue>,
}

/// A value that a later occurrence of the same flag overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverriddenValue {
    /// The value; `None` for a flag without a value.
    pub value: Option<String>,
    /// The origin of the value.
    pub origin: Origin,
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The environment variable of this name.
    Environment(String),
    /// The command line, or an args file such as vm.args, whose words the launcher inserts into the command line.
    CommandLine,
    /// Given at start; the environment does not reveal where.
    Start,
    /// The flag was not given.
    Default,
}

/// Parses a list such as `emu_args` and returns each flag once, with its last value, in order of first appearance.
/// Flags may start with `-`, as the emulator receives them, or with `+`, as on the command line. A leading program
/// name is skipped.
pub fn parse_emu_args(args: &[String]) -> Vec<Setting> {
    settings(flags(args), |_| Origin::Start)
}

/// Returns the effective value of one flag, which is the last value given. `None` if the flag was not given; empty for
/// a flag without a value.
pub fn effective_value(args: &[String], flag: &str) -> Option<String> {
    let found = parse_emu_args(args).into_iter().find(|setting| setting.flag == flag)?;
    Some(found.value.unwrap_or_default())
}

/// One occurrence of a flag.
pub(crate) struct Occurrence {
    pub(crate) flag: String,
    pub(crate) entry: Option<&'static Entry>,
    pub(crate) value: Option<String>,
    /// Index of the word that contains the flag.
    pub(crate) at: usize,
}

/// Returns the words that the emulator parses: those before the first `--`, without the program name.
pub fn emulator_words(args: &[String]) -> &[String] {
    let end = args.iter().position(|word| word == "--").unwrap_or(args.len());
    let words = args.get(..end).unwrap_or_default();
    let begin = words.iter().position(|word| is_flag(word)).unwrap_or(words.len());
    words.get(begin..).unwrap_or_default()
}

/// Splits the arguments of init, as recordings contain them, into words. Each argument is a flag with its values,
/// joined by spaces. If `-kernel` has an odd number of words, some value contains a space, but it is unknown which one,
/// so the argument is skipped.
pub fn init_words(arguments: &[String]) -> Vec<String> {
    let is_clear =
        |argument: &&String| !argument.starts_with("-kernel ") || argument.split(' ').count() % 2 == 1;
    arguments.iter().filter(is_clear).flat_map(|argument| argument.split(' ')).map(str::to_owned).collect()
}

/// Returns every occurrence of a flag in the arguments, in order.
pub(crate) fn flags(args: &[String]) -> Vec<Occurrence> {
    let words = emulator_words(args);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let next = words.get(at + 1).map(String::as_str);
        // Other words have no effect.
        if let Some(name) = word.strip_prefix(['-', '+']) {
            let (occurrence, took_next) = occurrence(&format!("+{name}"), next, at);
            found.push(occurrence);
            at += usize::from(took_next);
        }
        at += 1;
    }
    found
}

/// Whether the flag in `word` takes the word `next` as its value.
pub(crate) fn takes_next(word: &str, next: Option<&str>) -> bool {
    occurrence(word, next, 0).1
}

/// Whether a later value of a flag leaves an earlier value in effect instead of overriding it. The letters of `+B` are
/// separate switches, and `+Mea config` only prints (erl_init.c; tested on OTP 23, 25, 27 and 29).
pub fn both_take_effect(flag: &str, earlier: Option<&str>, later: Option<&str>) -> bool {
    match flag {
        // `+B` alone is the same as `+Bd`.
        "+B" => earlier.unwrap_or("d") != later.unwrap_or("d"),
        "+Mea" => later == Some("config") && earlier != later,
        _ => false,
    }
}

/// Whether a word is the value of a preceding flag with an optional value. Only known keywords are.
pub(crate) fn takes_word(entry: &Entry, word: &str) -> bool {
    let mut known = entry.accepts.iter().flat_map(|takes| takes.words.iter().chain(&takes.refuses));
    !word.is_empty() && known.any(|known| known == word)
}

fn occurrence(word: &str, next: Option<&str>, at: usize) -> (Occurrence, bool) {
    let unless_flag = next.filter(|next| !is_flag(next));
    let glued = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let unknown = || (word.to_owned(), None, None, unless_flag);
    let (flag, entry, value, taken) = match recognise(word) {
        Some(found) => {
            let value = glued(found.glued);
            let apart = match found.entry.argument {
                _ if value.is_some() => None,
                // As in the emulator, the value may look like a flag: `+sbwt -d` is an invalid threshold, not two flags.
                Some(Argument::Required) => next,
                Some(Argument::Optional) => next.filter(|next| takes_word(found.entry, next)),
                _ => None,
            };
            if value.is_some() && found.entry.argument == Some(Argument::None) {
                // An unknown flag whose name starts with the name of a flag without a value.
                unknown()
            } else {
                (found.flag, Some(found.entry), value, apart)
            }
        }
        None => unknown(),
    };
    let value = value.or_else(|| taken.map(str::to_owned));
    (Occurrence { flag, entry, value, at }, taken.is_some())
}

/// Merges the occurrences of each flag. `origin` returns the origin of a word by its index.
pub(crate) fn settings(found: Vec<Occurrence>, origin: impl Fn(usize) -> Origin) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for Occurrence { flag, entry, value, at } in found {
        let origin = origin(at);
        match settings.iter_mut().find(|setting| setting.flag == flag) {
            Some(setting) => {
                let value = std::mem::replace(&mut setting.value, value);
                let origin = std::mem::replace(&mut setting.origin, origin);
                setting.overridden.push(OverriddenValue { value, origin });
            }
            None => settings.push(Setting { flag, entry, value, origin, overridden: Vec::new() }),
        }
    }
    settings
}

pub(crate) fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with(['-', '+'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Formats the settings as `flag=value`.
    fn parsed(text: &str) -> String {
        let show = |setting: &Setting| match &setting.value {
            Some(value) => format!("{}={value}", setting.flag),
            None => setting.flag.clone(),
        };
        parse_emu_args(&words(text)).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_are_parsed_with_and_without_a_space_and_with_plus_or_minus() {
        let check = |text: &str, expect: &str| assert_eq!(parsed(text), expect, "{text}");
        check("", "");
        check("/usr/lib/erlang/erts-13.1.5/bin/beam.smp -- -root /usr/lib/erlang", "");
        check("beam.smp -sbwt none -S 2:2 -P 32768", "+sbwt=none +S=2:2 +P=32768");
        check("+sbwt none +S4 -MBas aobf +MHacul0", "+sbwt=none +S=4 +MBas=aobf +MHacul=0");
        check("-sbwtvery_long -dcg8 -rg32", "+sbwt=very_long +dcg=8 +rg=32");
        check("-d -ec -r -sbwt none", "+d +ec +r +sbwt=none");
        check("-c -sbwt none -c true", "+c=true +sbwt=none");
        check("-c foo -P 5000", "+c +P=5000");
        check("-B c", "+B=c");
        check("-B foo", "+B");
        check("-B -Bc -fnuw -W w", "+B=c +fnu=w +W=w");
        check("-K true -A 3", "+K=true +A=3");
    }

    #[test]
    fn last_value_takes_effect_and_earlier_ones_are_overridden() {
        let settings = parse_emu_args(&words("-S4 -sbwt none -S 2:2 -S2 -h 400 -hms 300"));
        let [schedulers, spin, heap] = settings.as_slice() else { panic!("{settings:?}") };
        assert_eq!((schedulers.flag.as_str(), schedulers.value.as_deref()), ("+S", Some("2")));
        let earlier: Vec<_> =
            schedulers.overridden.iter().filter_map(|earlier| earlier.value.as_deref()).collect();
        assert_eq!(earlier, ["4", "2:2"]);
        assert!(spin.overridden.is_empty());
        assert_eq!((heap.flag.as_str(), heap.value.as_deref()), ("+hms", Some("300")));
    }

    #[test]
    fn words_after_the_first_double_dash_are_ignored() {
        let args = "beam.smp -sbwt none -- -root /r -- -home /h -- -sbwt long -kernel net_ticktime 30";
        assert_eq!(parsed(args), "+sbwt=none");
    }

    #[test]
    fn emulator_words_exclude_the_program_name_and_words_for_init() {
        let check =
            |text: &str, expect: &str| assert_eq!(emulator_words(&words(text)).join(" "), expect, "{text}");
        check("/usr/bin/beam.smp -sbwt none -- -root /r -- -P 1", "-sbwt none");
        check("beam.smp -- -root /r", "");
        check("-P 5000", "-P 5000");
    }

    #[test]
    fn unambiguous_init_arguments_are_split_into_words() {
        let arguments = [
            "-noshell",
            "-kernel net_ticktime 30 logger_level debug",
            "-kernel inet_dist_use_interface {127, 0,0,1}",
        ];
        let words = init_words(&arguments.map(str::to_owned));
        assert_eq!(words.join(" "), "-noshell -kernel net_ticktime 30 logger_level debug");
    }

    #[test]
    fn flag_that_lacks_its_value_takes_the_next_flag_as_its_value() {
        assert_eq!(parsed("-sbwt -d -P 2048"), "+sbwt=-d +P=2048");
        assert_eq!(parsed("-P 2048 -sbwt -- -root r"), "+P=2048 +sbwt");
    }

    #[test]
    fn unknown_flags_are_returned_unchanged() {
        let settings = parse_emu_args(&words("-zfuture 4 -dsomething -Lx -P 2048"));
        let shown: Vec<_> = settings
            .iter()
            .map(|setting| (setting.flag.as_str(), setting.value.as_deref(), setting.entry.is_some()))
            .collect();
        assert_eq!(
            shown,
            [
                ("+zfuture", Some("4"), false),
                ("+dsomething", None, false),
                ("+Lx", None, false),
                ("+P", Some("2048"), true)
            ]
        );
    }

    #[test]
    fn effective_value_of_a_flag_is_found() {
        let args = words("-sbwt none -d -S 4");
        let check = |flag: &str, expect: Option<&str>| {
            assert_eq!(effective_value(&args, flag).as_deref(), expect, "{flag}");
        };
        check("+sbwt", Some("none"));
        check("+S", Some("4"));
        check("+d", Some(""));
        check("+sbwtdcpu", None);
        check("sbwt", None);
    }

    proptest! {
        #[test]
        fn any_list_of_words_is_parsed(args in proptest::collection::vec("(-|\\+|--)?[A-Za-z0-9<>é:]{0,6}", 0..12)) {
            let settings = parse_emu_args(&args);
            // Each flag is returned once, and no word is used twice.
            let total: usize = settings.iter().map(|setting| 1 + setting.overridden.len()).sum();
            prop_assert!(total <= args.len());
            for (index, setting) in settings.iter().enumerate() {
                prop_assert!(settings[..index].iter().all(|other| other.flag != setting.flag));
            }
        }

        #[test]
        fn last_of_several_values_takes_effect(values in proptest::collection::vec("[a-z0-9]{1,5}", 1..6), glued: bool) {
            let args: Vec<String> = values
                .iter()
                .flat_map(|value| if glued { vec![format!("-swct{value}")] } else { vec!["-swct".to_owned(), value.clone()] })
                .collect();
            prop_assert_eq!(effective_value(&args, "+swct"), values.last().cloned());
        }
    }
}
