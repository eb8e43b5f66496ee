//! Finds out whether each flag of a running emulator comes from the command line or from an environment variable.
//!
//! The launcher joins the flags in this order: `ERL_OTP<NN>_FLAGS`, `ERL_AFLAGS`, the command line (with the words of
//! args files in their place), `ERL_FLAGS`, `ERL_ZFLAGS`. The last occurrence of a flag takes effect. The emulator
//! receives a single list, so the start and the end of the list are compared with the values of the variables.

use crate::arguments::{Origin, Setting, emulator_words, flags, is_flag, settings, takes_next};
use crate::catalog::entries;
use crate::entry::Kind;

/// Parses flags like `parse_emu_args`, and finds the origin of each flag. `environment` contains the names and values of
/// the variables with which the VM was started (`/proc/PID/environ`); `otp` is the release of the VM. If the flags do
/// not match the variables, every origin is [`Origin::Start`].
pub fn parse_with_environment(args: &[String], environment: &[(String, String)], otp: u32) -> Vec<Setting> {
    let words = emulator_words(args);
    let of = |names: &[String]| -> Vec<Part> {
        names.iter().filter_map(|name| Some(Part::new(name, variable(environment, name)?))).collect()
    };
    let before = of(&[format!("ERL_OTP{otp}_FLAGS"), "ERL_AFLAGS".to_owned()]);
    let after = of(&["ERL_FLAGS".to_owned(), "ERL_ZFLAGS".to_owned()]);
    let origins = origins(words, &before, &after);
    settings(flags(args), |at| match &origins {
        Some(origins) => origins.get(at).cloned().unwrap_or(Origin::Start),
        None => Origin::Start,
    })
}

/// Returns every flag that this release has and does not ignore, with its effective value and origin, followed by the
/// unknown flags that were given. Flags of single allocators (`+M<S>…`) are included only if they were given.
pub fn effective_settings(args: &[String], environment: &[(String, String)], otp: u32) -> Vec<Setting> {
    let mut given = parse_with_environment(args, environment, otp);
    let mut all = Vec::new();
    let flags = entries().iter().filter(|entry| entry.kind == Kind::EmulatorFlag && entry.works_in(otp));
    for entry in flags {
        // A flag such as `+M<S>as` may be given several times, for different allocators.
        let (of_entry, others) = given.into_iter().partition(|setting| is_same(setting, &entry.id));
        given = others;
        let of_entry: Vec<Setting> = of_entry;
        // The default is unknown for a pattern (`+M<S>as`) and for a flag that only the launcher parses (`-emu_type`).
        if of_entry.is_empty() && entry.spelling().starts_with('+') && !entry.spelling().contains('<') {
            let fallback =
                entry.fallback.as_deref().and_then(|name| Some((name, variable(environment, name)?)));
            let (value, origin) = match fallback {
                Some((name, value)) => (Some(value), Origin::Environment(name.to_owned())),
                None => (entry.default_in(otp), Origin::Default),
            };
            let value = value.map(str::to_owned);
            all.push(Setting {
                flag: entry.id.clone(),
                entry: Some(entry),
                value,
                origin,
                overridden: Vec::new(),
            });
        }
        all.extend(of_entry);
    }
    all.extend(given);
    all
}

fn is_same(setting: &Setting, id: &str) -> bool {
    setting.entry.is_some_and(|entry| entry.id == id)
}

fn variable<'e>(environment: &'e [(String, String)], name: &str) -> Option<&'e str> {
    environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// The words that one variable contributes to the arguments of the emulator.
struct Part {
    name: String,
    words: Vec<String>,
}

impl Part {
    fn new(name: &str, value: &str) -> Part {
        Part { name: name.to_owned(), words: emulator_part(&split(value)) }
    }
}

/// Returns the origin of each word; `None` if the arguments do not start and end with the words of the variables.
fn origins(words: &[String], before: &[Part], after: &[Part]) -> Option<Vec<Origin>> {
    let joined =
        |parts: &[Part]| -> Vec<String> { parts.iter().flat_map(|part| part.words.clone()).collect() };
    let (first, last) = (joined(before), joined(after));
    let between = words.len().checked_sub(first.len() + last.len())?;
    if !words.starts_with(&first) || !words.ends_with(&last) {
        return None;
    }
    let of = |parts: &[Part]| -> Vec<Origin> {
        parts.iter().flat_map(|part| vec![Origin::Environment(part.name.clone()); part.words.len()]).collect()
    };
    let mut origins = of(before);
    origins.extend(vec![Origin::CommandLine; between]);
    origins.extend(of(after));
    Some(origins)
}

/// Returns the words that the launcher passes to the emulator, in the form in which it passes them: `+sbwt none` becomes
/// `-sbwt`, `none`. Flags for `init`, which start with a minus, are left out with their values.
fn emulator_part(words: &[String]) -> Vec<String> {
    let mut part = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        // All words after `-extra` are for the Erlang program.
        if word == "-extra" {
            break;
        }
        let Some(name) = word.strip_prefix('+').filter(|_| is_flag(word)) else { continue };
        part.push(format!("-{name}"));
        let next = words.peek().copied();
        if takes_next(word, next) {
            part.extend(words.next().map(str::to_owned));
        }
    }
    part
}

/// Splits the value of a variable into words at white space. Single and double quotes are supported. A backslash is an
/// ordinary character within quotes, and escapes the next character elsewhere.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == '\\' => word.get_or_insert_default().extend(chars.next()),
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn environment(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn show(origin: &Origin) -> &str {
        match origin {
            Origin::Environment(name) => name,
            Origin::CommandLine => "command line",
            Origin::Start => "start",
            Origin::Default => "default",
        }
    }

    /// The arguments as the launchers of OTP 23, 25, 27 and 29 join them.
    const ARGS: &str = "/usr/lib/erlang/erts-13.1.5/bin/beam.smp -swt low -sbwtdcpu none -sbwt none -S4 -S 2:2 \
        -P 32768 -hms 300 -A 3 -S2 -MBas aobf -zdbbl4096 -- -root /usr/lib/erlang -- -foo bar -- -sbwt long";

    fn variables() -> Vec<(String, String)> {
        environment(&[
            ("ERL_OTP25_FLAGS", "+swt low"),
            ("ERL_OTP27_FLAGS", "+swt high"),
            ("ERL_AFLAGS", "+sbwtdcpu none -foo bar"),
            ("ERL_FLAGS", "+A 3 +S2"),
            ("ERL_ZFLAGS", "+MBas aobf +zdbbl4096"),
            ("HOME", "/root"),
        ])
    }

    #[test]
    fn every_flag_is_traced_to_its_variable_or_the_command_line() {
        let settings = parse_with_environment(&words(ARGS), &variables(), 25);
        let check = |flag: &str, value: &str, origin: &str| {
            let setting = settings.iter().find(|setting| setting.flag == flag).expect(flag);
            assert_eq!((setting.value.as_deref(), show(&setting.origin)), (Some(value), origin), "{flag}");
        };
        check("+swt", "low", "ERL_OTP25_FLAGS");
        check("+sbwtdcpu", "none", "ERL_AFLAGS");
        check("+sbwt", "none", "command line");
        check("+hms", "300", "command line");
        check("+A", "3", "ERL_FLAGS");
        check("+S", "2", "ERL_FLAGS");
        check("+MBas", "aobf", "ERL_ZFLAGS");
        check("+zdbbl", "4096", "ERL_ZFLAGS");
        let schedulers = settings.iter().find(|setting| setting.flag == "+S").expect("+S");
        let earlier: Vec<_> = schedulers
            .overridden
            .iter()
            .map(|earlier| (earlier.value.as_deref(), show(&earlier.origin)))
            .collect();
        assert_eq!(earlier, [(Some("4"), "command line"), (Some("2:2"), "command line")]);
    }

    #[test]
    fn no_origin_is_known_if_the_variables_do_not_match_the_flags() {
        let check = |variables: &[(&str, &str)], expect: &str| {
            let settings =
                parse_with_environment(&words("beam.smp -sbwt none -P 2048 --"), &environment(variables), 27);
            let origins: Vec<_> = settings.iter().map(|setting| show(&setting.origin)).collect();
            assert_eq!(origins.join(", "), expect, "{variables:?}");
        };
        check(&[], "command line, command line");
        check(&[("ERL_FLAGS", "+P 2048")], "command line, ERL_FLAGS");
        check(&[("ERL_AFLAGS", "+sbwt none"), ("ERL_ZFLAGS", "+P 2048")], "ERL_AFLAGS, ERL_ZFLAGS");
        check(&[("ERL_FLAGS", "-noshell -kernel x 1")], "command line, command line");
        // The variable was set after the start, or for another program.
        check(&[("ERL_FLAGS", "+P 4096")], "start, start");
        check(&[("ERL_AFLAGS", "+sbwt none +P 2048"), ("ERL_FLAGS", "+P 2048")], "start, start");
    }

    #[test]
    fn flags_that_were_not_given_have_the_default_value() {
        let check =
            |args: &str, variables: &[(&str, &str)], otp: u32, flag: &str, expect: Option<(&str, &str)>| {
                let all = effective_settings(&words(args), &environment(variables), otp);
                let found = all.iter().find(|setting| setting.flag == flag);
                let shown =
                    found.map(|setting| (setting.value.as_deref().unwrap_or(""), show(&setting.origin)));
                assert_eq!(shown, expect, "{flag} in OTP {otp}");
            };
        check("", &[], 25, "+sbwt", Some(("medium", "default")));
        check("", &[], 25, "+P", Some(("262144", "default")));
        check("", &[], 27, "+P", Some(("1048576", "default")));
        check("", &[], 25, "+zhft", None);
        check("", &[], 25, "+K", None);
        check("", &[], 25, "-emu_type", None);
        check("", &[], 25, "+M<S>as", None);
        check("-MBas bf", &[], 25, "+MBas", Some(("bf", "command line")));
        check("-future 1", &[], 25, "+future", Some(("1", "command line")));
        check("", &[("ERL_MAX_PORTS", "4096")], 25, "+Q", Some(("4096", "ERL_MAX_PORTS")));
        check("-Q 2048", &[("ERL_MAX_PORTS", "4096")], 25, "+Q", Some(("2048", "command line")));
    }

    #[test]
    fn effective_settings_are_unique() {
        for otp in 21..=29 {
            let all = effective_settings(&words(ARGS), &variables(), otp);
            let mut flags: Vec<_> = all.iter().map(|setting| setting.flag.as_str()).collect();
            assert!(flags.len() > 70, "OTP {otp}: {}", flags.len());
            flags.sort_unstable();
            assert!(flags.windows(2).all(|pair| pair[0] != pair[1]), "OTP {otp}: {flags:?}");
        }
    }

    #[test]
    fn variables_are_split_as_in_the_launcher() {
        let check = |text: &str, expect: &[&str]| assert_eq!(split(text), expect, "{text}");
        check("", &[]);
        check("  +sbwt\tnone \n +A 3 ", &["+sbwt", "none", "+A", "3"]);
        check(r#"-x "a b" 'c "d"' +A 3"#, &["-x", "a b", r#"c "d""#, "+A", "3"]);
        check(r#"a\ b "c\" d"#, &["a b", r"c\", "d"]);
        check(r#"-x "" y"#, &["-x", "", "y"]);
        check("-x 'unclosed +A 3", &["-x", "unclosed +A 3"]);
    }

    #[test]
    fn only_emulator_flags_are_passed_to_the_emulator() {
        let check = |text: &str, expect: &[&str]| assert_eq!(emulator_part(&split(text)), expect, "{text}");
        check("+sbwt none -noshell +P 2048 -kernel net_ticktime 30", &["-sbwt", "none", "-P", "2048"]);
        check("+d +c +S 2", &["-d", "-c", "-S", "2"]);
        check("+c false", &["-c", "false"]);
        check("+P 2048 -extra +A 3", &["-P", "2048"]);
    }
}
