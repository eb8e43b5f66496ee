//! Determines the effective value of each flag of a node from its configuration files.

use crate::OtpVersion;
use crate::arguments::both_take_effect;
use crate::catalog::entries;
use crate::entry::{Entry, Kind};
use crate::init_flags::is_repeatable;
use crate::source::{Fragment, Order};

use super::walk::{FragmentStatus, ensure_one_node, flag_uses, fragment_statuses};
use super::{ArgsError, FlagUse, Input, place_name};

/// An emulator flag and its effective value.
#[derive(Debug, Clone)]
pub struct EffectiveFlag {
    /// The name of the flag, as in [`Given::flag`].
    pub flag: String,
    /// The entry in the catalogue; `None` for an unknown flag.
    pub entry: Option<&'static Entry>,
    /// The value; `None` for a flag without a value.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ValueSource,
    /// The overridden values; the one that would take effect next comes first.
    pub overridden: Vec<FlagUse>,
}

/// The source of an effective value.
#[derive(Debug, Clone)]
pub enum ValueSource {
    /// An occurrence in a file.
    File(FlagUse),
    /// The default of the release.
    Default,
}

/// A variable or flag in a file that does not reach the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IneffectiveFlag {
    /// Index of the file in the list of inputs.
    pub file: usize,
    /// The byte offset in the file.
    pub offset: usize,
    /// The variable, the flag, or the command line.
    pub name: String,
    /// The reason.
    pub why: &'static str,
}

/// The flags of a node, in effect or not.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Emulator flags: first the flags that the files give, then all others with their defaults.
    pub emulator: Vec<EffectiveFlag>,
    /// All occurrences of flags for `init` and for applications, in the order of effect.
    pub others: Vec<FlagUse>,
    /// Parts of the files that have no effect on the node.
    pub ineffective: Vec<IneffectiveFlag>,
}

/// Determines the flags of a node of version `otp` that is started with these files.
///
/// # Errors
/// [`ArgsError::SeveralNodes`] if a file describes several nodes and none is selected.
pub fn effective_flags(inputs: &[Input], otp: &OtpVersion) -> Result<Overview, ArgsError> {
    let mut overview = Overview::default();
    let mut all: Vec<FlagUse> = Vec::new();
    for (file, input) in inputs.iter().enumerate() {
        ensure_one_node(input)?;
        all.extend(flag_uses(input, file).into_iter().filter(|given| {
            let fragment = input.fragments.get(given.fragment);
            fragment.is_none_or(|fragment| !is_for_other_release(fragment, otp))
        }));
        overview.ineffective.extend(idle(input, file, otp));
    }
    all.sort_by_key(|given| given.order);
    let effective_name = effective_name(&all);
    all.retain(|given| match effective_name.as_ref().and_then(|name| ignored_name(given, name)) {
        Some(idle) => {
            overview.ineffective.push(idle);
            false
        }
        None => true,
    });

    let mut of_emulator: Vec<(String, Vec<FlagUse>)> = Vec::new();
    for given in all {
        let is_emulators = given.flag.starts_with('+') && !is_repeatable(&given.flag);
        if !is_emulators {
            overview.others.push(given);
            continue;
        }
        let takes_the_place = |known: &FlagUse| {
            let (earlier, later) = (known.value(), given.value());
            known.flag == given.flag && !both_take_effect(&given.flag, earlier.as_deref(), later.as_deref())
        };
        match of_emulator.iter_mut().find(|(_, list)| list.last().is_some_and(takes_the_place)) {
            Some((_, list)) => list.push(given),
            None => of_emulator.push((given.flag.clone(), vec![given])),
        }
    }
    for (flag, mut list) in of_emulator {
        let Some(last) = list.pop() else { continue };
        list.reverse();
        overview.emulator.push(EffectiveFlag {
            flag,
            entry: last.entry,
            value: last.value(),
            source: ValueSource::File(last),
            overridden: list,
        });
    }
    let given: Vec<&str> =
        overview.emulator.iter().filter_map(|known| Some(known.entry?.id.as_str())).collect();
    let defaults: Vec<EffectiveFlag> = entries()
        .iter()
        .filter(|entry| entry.kind == Kind::EmulatorFlag && entry.works_in(otp.clone()))
        // `+M<S>as` and the like have a default for each allocator. Flags that only the launcher parses have no known default.
        .filter(|entry| entry.spelling().starts_with('+') && !entry.spelling().contains('<'))
        .filter(|entry| !given.contains(&entry.id.as_str()))
        .map(|entry| EffectiveFlag {
            flag: entry.spelling().to_owned(),
            entry: Some(entry),
            value: entry.default_in(otp.clone()).map(str::to_owned),
            source: ValueSource::Default,
            overridden: Vec::new(),
        })
        .collect();
    overview.emulator.extend(defaults);
    Ok(overview)
}

const NAMES: [&str; 2] = ["-sname", "-name"];

/// Finds the flag that names the node: the first `-sname`, or else the first `-name`, if its value is one word
/// (`erl_distribution.erl`; tested on OTP 23, 25, 27 and 29). `None` if there is no name, or if the effective one is uncertain.
fn effective_name(all: &[FlagUse]) -> Option<FlagUse> {
    let names = all.iter().filter(|given| NAMES.contains(&given.flag.as_str()));
    if names.clone().any(|given| given.conditional) {
        return None;
    }
    let first = |flag: &str| names.clone().find(|given| given.flag == flag);
    NAMES.into_iter().filter_map(first).find(|given| given.values.len() == 1).cloned()
}

/// Returns the reason why a node name has no effect; `None` for the effective name and for other flags.
fn ignored_name(given: &FlagUse, effective: &FlagUse) -> Option<IneffectiveFlag> {
    let is_other = (given.file, given.fragment, given.span.start)
        != (effective.file, effective.fragment, effective.span.start);
    if !NAMES.contains(&given.flag.as_str()) || !is_other {
        return None;
    }
    let why = match given.flag == effective.flag {
        true => "only the first of several names takes effect",
        false if given.flag == "-sname" => "the value has more than one word, so -name takes effect",
        false => "-sname overrides -name, in any order",
    };
    let name = format!("{} {}", given.flag, given.values.join(" "));
    Some(IneffectiveFlag {
        file: given.file,
        offset: given.span.start,
        name: name.trim_end().to_owned(),
        why,
    })
}

/// Whether a fragment is a variable for another release, such as `ERL_OTP27_FLAGS` for OTP 25.
fn is_for_other_release(fragment: &Fragment, otp: &OtpVersion) -> bool {
    fragment.place.order() == Some(Order::OtpFlags)
        && place_name(&fragment.place) != format!("ERL_OTP{}_FLAGS", otp.release())
}

fn idle(input: &Input, file: usize, otp: &OtpVersion) -> Vec<IneffectiveFlag> {
    let mut found = Vec::new();
    for (fragment, status) in input.fragments.iter().zip(fragment_statuses(input)) {
        let why = match status {
            FragmentStatus::Effective if is_for_other_release(fragment, otp) => "for another OTP release",
            FragmentStatus::Ignored(why) => why,
            FragmentStatus::Effective | FragmentStatus::OtherNode => continue,
        };
        let name = place_name(&fragment.place).to_owned();
        found.push(IneffectiveFlag { file, offset: fragment.span().start, name, why });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Format;

    fn overview(files: &[(Format, &str)], otp: u32) -> Overview {
        let inputs: Vec<Input> =
            files.iter().map(|(format, text)| Input::read(*format, *text).expect(text)).collect();
        effective_flags(&inputs, &OtpVersion::from(otp)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn of<'o>(overview: &'o Overview, flag: &str) -> &'o EffectiveFlag {
        overview.emulator.iter().find(|known| known.flag == flag).unwrap_or_else(|| panic!("{flag}"))
    }

    #[test]
    fn precedence_follows_the_launcher_and_not_the_order_of_the_files() {
        let files =
            [(Format::EnvFile, "ERL_FLAGS=+P 5000\n"), (Format::VmArgs, "+P 1000\n+Q 2048\n+P 3000\n")];
        let overview = overview(&files, 25);
        let limit = of(&overview, "+P");
        assert_eq!(limit.value.as_deref(), Some("5000"));
        assert!(matches!(&limit.source, ValueSource::File(given) if given.file == 0));
        let others: Vec<_> =
            limit.overridden.iter().map(|given| (given.file, given.value().expect("a value"))).collect();
        assert_eq!(others, [(1, "3000".to_owned()), (1, "1000".to_owned())]);
    }

    #[test]
    fn flag_that_is_not_given_has_the_default_of_the_release() {
        for (otp, default) in [(25, "262144"), (27, "1048576")] {
            let overview = overview(&[(Format::VmArgs, "+sbwt none\n")], otp);
            let limit = of(&overview, "+P");
            assert_eq!(limit.value.as_deref(), Some(default));
            assert!(matches!(limit.source, ValueSource::Default));
            assert!(matches!(of(&overview, "+sbwt").source, ValueSource::File(_)));
            let mut flags: Vec<&str> = overview.emulator.iter().map(|known| known.flag.as_str()).collect();
            flags.sort_unstable();
            assert!(flags.windows(2).all(|pair| pair[0] != pair[1]), "{flags:?}");
        }
    }

    #[test]
    fn different_letters_of_the_break_flag_do_not_override_each_other() {
        let overview = overview(&[(Format::VmArgs, "+B i\n+Bc\n+B\n+Bd\n+B i\n")], 25);
        let given = overview.emulator.iter().filter(|known| known.flag == "+B");
        let shown: Vec<_> = given.map(|known| (known.value.as_deref(), known.overridden.len())).collect();
        assert_eq!(shown, [(Some("i"), 1), (Some("c"), 0), (Some("d"), 1)]);
    }

    #[test]
    fn only_one_name_of_a_node_takes_effect() {
        let check = |files: &[(Format, &str)], name: &[&str], idle: &[&str]| {
            let overview = overview(files, 25);
            let names: Vec<String> = overview
                .others
                .iter()
                .map(|given| format!("{} {}", given.flag, given.values.join(" ")))
                .collect();
            assert_eq!(names, name, "{files:?}");
            assert_eq!(
                overview.ineffective.iter().map(|idle| idle.name.as_str()).collect::<Vec<_>>(),
                idle,
                "{files:?}"
            );
        };
        let args = |text: &str, name: &[&str], idle: &[&str]| check(&[(Format::VmArgs, text)], name, idle);
        args("-name a@b.c\n-sname d\n", &["-sname d"], &["-name a@b.c"]);
        args("-sname a\n-sname b\n-name c@d\n", &["-sname a"], &["-sname b", "-name c@d"]);
        args("-name a@b\n-name c@d\n", &["-name a@b"], &["-name c@d"]);
        args("-sname a b\n-name c@d\n", &["-name c@d"], &["-sname a b"]);
        // Neither name is valid: the first has two words, and a second `-sname` is ignored.
        args("-sname a b\n-sname c\n", &["-sname a b", "-sname c"], &[]);
        // The order of effect decides, not the order of the files.
        let files = [(Format::EnvFile, "ERL_FLAGS=-sname b\n"), (Format::VmArgs, "-sname a\n")];
        check(&files, &["-sname a"], &["-sname b"]);
        // Only one of the two names is present at run time.
        let erb = Format::VmArgsTemplate(crate::source::Template::Erb);
        let text = "<% if x %>\n-name a@b\n<% else %>\n-sname a\n<% end %>\n";
        check(&[(erb, text)], &["-name a@b", "-sname a"], &[]);
    }

    #[test]
    fn variable_for_another_release_has_no_effect() {
        let files = [(Format::EnvFile, "ERL_OTP27_FLAGS=+P 5000 +Q 2048\n")];
        assert!(matches!(of(&overview(&files, 25), "+P").source, ValueSource::Default));
        assert_eq!(overview(&files, 25).ineffective.len(), 1);
        assert_eq!(of(&overview(&files, 27), "+P").value.as_deref(), Some("5000"));
    }

    #[test]
    fn flag_overrides_its_fallback_variable() {
        let both = overview(&[(Format::EnvFile, "ERL_MAX_PORTS=4096\nERL_AFLAGS=+Q 2048\n")], 25);
        assert_eq!(of(&both, "+Q").value.as_deref(), Some("2048"));
        let alone = overview(&[(Format::EnvFile, "ERL_MAX_PORTS=4096\n")], 25);
        assert_eq!(of(&alone, "+Q").value.as_deref(), Some("4096"));
    }

    #[test]
    fn variables_that_do_not_reach_the_node_are_reported() {
        let overview =
            overview(&[(Format::RabbitmqEnv, "CTL_ERL_ARGS='+P 1'\nSERVER_ERL_ARGS='+P 2'\n")], 25);
        assert_eq!(overview.ineffective.len(), 2);
        assert!(matches!(of(&overview, "+P").source, ValueSource::Default));
    }

    #[test]
    fn command_line_is_used_only_if_the_file_has_one_command() {
        let one = "export ERL_AFLAGS='+P 5000'\nexec erl +P 6000 +Q 2048\nERL_FLAGS='+Q 4096'\n";
        let alone = overview(&[(Format::Shell, one)], 25);
        assert_eq!(of(&alone, "+P").value.as_deref(), Some("6000"));
        assert_eq!(of(&alone, "+Q").value.as_deref(), Some("4096"));
        let two = overview(&[(Format::Shell, "erl +P 5000 &\nelixir --erl '+P 6000' x.exs\n")], 25);
        assert!(matches!(of(&two, "+P").source, ValueSource::Default));
        let idle: Vec<&str> = two.ineffective.iter().map(|idle| idle.name.as_str()).collect();
        assert_eq!(idle, ["the command line"; 2]);
        let image = "FROM x AS build\nCMD erl +P 5000\nFROM y\nCMD erl +P 6000\n";
        assert_eq!(of(&overview(&[(Format::Dockerfile, image)], 25), "+P").value.as_deref(), Some("6000"));
    }

    #[test]
    fn commands_of_two_services_belong_to_two_nodes() {
        let text = "services:\n  a:\n    entrypoint: [erl, +P, '5000']\n    command: [+Q, '2048']\n  b:\n    command: erl +P 6000\n";
        let node = |node| Input { node, ..Input::read(Format::Compose, text).expect(text) };
        let of_service = |at| effective_flags(&[node(Some(at))], &OtpVersion::from(25)).expect("a node");
        assert_eq!(of(&of_service(0), "+P").value.as_deref(), Some("5000"));
        assert_eq!(of(&of_service(0), "+Q").value.as_deref(), Some("2048"));
        assert_eq!(of(&of_service(1), "+P").value.as_deref(), Some("6000"));
        assert!(matches!(of(&of_service(1), "+Q").source, ValueSource::Default));
        assert!(effective_flags(&[node(None)], &OtpVersion::from(25)).is_err());
    }

    #[test]
    fn two_containers_are_two_nodes() {
        let text = "a:\n  environment:\n    ERL_FLAGS: +P 1\nb:\n  environment:\n    ERL_FLAGS: +P 2\n";
        let input = Input::read(Format::Compose, text).expect(text);
        let error =
            effective_flags(std::slice::from_ref(&input), &OtpVersion::from(25)).expect_err("two nodes");
        assert!(error.to_string().contains("3:16, 6:16"), "{error}");
        let of_node = |node| {
            let overview =
                effective_flags(&[Input { node: Some(node), ..input.clone() }], &OtpVersion::from(25));
            overview.map(|overview| of(&overview, "+P").value.clone().unwrap_or_default())
        };
        assert_eq!((of_node(0), of_node(1)), (Ok("1".to_owned()), Ok("2".to_owned())));
        assert_eq!(of_node(2), Err(ArgsError::NoSuchNode { node: 2, count: 2 }));
    }
}
