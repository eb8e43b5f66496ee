//! One setting and what is known about it. The fields are the keys of `data/*.toml`.

use serde::Deserialize;

use crate::OtpVersion;
use crate::takes::{Fatal, Takes};

/// One setting.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Never changes: `+sbwt`, `+M<S>acul`, `ERL_FLAGS`, `ets.write_concurrency`, `code.back_pressure`.
    pub id: String,
    /// What kind of setting it is, and thereby how it is changed.
    pub kind: Kind,
    /// The spelling where it differs from the id. `<S>` is an allocator's letter.
    #[serde(rename = "spelling")]
    written: Option<String>,
    /// Other spellings of the same flag.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// How an emulator flag takes its value; other kinds have none.
    pub argument: Option<Argument>,
    /// Whether the value may follow in the same word as well: `+P4096`.
    #[serde(default = "yes")]
    pub glued: bool,
    /// Remarks on the values beyond `takes`, for output.
    pub values: Option<String>,
    /// The accepted values, one step for each range of releases; see [`Entry::takes_in`].
    #[serde(default)]
    pub takes: Vec<Takes>,
    /// Values that end the VM while it starts.
    #[serde(default)]
    pub fatal: Vec<Fatal>,
    /// A value that every release with this flag accepts.
    pub example: Option<String>,
    /// The default, with the release it applies from; the first applies from the beginning.
    #[serde(default)]
    pub default: Vec<DefaultFrom>,
    /// The first version that has it, then the patch releases that it was backported to. Empty: independent of
    /// releases.
    #[serde(default)]
    pub since: Vec<OtpVersion>,
    /// The first version that accepts it but ignores it.
    pub ignored_since: Option<OtpVersion>,
    /// The first version that rejects it.
    pub removed_in: Option<OtpVersion>,
    /// How versions without it react.
    #[serde(default)]
    pub where_absent: WhereAbsent,
    /// Former spellings.
    #[serde(default)]
    pub formerly: Vec<FormerSpelling>,
    /// Changes of its effect where values and default stayed the same.
    #[serde(default)]
    pub news: Vec<EffectChange>,
    /// The environment variable that is used where the flag is not given.
    pub fallback: Option<String>,
    /// How to read the effective value: an Erlang expression, or a file.
    pub read: Option<String>,
    /// An Erlang expression that prints, with `~w`, the effective value in the unit of the flag. `<A>` is the name of
    /// the allocator. Absent where only `emu_args` shows the value, or where reading it is unsafe.
    pub effective: Option<String>,
    /// How to test a value in a running VM; only for settings that can be set there.
    pub probe: Option<Probe>,
    /// How to change the same thing while the VM runs. For a flag this is a different setting: it may do less, and
    /// is lost on restart.
    pub run_time_change: Option<String>,
    /// What the setting does.
    pub does: String,
    /// What it costs or can break.
    pub risk: String,
    /// Codes of the diagnosis rules (`docs/rules`) that recommend this setting, judge it, or would fire because of
    /// it.
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

/// How a flag takes its value. A value may always follow in the same word as the flag as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// It takes none.
    None,
    /// Required; in the next word if not in the same one.
    Required,
    /// In the next word, unless that is a flag.
    Optional,
    /// Only in the same word.
    Glued,
    /// Only in the same word, and optional.
    GluedOptional,
}

/// Tests in Erlang what a running VM makes of a value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Sets the value `<V>`: `{read_concurrency, <V>}`.
    set: String,
    /// Returns the effective value in the form of [`Takes::shows`]; `<set>` is replaced by the setting:
    /// `ets:info(ets:new(t, [<set>]), read_concurrency)`.
    read: String,
}

impl Probe {
    /// An expression that returns the effective value after setting `value`, and fails if the VM rejects it. With
    /// `None` it sets nothing and returns the default.
    pub fn expression(&self, value: Option<&str>) -> String {
        let set = value.map(|value| self.set.replace("<V>", value)).unwrap_or_default();
        self.read.replace("<set>", &set)
    }
}

/// A default and the first version with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultFrom {
    /// Absent: from the beginning.
    pub from: Option<OtpVersion>,
    /// The value in the form in which it would be given; exclusive with `rule`.
    pub is: Option<String>,
    /// What the VM does if the setting is not given, for output.
    pub rule: Option<String>,
}

impl DefaultFrom {
    /// The value, otherwise the rule.
    pub fn text(&self) -> &str {
        self.is.as_deref().or(self.rule.as_deref()).unwrap_or_default()
    }
}

/// How a version without the setting reacts to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WhereAbsent {
    /// It does not start.
    #[default]
    Refused,
    /// It starts and ignores it.
    Ignored,
    /// It parses it as another flag.
    ReadAs {
        /// That flag.
        flag: String,
        /// Its value.
        value: String,
    },
}

/// A former spelling of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormerSpelling {
    /// The first version in which this spelling is no longer the only one.
    pub until: OtpVersion,
    /// The spelling.
    pub is: String,
}

/// A change of a setting's effect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectChange {
    /// The first version with the change.
    pub at: OtpVersion,
    /// What changed.
    pub says: String,
}

fn yes() -> bool {
    true
}

/// The source of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Tried on VMs of OTP 23, 25, 27 and 29: flags and variables by a start with every bound and word, settings
    /// with a probe in a running VM (both `make check-flags`), the rest by hand.
    Run,
    /// Read in the C source of the emulator.
    Source,
    /// Stated in the manual or the release notes.
    Manual,
}

impl Entry {
    /// The spelling: `+sbwt`, `spawn_opt {min_heap_size, Words}`.
    pub fn spelling(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.id)
    }

    /// The spelling and its aliases.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.spelling()).chain(self.aliases.iter().map(String::as_str))
    }

    /// Whether this version accepts it. A release without a patch level is its first version, so a setting that
    /// came with a later patch does not exist in it.
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

    /// Whether this version accepts it and does not ignore it.
    pub fn works_in(&self, otp: impl Into<OtpVersion>) -> bool {
        let otp = otp.into();
        self.ignored_since.as_ref().is_none_or(|ignored| otp < *ignored) && self.exists_in(otp)
    }

    /// The default in this version, a value or a rule; `None` where there is no default or the setting does not
    /// exist.
    pub fn default_in(&self, otp: impl Into<OtpVersion>) -> Option<&str> {
        self.default_step(&otp.into()).map(DefaultFrom::text)
    }

    /// The default in this version if it is a value that could be given.
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

    /// The OTP releases it is valid for, for output: `all`, `24.2 and later (also 23.3.4.10)`; with a warning if
    /// `node`, the release of the target, is not among them.
    pub fn releases(&self, node: Option<u32>) -> String {
        // Releases before 21 are not supported, so an older setting exists in all of them.
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

    /// Whether this setting can be changed while the VM runs, without a code change. A flag cannot; for a run-time
    /// setting with a similar effect see `run_time_change`.
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
    fn a_backport_counts_only_in_its_own_release() {
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
    fn a_removed_setting_does_not_exist_in_later_releases() {
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
    fn a_default_depends_on_the_release() {
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
        // Some versions of 24 have it: no warning.
        check("+Mdai", Some(24), "24.2 and later");
        check("+Mdai", Some(23), "24.2 and later; not in OTP 23, which this node runs");
        check("+zosrl", Some(23), "24.2 and later (also 23.3.4.10, 22.3.4.24)");
        check("+Mit", None, "before 24.0");
        check("+K", Some(25), "all; without effect since 21.0");
        check("code.back_pressure", Some(25), "all");
    }

    #[test]
    fn a_flag_needs_a_restart_even_if_a_call_has_a_similar_effect() {
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
    fn a_probe_sets_a_value_or_keeps_the_default() {
        let probe = entry("ets.read_concurrency").and_then(|entry| entry.probe.as_ref()).expect("a probe");
        assert_eq!(
            probe.expression(Some("true")),
            "ets:info(ets:new(t, [{read_concurrency, true}]), read_concurrency)"
        );
        assert_eq!(probe.expression(None), "ets:info(ets:new(t, []), read_concurrency)");
    }

    #[test]
    fn a_flag_may_be_accepted_and_ignored() {
        let kernel_poll = entry("+K").expect("+K");
        assert!(kernel_poll.exists_in(25) && !kernel_poll.works_in(25));
        assert!(entry("+sbwt").expect("+sbwt").works_in(25));
    }
}
