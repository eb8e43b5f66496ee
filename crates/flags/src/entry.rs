//! One thing that can be set, and what is known of it. The fields are the keys of `data/*.toml`.

use serde::Deserialize;

use crate::OtpVersion;
use crate::takes::{Fatal, Takes};

/// What is known of one setting.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Never changes: `+sbwt`, `+M<S>acul`, `ERL_FLAGS`, `ets.write_concurrency`, `code.back_pressure`.
    pub id: String,
    /// What kind of setting it is, and so who can change it.
    pub kind: Kind,
    /// How it is written, where that is not the id. `<S>` stands for an allocator's letter.
    #[serde(rename = "spelling")]
    written: Option<String>,
    /// Other spellings of the same flag.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// How an emulator flag takes its value; other kinds have none.
    pub argument: Option<Argument>,
    /// Whether the value may stand in the flag's own word too: `+P4096`.
    #[serde(default = "yes")]
    pub glued: bool,
    /// What is to be known of the values beyond `takes`, for a person.
    pub values: Option<String>,
    /// The values that it takes, a step for each range of releases; see [`Entry::takes_in`].
    #[serde(default)]
    pub takes: Vec<Takes>,
    /// Values with which a VM does not survive its start.
    #[serde(default)]
    pub fatal: Vec<Fatal>,
    /// A value that every release with this flag accepts.
    pub example: Option<String>,
    /// The value when nobody sets it, and from which release on; the first holds from the beginning.
    #[serde(default)]
    pub default: Vec<DefaultFrom>,
    /// The first version that has it, then patch releases of older ones that got it too. Empty: not bound to
    /// a release.
    #[serde(default)]
    pub since: Vec<OtpVersion>,
    /// The first version that accepts it without any effect.
    pub ignored_since: Option<OtpVersion>,
    /// The first version that refuses it.
    pub removed_in: Option<OtpVersion>,
    /// What versions do that do not have it.
    #[serde(default)]
    pub where_absent: WhereAbsent,
    /// How it was written before.
    #[serde(default)]
    pub formerly: Vec<Formerly>,
    /// What changed in its effect, while values and default stayed.
    #[serde(default)]
    pub news: Vec<News>,
    /// The environment variable that counts where the flag is not given.
    pub fallback: Option<String>,
    /// How to read the value in effect: an Erlang expression, or a file.
    pub read: Option<String>,
    /// An Erlang expression whose value, printed with `~w`, is the one in effect, in the unit of the flag. `<A>` stands
    /// for the name of the allocator. Absent where only `emu_args` shows it, or where reading it is not safe.
    pub effective: Option<String>,
    /// How a running VM is asked what it makes of a value; only for what can be set there.
    pub probe: Option<Probe>,
    /// How the same is changed while the VM runs. For a flag this is another setting: it can do less, and is
    /// lost at the next start.
    pub run_time_change: Option<String>,
    /// What it does.
    pub does: String,
    /// What it may cost or break.
    pub risk: String,
    /// Codes of the doctor's rules whose findings it has to do with: as what they advise, as what they judge, or as
    /// what would give them. Their pages are in `docs/rules`.
    #[serde(default)]
    pub rules: Vec<String>,
    /// What this entry rests on.
    pub evidence: Vec<Evidence>,
}

/// What kind of setting it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A flag of `erl`; needs a restart.
    EmulatorFlag,
    /// A flag with a minus, which `erl` hands to `init`; needs a restart.
    InitFlag,
    /// An environment variable of the VM.
    Environment,
    /// A call in the running VM, such as `erlang:system_flag/2`.
    RuntimeSetting,
    /// A parameter of the application `kernel`.
    KernelParameter,
    /// An option of `ets:new/2`: a change of the program.
    EtsOption,
    /// An option of a process, at its start or by `process_flag/2`: a change of the program.
    ProcessOption,
    /// An option of a socket: a change of the program.
    SocketOption,
    /// Something that the operating system grants.
    HostSetting,
    /// A property of the emulator's build.
    Build,
    /// Another change of the program.
    CodeChange,
}

/// How a flag takes its value. A value may always stand in the same word as the flag, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// It has none.
    None,
    /// Always, in the next word if not in its own.
    Required,
    /// In the next word, unless that is a flag.
    Optional,
    /// Only in its own word.
    Glued,
    /// Only in its own word, and it may be missing.
    GluedOptional,
}

/// Asks a running VM what it makes of a value, in Erlang.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Sets the value, which `<V>` stands for: `{read_concurrency, <V>}`.
    set: String,
    /// Gives the value in effect, as [`Takes::shows`] has it, with `<set>` where it is set:
    /// `ets:info(ets:new(t, [<set>]), read_concurrency)`.
    read: String,
}

impl Probe {
    /// An expression that gives the value in effect once this one is set, and fails where the VM refuses it. `None`
    /// sets nothing, so it gives the default.
    pub fn expression(&self, value: Option<&str>) -> String {
        let set = value.map(|value| self.set.replace("<V>", value)).unwrap_or_default();
        self.read.replace("<set>", &set)
    }
}

/// A default and the first version that has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultFrom {
    /// Absent: from the beginning.
    pub from: Option<OtpVersion>,
    /// The value, as it would be given; either this or a rule.
    pub is: Option<String>,
    /// What the VM does where nothing is given, for a person.
    pub rule: Option<String>,
}

impl DefaultFrom {
    /// The value, or else the rule.
    pub fn text(&self) -> &str {
        self.is.as_deref().or(self.rule.as_deref()).unwrap_or_default()
    }
}

/// What a version does that does not have a setting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WhereAbsent {
    /// It does not start.
    #[default]
    Refused,
    /// It starts, and nothing happens.
    Ignored,
    /// It takes it for another flag.
    ReadAs {
        /// Which one.
        flag: String,
        /// With which value.
        value: String,
    },
}

/// An older way of writing a setting.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Formerly {
    /// The first version in which it is not written so any more, or not only so.
    pub until: OtpVersion,
    /// How it was written.
    pub is: String,
}

/// A change of what a setting does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct News {
    /// The first version with the change.
    pub at: OtpVersion,
    /// What changed.
    pub says: String,
}

fn yes() -> bool {
    true
}

/// What a fact rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Tried on VMs of OTP 23, 25, 27 and 29: flags and variables with a start at every bound and word, what has a
    /// probe in a running VM (both `make check-flags`), the rest by hand.
    Run,
    /// Read in the emulator's C source.
    Source,
    /// The manual or the release notes say so.
    Manual,
}

impl Entry {
    /// How it is written: `+sbwt`, `spawn_opt {min_heap_size, Words}`.
    pub fn spelling(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.id)
    }

    /// That, and the other spellings of the same flag.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.spelling()).chain(self.aliases.iter().map(String::as_str))
    }

    /// Whether this version accepts it. A release without patch level stands for its first version, so what
    /// came with a later patch is not claimed for it.
    pub fn exists_in(&self, otp: impl Into<OtpVersion>) -> bool {
        let otp = otp.into();
        let begun = match self.since.split_first() {
            None => true,
            Some((first, backports)) => {
                otp >= *first
                    || backports.iter().any(|patch| patch.release() == otp.release() && otp >= *patch)
            }
        };
        begun && self.removed_in.as_ref().is_none_or(|removed| otp < *removed)
    }

    /// Whether this version accepts it and it has an effect there.
    pub fn works_in(&self, otp: impl Into<OtpVersion>) -> bool {
        let otp = otp.into();
        self.ignored_since.as_ref().is_none_or(|ignored| otp < *ignored) && self.exists_in(otp)
    }

    /// The default in this version, a value or a rule for it; `None` where there is none, or where it does not
    /// exist.
    pub fn default_in(&self, otp: impl Into<OtpVersion>) -> Option<&str> {
        self.default_step(&otp.into()).map(DefaultFrom::text)
    }

    /// The default in this version, where it is a value that could be given as well.
    pub fn default_value_in(&self, otp: impl Into<OtpVersion>) -> Option<&str> {
        self.default_step(&otp.into())?.is.as_deref()
    }

    fn default_step(&self, otp: &OtpVersion) -> Option<&DefaultFrom> {
        if !self.exists_in(otp.clone()) {
            return None;
        }
        self.default.iter().rfind(|step| step.from.as_ref().is_none_or(|from| otp >= from))
    }

    /// The letter of the allocator in a flag of this entry: `B` of `+MBas` for `+M<S>as`.
    pub fn allocator_in(&self, flag: &str) -> Option<char> {
        let (before, after) = self.spelling().split_once("<S>")?;
        let letter = flag.strip_prefix(before)?.strip_suffix(after)?;
        let mut letters = letter.chars();
        letters.next().filter(|_| letters.next().is_none())
    }

    /// For which OTP releases it is valid, for a person: `all`, `24.2 and later (also 23.3.4.10)`, and a
    /// warning where `node`, the release at hand, is none of them.
    pub fn releases(&self, node: Option<u32>) -> String {
        // Nothing older than 21 is supported, so what is older than that holds everywhere.
        const OLDEST: u32 = 21;
        let mut text = match self.since.split_first() {
            Some((first, backports)) if *first > OtpVersion::from(OLDEST) => {
                let also: Vec<_> = backports.iter().map(OtpVersion::to_string).collect();
                let also =
                    if also.is_empty() { String::new() } else { format!(" (also {})", also.join(", ")) };
                format!("{first} and later{also}")
            }
            _ => "all".to_owned(),
        };
        match (&self.removed_in, &self.ignored_since) {
            (Some(removed), _) if text == "all" => text = format!("before {removed}"),
            (Some(removed), _) => text.push_str(&format!(", before {removed}")),
            (None, Some(ignored)) => text.push_str(&format!("; without effect since {ignored}")),
            (None, None) => {}
        }
        if let Some(node) = node
            && !self.exists_somewhere_in(node)
        {
            text.push_str(&format!("; not in OTP {node}, which this node runs"));
        }
        text
    }

    /// Whether this very setting can be changed while the VM runs, without a change of the program. A flag
    /// cannot; where something of the same effect can be set, `run_time_change` names it.
    pub fn at_run_time(&self) -> bool {
        let changes = match self.kind {
            Kind::RuntimeSetting | Kind::HostSetting | Kind::KernelParameter | Kind::Environment => true,
            Kind::EmulatorFlag
            | Kind::InitFlag
            | Kind::EtsOption
            | Kind::ProcessOption
            | Kind::SocketOption
            | Kind::Build
            | Kind::CodeChange => false,
        };
        changes && self.run_time_change.is_some()
    }

    /// Whether any version of a release has it.
    fn exists_somewhere_in(&self, release: u32) -> bool {
        let begun = self.since.is_empty()
            || self.since.iter().enumerate().any(|(index, version)| {
                if index == 0 { release >= version.release() } else { release == version.release() }
            });
        begun && self.removed_in.as_ref().is_none_or(|removed| OtpVersion::from(release) < *removed)
    }
}

#[cfg(test)]
mod tests {
    use crate::{OtpVersion, entry};

    fn version(text: &str) -> OtpVersion {
        OtpVersion::parse(text).expect(text)
    }

    #[test]
    fn a_backport_counts_for_its_own_release_only() {
        let check = |otp: &str, expect: bool| {
            assert_eq!(entry("+zosrl").expect("+zosrl").exists_in(version(otp)), expect, "{otp}");
        };
        check("22.3.4.23", false);
        check("22.3.4.24", true);
        check("23.3.4.9", false);
        check("23.3.4.10", true);
        check("24.1", false);
        check("24.2", true);
        check("29.1.2", true);
    }

    #[test]
    fn what_a_release_removed_does_not_exist_there() {
        let check = |id: &str, otp: u32, expect: bool| {
            assert_eq!(entry(id).expect(id).exists_in(otp), expect, "{id} in {otp}");
        };
        check("+Mit", 23, true);
        check("+Mit", 24, false);
        check("+Mdai", 24, false);
        check("+Mdai", 25, true);
        check("code.back_pressure", 21, true);
    }

    #[test]
    fn a_default_is_that_of_its_release() {
        let check = |id: &str, otp: u32, expect: Option<&str>| {
            assert_eq!(entry(id).expect(id).default_in(otp), expect, "{id} in {otp}");
        };
        check("+P", 26, Some("262144"));
        check("+P", 27, Some("1048576"));
        check("+C", 25, Some("no_time_warp"));
        check("+C", 26, Some("multi_time_warp"));
        check("+zhft", 25, None);
        check("+zhft", 27, Some("infinity"));
        check("+R", 25, Some("own release"));
        check("code.back_pressure", 25, None);
    }

    #[test]
    fn releases_are_told_to_a_person() {
        let check = |id: &str, node: Option<u32>, expect: &str| {
            assert_eq!(entry(id).expect(id).releases(node), expect, "{id}");
        };
        check("+sbwt", Some(25), "all");
        check("+sbwtdio", None, "all");
        check("+Mdai", Some(25), "24.2 and later");
        // Some of 24 have it: no warning.
        check("+Mdai", Some(24), "24.2 and later");
        check("+Mdai", Some(23), "24.2 and later; not in OTP 23, which this node runs");
        check("+zosrl", Some(23), "24.2 and later (also 23.3.4.10, 22.3.4.24)");
        check("+Mit", None, "before 24.0");
        check("+K", Some(25), "all; without effect since 21.0");
        check("code.back_pressure", Some(25), "all");
    }

    #[test]
    fn a_flag_needs_a_restart_even_where_a_call_does_something_like_it() {
        let check = |id: &str, expect: bool| assert_eq!(entry(id).expect(id).at_run_time(), expect, "{id}");
        check("+S", false);
        check("+sbwt", false);
        check("system_flag.schedulers_online", true);
        check("host.cpu_quota", true);
        check("ERL_CRASH_DUMP", true);
        check("ERL_FLAGS", false);
        check("process.min_heap_size", false);
        check("ets.write_concurrency", false);
    }

    #[test]
    fn the_letter_of_an_allocator_is_found_in_a_flag() {
        let check = |id: &str, flag: &str, expect: Option<char>| {
            assert_eq!(entry(id).expect(id).allocator_in(flag), expect, "{flag}");
        };
        check("+M<S>as", "+MBas", Some('B'));
        check("+M<S>as", "+Muas", Some('u'));
        check("+M<S>as", "+Mas", None);
        check("+M<S>as", "+MBBas", None);
        check("+Mea", "+Mea", None);
    }

    #[test]
    fn a_probe_sets_a_value_or_leaves_the_default() {
        let probe = entry("ets.read_concurrency").and_then(|entry| entry.probe.as_ref()).expect("a probe");
        assert_eq!(
            probe.expression(Some("true")),
            "ets:info(ets:new(t, [{read_concurrency, true}]), read_concurrency)"
        );
        assert_eq!(probe.expression(None), "ets:info(ets:new(t, []), read_concurrency)");
    }

    #[test]
    fn a_flag_may_be_accepted_without_any_effect() {
        let kernel_poll = entry("+K").expect("+K");
        assert!(kernel_poll.exists_in(25) && !kernel_poll.works_in(25));
        assert!(entry("+sbwt").expect("+sbwt").works_in(25));
    }
}
