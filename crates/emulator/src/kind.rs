//! The identity of an emulator, which determines whether it fits an installation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Major version of the first ERTS that has a JIT, and therefore emulator flavors: that of OTP 24.
const FIRST_ERTS_WITH_FLAVORS: u32 = 12;

/// The type of an emulator, as `-emu_type` and `erlang:system_info(build_type)` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// Counts every attempt to take a lock.
    Lcnt,
    /// The default type. Building one is useful for [`Options`] that the installation's emulator does not have.
    Opt,
}

impl Type {
    /// Parses a type's name.
    ///
    /// # Errors
    /// If the name is unknown. The message lists the valid names.
    pub fn parse(name: &str) -> Result<Type, String> {
        match name {
            "lcnt" => Ok(Type::Lcnt),
            "opt" => Ok(Type::Opt),
            _ => Err(format!("unknown emulator type {name:?}: use lcnt or opt")),
        }
    }

    /// Returns the name, which is also the make target.
    pub fn name(self) -> &'static str {
        match self {
            Type::Lcnt => "lcnt",
            Type::Opt => "opt",
        }
    }

    /// Returns the name of the executable that `erlexec` looks for (erts/etc/common/erlexec.c).
    pub fn file(self) -> &'static str {
        match self {
            Type::Lcnt => "beam.lcnt.smp",
            Type::Opt => "beam.smp",
        }
    }
}

/// How an emulator executes Erlang code, as `erlang:system_info(emu_flavor)` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// The code is compiled to machine code when a module is loaded.
    Jit,
    /// The code is interpreted.
    Emu,
}

impl Flavor {
    /// Returns the flavor's name.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::Jit => "jit",
            Flavor::Emu => "emu",
        }
    }
}

/// The C library of a program. The program does not run with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    /// Debian, Ubuntu, Fedora and most others.
    Glibc,
    /// Alpine.
    Musl,
    /// Another one, or a statically linked program.
    Other,
}

impl Libc {
    /// Returns the name, for output and for folders.
    pub fn name(self) -> &'static str {
        match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
            Libc::Other => "other",
        }
    }
}

/// Options of `configure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Whether the emulator polls sockets with epoll (the default) rather than with poll.
    pub kernel_poll: bool,
    /// Whether microstate accounting has the extra states: `ets`, `bif`, `alloc`, `busy_wait` …
    pub extra_msacc: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { kernel_poll: true, extra_msacc: false }
    }
}

/// What can be chosen when an emulator is built from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Its flavor.
    pub flavor: Flavor,
    /// Its `configure` options.
    pub options: Options,
}

/// The properties of an emulator that must be the same for it to replace another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of ERTS: `13.1.5`.
    pub erts: String,
    /// Type, flavor and options.
    #[serde(flatten)]
    pub variant: Variant,
    /// The CPU architecture, as `uname -m` names it.
    pub architecture: String,
    /// Its C library.
    pub libc: Libc,
}

impl Identity {
    /// Returns a unique name that can be used as a folder name: `erts-13.1.5-lcnt-jit-x86_64-glibc`.
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
    /// Formats it for output: `lcnt emulator of ERTS 13.1.5 (jit, x86_64, glibc, without kernel poll)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variant { kind, flavor, options } = self.variant;
        let (kind, flavor) = (kind.name(), flavor.name());
        write!(
            f,
            "{kind} emulator of ERTS {} ({flavor}, {}, {}",
            self.erts,
            self.architecture,
            self.libc.name()
        )?;
        if !options.kernel_poll {
            write!(f, ", without kernel poll")?;
        }
        if options.extra_msacc {
            write!(f, ", with extra microstates")?;
        }
        write!(f, ")")
    }
}

/// Returns whether an ERTS version has flavors. Older ones have only the interpreter, and their makefile has no `FLAVOR`.
pub(crate) fn has_flavors(erts: &str) -> bool {
    major(erts).is_some_and(|major| major >= FIRST_ERTS_WITH_FLAVORS)
}

/// Returns the OTP release of an ERTS version, from OTP 23 on. Since then, their major versions have advanced in step
/// (otp_versions.table in OTP's source).
pub(crate) fn release_of(erts: &str) -> Option<u32> {
    major(erts).filter(|major| *major >= 11).map(|major| major + 12)
}

fn major(version: &str) -> Option<u32> {
    version.split(['.', '-']).next()?.parse().ok()
}

/// Returns whether a text is a version and nothing else, so that it is safe in a path or a command: `13.1.5`, `27.0-rc1`.
pub fn is_version(text: &str) -> bool {
    text.len() <= 40
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-+_~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_identities_have_different_keys() {
        let usual = Identity {
            erts: "13.1.5".to_owned(),
            variant: Variant { kind: Type::Lcnt, flavor: Flavor::Jit, options: Options::default() },
            architecture: "x86_64".to_owned(),
            libc: Libc::Glibc,
        };
        let check = |change: fn(&mut Identity), key: &str, text: &str| {
            let mut identity = usual.clone();
            change(&mut identity);
            assert_eq!((identity.key().as_str(), identity.to_string().as_str()), (key, text));
        };
        let text = "lcnt emulator of ERTS 13.1.5 (jit, x86_64, glibc)";
        check(|_| {}, "erts-13.1.5-lcnt-jit-x86_64-glibc", text);
        let text = "opt emulator of ERTS 13.1.5 (jit, x86_64, glibc, without kernel poll)";
        let poll = |it: &mut Identity| {
            it.variant.kind = Type::Opt;
            it.variant.options.kernel_poll = false;
        };
        check(poll, "erts-13.1.5-opt-jit-x86_64-glibc-poll", text);
        let text = "lcnt emulator of ERTS 13.1.5 (emu, aarch64, musl, with extra microstates)";
        let other = |it: &mut Identity| {
            it.variant.flavor = Flavor::Emu;
            it.variant.options.extra_msacc = true;
            it.architecture = "aarch64".to_owned();
            it.libc = Libc::Musl;
        };
        check(other, "erts-13.1.5-lcnt-emu-aarch64-musl-msacc", text);
    }

    #[test]
    fn erts_version_gives_release_and_flavors() {
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
    fn only_versions_are_accepted_as_versions() {
        for text in ["13.1.5", "27.0-rc1", "1~2+dfsg"] {
            assert!(is_version(text), "{text}");
        }
        for text in ["", "../x", "13/5", "13 5", "v13", "$(x)", "1;x"] {
            assert!(!is_version(text), "{text}");
        }
    }
}
