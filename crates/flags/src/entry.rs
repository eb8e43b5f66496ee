//! A setting and its data per OTP release. The fields are the keys of `data/*.toml`.

use serde::Deserialize;

use crate::OtpVersion;
use crate::takes::{AcceptedValues, FatalValues};

/// A setting: how it is spelled, which values it accepts, what it does and in which releases it exists.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Stable identifier: `+sbwt`, `+M<S>acul`, `ERL_FLAGS`, `ets.write_concurrency`, `code.back_pressure`.
    pub id: String,
    /// The kind of the setting, which determines how it is changed.
    pub kind: Kind,
    /// The spelling, if it differs from the id. `<S>` stands for the letter of an allocator.
    #[serde(rename = "spelling")]
    written: Option<String>,
    /// Other spellings of the same flag.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// How the value of an emulator flag is given; `None` for other kinds of settings.
    pub argument: Option<Argument>,
    /// Whether the value may also be given in the same word: `+P4096`.
    #[serde(default = "yes")]
    pub glued: bool,
    /// Remarks on the values that `takes` cannot express, for output.
    pub values: Option<String>,
    /// The accepted values, one element for each range of releases; see [`Entry::takes_in`].
    #[serde(default)]
    #[serde(rename = "takes")]
    pub accepts: Vec<AcceptedValues>,
    /// Values that terminate the VM while it starts.
    #[serde(default)]
    pub fatal: Vec<FatalValues>,
    /// A value that every release with this flag accepts.
    pub example: Option<String>,
    /// The default values, in the order of versions; each one applies from its first version on.
    #[serde(default)]
    pub default: Vec<DefaultSince>,
    /// The first version with the setting, then the patch releases to which it was backported. Empty: all versions
    /// have the setting.
    #[serde(default)]
    pub since: Vec<OtpVersion>,
    /// The first version that accepts the setting but ignores it.
    pub ignored_since: Option<OtpVersion>,
    /// The first version that rejects the setting.
    pub removed_in: Option<OtpVersion>,
    /// How versions without the setting react to it.
    #[serde(default)]
    #[serde(rename = "where_absent")]
    pub absent_behavior: AbsentBehavior,
    /// Spellings that earlier versions used.
    #[serde(default)]
    #[serde(rename = "formerly")]
    pub former_spellings: Vec<FormerSpelling>,
    /// Changes of the effect that left the accepted values and the default unchanged.
    #[serde(default)]
    #[serde(rename = "news")]
    pub effect_changes: Vec<EffectChange>,
    /// The environment variable that is used if the flag is not given.
    pub fallback: Option<String>,
    /// How to read the effective value: an Erlang expression, or the path of a file.
    pub read: Option<String>,
    /// An Erlang expression whose value, printed with `~w`, is the effective value in the unit of the flag. `<A>`
    /// stands for the name of the allocator. `None` if only `emu_args` shows the value, or if reading it is unsafe.
    pub effective: Option<String>,
    /// How to test a value in a running VM; only for settings that can be changed at run time.
    pub probe: Option<Probe>,
    /// How to achieve the same while the VM runs. For a flag this is a different setting, which may do less and is
    /// lost on restart.
    pub run_time_change: Option<String>,
    /// What the setting does: a sentence that starts with a verb, and maybe more sentences.
    #[serde(rename = "does")]
    pub description: String,
    /// The costs and risks of changing the setting.
    pub risk: String,
    /// Codes of the diagnosis rules (`docs/rules`) that recommend this setting, check its value, or report its
    /// consequences.
    #[serde(default)]
    pub rules: Vec<String>,
    /// The sources of this entry.
    pub evidence: Vec<Evidence>,
}

/// The kind of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A flag of `erl`; needs a restart.
    EmulatorFlag,
    /// A flag with a minus, which `erl` passes to `init`; needs a restart.
    InitFlag,
    /// An environment variable of the VM.
    Environment,
    /// A call in the running VM, such as `erlang:system_flag/2`.
    RuntimeSetting,
    /// A parameter of the application `kernel`.
    KernelParameter,
    /// An option of `ets:new/2`: a code change.
    EtsOption,
    /// An option of a process, set at spawn or with `process_flag/2`: a code change.
    ProcessOption,
    /// An option of a socket: a code change.
    SocketOption,
    /// A setting of the operating system.
    HostSetting,
    /// A property of the emulator's build.
    Build,
    /// Any other code change.
    CodeChange,
}

/// How the value of a flag is given. A value that may be in the next word may also be in the same word, unless
/// [`Entry::glued`] is false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// The flag has no value.
    None,
    /// Required; in the same word or in the next one.
    Required,
    /// Optional; in the next word, unless the next word is a flag.
    Optional,
    /// Required; only in the same word.
    Glued,
    /// Optional; only in the same word.
    GluedOptional,
}

/// Erlang expressions that test how a running VM interprets a value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The setting with the value `<V>`: `{read_concurrency, <V>}`.
    set: String,
    /// An expression that returns the effective value in the form of [`Takes::shows`], with `<set>` in place of the
    /// setting: `ets:info(ets:new(t, [<set>]), read_concurrency)`.
    read: String,
}

impl Probe {
    /// Builds an expression that sets `value` and returns the effective value, and that fails if the VM rejects
    /// `value`. For `None` the expression sets nothing and returns the default.
    pub fn expression(&self, value: Option<&str>) -> String {
        let set = value.map(|value| self.set.replace("<V>", value)).unwrap_or_default();
        self.read.replace("<set>", &set)
    }
}

/// A default value and the first version that uses it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultSince {
    /// The first version with this default; `None`: it applies from the first release on.
    pub from: Option<OtpVersion>,
    /// The value as a user would write it; exclusive with `rule`.
    #[serde(rename = "is")]
    pub value: Option<String>,
    /// How the VM derives the value if the setting is not given, for output; exclusive with `is`.
    pub rule: Option<String>,
}

impl DefaultSince {
    /// Returns the value, or the rule if there is no value.
    pub fn text(&self) -> &str {
        self.value.as_deref().or(self.rule.as_deref()).unwrap_or_default()
    }
}

/// How a version without the setting reacts to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AbsentBehavior {
    /// The VM does not start.
    #[default]
    Refused,
    /// The VM starts and ignores the setting.
    Ignored,
    /// The VM parses the setting as another flag.
    ReadAs {
        /// The other flag.
        flag: String,
        /// The value of the other flag.
        value: String,
    },
}

/// A spelling that earlier versions used for a setting.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormerSpelling {
    /// The first version that also accepts the current spelling.
    pub until: OtpVersion,
    /// The former spelling.
    pub is: String,
}

/// A change of a setting's effect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectChange {
    /// The first version with the change.
    pub at: OtpVersion,
    /// What changed.
    #[serde(rename = "says")]
    pub text: String,
}

fn yes() -> bool {
    true
}

/// The source of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Tested on VMs of OTP 23, 25, 27 and 29. `make check-flags` starts a VM with every bound and word of each flag
    /// and variable, and tests settings that have a probe in a running VM. The rest was tested manually.
    Run,
    /// Derived from the C source of the emulator.
    Source,
    /// Documented in the manual or the release notes.
    Manual,
}

impl Entry {
    /// Returns the spelling: `+sbwt`, `spawn_opt {min_heap_size, Words}`.
    pub fn spelling(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.id)
    }

    /// Returns the description as the end of a sentence whose subject is the setting: `sets the size of the process table.`
    pub(crate) fn effect(&self) -> String {
        let mut chars = self.description.chars();
        chars.next().into_iter().flat_map(char::to_lowercase).chain(chars).collect()
    }

    /// Iterates over the spelling and its aliases.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.spelling()).chain(self.aliases.iter().map(String::as_str))
    }

    /// Whether this version accepts the setting. A release without a patch level means the first version of that
    /// release, which lacks settings that came with a later patch.
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

    /// Whether this version accepts the setting and does not ignore it.
    pub fn works_in(&self, otp: impl Into<OtpVersion>) -> bool {
        let otp = otp.into();
        self.ignored_since.as_ref().is_none_or(|ignored| otp < *ignored) && self.exists_in(otp)
    }

    /// Returns the default in this version, a value or a rule; `None` if there is no default or the setting does not
    /// exist.
    pub fn default_in(&self, otp: impl Into<OtpVersion>) -> Option<&str> {
        self.default_step(&otp.into()).map(DefaultSince::text)
    }

    /// Returns the default in this version if it is a value that a user could write.
    pub fn default_value_in(&self, otp: impl Into<OtpVersion>) -> Option<&str> {
        self.default_step(&otp.into())?.value.as_deref()
    }

    fn default_step(&self, otp: &OtpVersion) -> Option<&DefaultSince> {
        if !self.exists_in(otp.clone()) {
            return None;
        }
        self.default.iter().rfind(|step| step.from.as_ref().is_none_or(|from| otp >= from))
    }

    /// Returns the letter of the allocator in a flag of this entry: `B` for `+MBas` if the entry is `+M<S>as`.
    pub fn allocator_in(&self, flag: &str) -> Option<char> {
        let (before, after) = self.spelling().split_once("<S>")?;
        let letter = flag.strip_prefix(before)?.strip_suffix(after)?;
        let mut letters = letter.chars();
        letters.next().filter(|_| letters.next().is_none())
    }

    /// Describes the OTP releases that have the setting, for output: `all`, `24.2 and later (also 23.3.4.10)`. Adds a
    /// warning if `node`, the release of the target, is not among them.
    pub fn releases(&self, node: Option<u32>) -> String {
        // beamtune supports OTP 21 and later, so a setting that is at least that old exists in all releases.
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

    /// Whether this setting can be changed while the VM runs, without a code change. Flags cannot; `run_time_change`
    /// names a run-time setting with a similar effect.
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

    /// Whether any version of `release` has the setting.
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
    fn backported_setting_exists_only_in_releases_with_the_backport() {
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
    fn removed_setting_does_not_exist_in_later_releases() {
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
    fn default_depends_on_the_release() {
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
    fn releases_are_described_for_output() {
        let check = |id: &str, node: Option<u32>, expect: &str| {
            assert_eq!(entry(id).expect(id).releases(node), expect, "{id}");
        };
        check("+sbwt", Some(25), "all");
        check("+sbwtdio", None, "all");
        check("+Mdai", Some(25), "24.2 and later");
        // No warning, because some versions of OTP 24 have the flag.
        check("+Mdai", Some(24), "24.2 and later");
        check("+Mdai", Some(23), "24.2 and later; not in OTP 23, which this node runs");
        check("+zosrl", Some(23), "24.2 and later (also 23.3.4.10, 22.3.4.24)");
        check("+Mit", None, "before 24.0");
        check("+K", Some(25), "all; without effect since 21.0");
        check("code.back_pressure", Some(25), "all");
    }

    #[test]
    fn flag_needs_a_restart_even_if_a_call_has_a_similar_effect() {
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
    fn allocator_letter_is_extracted_from_a_flag() {
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
    fn probe_sets_a_value_or_keeps_the_default() {
        let probe = entry("ets.read_concurrency").and_then(|entry| entry.probe.as_ref()).expect("a probe");
        assert_eq!(
            probe.expression(Some("true")),
            "ets:info(ets:new(t, [{read_concurrency, true}]), read_concurrency)"
        );
        assert_eq!(probe.expression(None), "ets:info(ets:new(t, []), read_concurrency)");
    }

    #[test]
    fn accepted_flag_without_effect_does_not_work() {
        let kernel_poll = entry("+K").expect("+K");
        assert!(kernel_poll.exists_in(25) && !kernel_poll.works_in(25));
        assert!(entry("+sbwt").expect("+sbwt").works_in(25));
    }
}
