//! What an emulator is, by which one fits an installation or does not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// ERTS that was the first with a just-in-time compiler, and so with flavors of its emulator: that of OTP 24.
const FIRST_ERTS_WITH_FLAVORS: u32 = 12;

/// The type of an emulator, as `-emu_type` and `erlang:system_info(build_type)` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// It counts every try of every lock.
    Lcnt,
    /// The usual one; worth a build with other [`Options`] than an installation has.
    Opt,
}

impl Type {
    /// Reads the name.
    ///
    /// # Errors
    /// For a name that is none of these, with those that there are.
    pub fn parse(name: &str) -> Result<Type, String> {
        match name {
            "lcnt" => Ok(Type::Lcnt),
            "opt" => Ok(Type::Opt),
            _ => Err(format!("{name:?} is no type of emulator that beamtune builds: write lcnt or opt")),
        }
    }

    /// The name; also that of the goal of make.
    pub fn name(self) -> &'static str {
        match self {
            Type::Lcnt => "lcnt",
            Type::Opt => "opt",
        }
    }

    /// The file that `erlexec` starts for it (erts/etc/common/erlexec.c).
    pub fn file(self) -> &'static str {
        match self {
            Type::Lcnt => "beam.lcnt.smp",
            Type::Opt => "beam.smp",
        }
    }
}

/// How an emulator runs Erlang code, as `erlang:system_info(emu_flavor)` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// By compiling it to machine code when it is loaded.
    Jit,
    /// By interpreting it.
    Emu,
}

impl Flavor {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::Jit => "jit",
            Flavor::Emu => "emu",
        }
    }
}

/// The C library of a program: one that was built with another does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    /// That of Debian, Ubuntu, Fedora and most others.
    Glibc,
    /// That of Alpine.
    Musl,
    /// Another one, or none: the program is linked statically.
    Other,
}

impl Libc {
    /// The name, for people and for folders.
    pub fn name(self) -> &'static str {
        match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
            Libc::Other => "other",
        }
    }
}

/// What is chosen when an emulator is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Whether it waits for sockets by epoll, as every usual one does, or by poll.
    pub kernel_poll: bool,
    /// Whether microstate accounting tells more states: `ets`, `bif`, `alloc`, `busy_wait` …
    pub extra_msacc: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { kernel_poll: true, extra_msacc: false }
    }
}

/// What is built of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Its flavor.
    pub flavor: Flavor,
    /// How it is configured.
    pub options: Options,
}

/// All by which one emulator can take the place of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of ERTS: `13.1.5`.
    pub erts: String,
    /// What was built of it.
    #[serde(flatten)]
    pub variant: Variant,
    /// The machine's architecture, as `uname -m` names it.
    pub architecture: String,
    /// The C library.
    pub libc: Libc,
}

impl Identity {
    /// A name that no other identity has, fit for a folder: `erts-13.1.5-lcnt-jit-x86_64-glibc`.
    pub fn key(&self) -> String {
        let Identity { erts, variant, architecture, libc } = self;
        let Variant { kind, flavor, options } = variant;
        let mut key = format!("erts-{erts}-{}-{}-{architecture}-{}", kind.name(), flavor.name(), libc.name());
        if !options.kernel_poll {
            key.push_str("-poll");
        }
        if options.extra_msacc {
            key.push_str("-msacc");
        }
        key
    }
}

impl fmt::Display for Identity {
    /// For people: `lcnt of ERTS 13.1.5 (jit, x86_64, glibc, without kernel poll)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variant { kind, flavor, options } = self.variant;
        let (kind, flavor) = (kind.name(), flavor.name());
        write!(f, "{kind} of ERTS {} ({flavor}, {}, {}", self.erts, self.architecture, self.libc.name())?;
        if !options.kernel_poll {
            write!(f, ", without kernel poll")?;
        }
        if options.extra_msacc {
            write!(f, ", with extra microstates")?;
        }
        write!(f, ")")
    }
}

/// Whether an ERTS has flavors at all; before, there was only the interpreter, and make knew no `FLAVOR`.
pub(crate) fn has_flavors(erts: &str) -> bool {
    major(erts).is_some_and(|major| major >= FIRST_ERTS_WITH_FLAVORS)
}

/// The OTP release that an ERTS belongs to, from OTP 23 on, where they count in step (otp_versions.table of OTP's source).
pub(crate) fn release_of(erts: &str) -> Option<u32> {
    major(erts).filter(|major| *major >= 11).map(|major| major + 12)
}

fn major(version: &str) -> Option<u32> {
    version.split(['.', '-']).next()?.parse().ok()
}

/// Whether a text is a version and nothing else, so that it can stand in a path or a command: `13.1.5`, `27.0-rc1`.
pub fn is_version(text: &str) -> bool {
    text.len() <= 40
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-+_~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulators_that_cannot_take_each_others_place_have_different_keys() {
        let usual = Identity {
            erts: "13.1.5".to_owned(),
            variant: Variant { kind: Type::Lcnt, flavor: Flavor::Jit, options: Options::default() },
            architecture: "x86_64".to_owned(),
            libc: Libc::Glibc,
        };
        let check = |change: fn(&mut Identity), key: &str, told: &str| {
            let mut identity = usual.clone();
            change(&mut identity);
            assert_eq!((identity.key().as_str(), identity.to_string().as_str()), (key, told));
        };
        let told = "lcnt of ERTS 13.1.5 (jit, x86_64, glibc)";
        check(|_| {}, "erts-13.1.5-lcnt-jit-x86_64-glibc", told);
        let told = "opt of ERTS 13.1.5 (jit, x86_64, glibc, without kernel poll)";
        let poll = |it: &mut Identity| {
            it.variant.kind = Type::Opt;
            it.variant.options.kernel_poll = false;
        };
        check(poll, "erts-13.1.5-opt-jit-x86_64-glibc-poll", told);
        let told = "lcnt of ERTS 13.1.5 (emu, aarch64, musl, with extra microstates)";
        let other = |it: &mut Identity| {
            it.variant.flavor = Flavor::Emu;
            it.variant.options.extra_msacc = true;
            it.architecture = "aarch64".to_owned();
            it.libc = Libc::Musl;
        };
        check(other, "erts-13.1.5-lcnt-emu-aarch64-musl-msacc", told);
    }

    #[test]
    fn an_erts_tells_its_release_and_whether_it_has_flavors() {
        let check = |erts, release, flavors| {
            assert_eq!((release_of(erts), has_flavors(erts)), (release, flavors), "{erts}");
        };
        check("10.7.2", None, false);
        check("11.1.8", Some(23), false);
        check("12.0", Some(24), true);
        check("17.1.1", Some(29), true);
        check("16.0-rc1", Some(28), true);
        check("x", None, false);
    }

    #[test]
    fn what_is_no_version_stands_in_no_path() {
        for text in ["13.1.5", "27.0-rc1", "1~2+dfsg"] {
            assert!(is_version(text), "{text}");
        }
        for text in ["", "../x", "13/5", "13 5", "v13", "$(x)", "1;x"] {
            assert!(!is_version(text), "{text}");
        }
    }
}
