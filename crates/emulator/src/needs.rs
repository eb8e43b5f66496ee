//! Programs and headers that a build needs, and the packages that contain them.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::installation::{find, search_path};
use crate::kind::Flavor;

/// How to detect whether something is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// A program on the PATH.
    Program(&'static str),
    /// A header that the C compiler finds.
    Header(&'static str),
    /// A header that the C++ compiler finds.
    CppHeader(&'static str),
}

/// Something that a build needs, and its package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirement {
    /// Its name in messages.
    pub what: &'static str,
    /// How to detect whether it is installed.
    pub probe: Probe,
    /// Package of Debian and Ubuntu.
    pub apt: &'static str,
    /// Package of Fedora, Red Hat and Rocky.
    pub dnf: &'static str,
    /// Package of Alpine.
    pub apk: &'static str,
}

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageManager {
    /// Debian, Ubuntu.
    Apt,
    /// Fedora, Red Hat, Rocky.
    Dnf,
    /// Alpine.
    Apk,
}

const fn need(
    what: &'static str,
    probe: Probe,
    apt: &'static str,
    dnf: &'static str,
    apk: &'static str,
) -> Requirement {
    Requirement { what, probe, apt, dnf, apk }
}

/// Needed for every build.
const ALWAYS: [Requirement; 7] = [
    need("a C compiler", Probe::Program("gcc"), "gcc", "gcc", "gcc"),
    need("the C library's headers", Probe::Header("stdlib.h"), "libc6-dev", "glibc-devel", "musl-dev"),
    need("make", Probe::Program("make"), "make", "make", "make"),
    need("perl", Probe::Program("perl"), "perl", "perl", "perl"),
    need(
        "the headers of ncurses",
        Probe::Header("curses.h"),
        "libncurses-dev",
        "ncurses-devel",
        "ncurses-dev",
    ),
    need("the headers of zlib", Probe::Header("zlib.h"), "zlib1g-dev", "zlib-devel", "zlib-dev"),
    // The headers of glibc depend on these, those of musl do not.
    need(
        "the kernel's headers",
        Probe::Header("linux/errqueue.h"),
        "linux-libc-dev",
        "kernel-headers",
        "linux-headers",
    ),
];
/// Needed for a JIT build, since the JIT is written in C++.
const JIT: [Requirement; 2] = [
    need("a C++ compiler", Probe::Program("g++"), "g++", "gcc-c++", "g++"),
    need("the C++ library's headers", Probe::CppHeader("vector"), "g++", "gcc-c++", "g++"),
];
/// Needed to remove debug information.
const STRIP: Requirement = need("strip", Probe::Program("strip"), "binutils", "binutils", "binutils");
/// Needed to unpack a tarball.
const TAR: Requirement = need("tar", Probe::Program("tar"), "tar", "tar", "tar");
const XZ: Requirement = need("xz", Probe::Program("xz"), "xz-utils", "xz", "xz");
const GZIP: Requirement = need("gzip", Probe::Program("gzip"), "gzip", "gzip", "gzip");
/// Needed to unpack Debian's source package.
const DPKG_SOURCE: Requirement =
    need("dpkg-source", Probe::Program("dpkg-source"), "dpkg-dev", "dpkg-dev", "dpkg-dev");
/// Optional: without these headers, the emulator does not support SCTP, and `gen_sctp` returns an error.
pub const SCTP: Requirement = need(
    "the headers of SCTP",
    Probe::Header("netinet/sctp.h"),
    "libsctp-dev",
    "lksctp-tools-devel",
    "lksctp-tools-dev",
);

/// How a source is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpack {
    /// The source is a folder, which need not be unpacked.
    Nothing,
    /// A tarball, compressed with gzip or xz, or in another way that tar detects.
    Tar {
        /// Whether its name ends in `.xz`.
        xz: bool,
    },
    /// Debian's source package.
    DebianSource,
}

/// Returns what a build of this flavor needs, except for [`SCTP`].
pub fn needs(flavor: Flavor, unpack: Unpack) -> Vec<Requirement> {
    let mut needs = ALWAYS.to_vec();
    if flavor == Flavor::Jit {
        needs.extend(JIT);
    }
    needs.push(STRIP);
    match unpack {
        Unpack::Nothing => {}
        Unpack::Tar { xz: true } => needs.extend([TAR, XZ]),
        Unpack::Tar { xz: false } => needs.extend([TAR, GZIP]),
        Unpack::DebianSource => needs.push(DPKG_SOURCE),
    }
    needs
}

/// Returns the packages that a container needs to build an emulator of this flavor from a gzipped tarball, without duplicates.
pub fn packages(manager: PackageManager, flavor: Flavor) -> Vec<&'static str> {
    let needs = needs(flavor, Unpack::Tar { xz: false });
    let mut names: Vec<&'static str> = Vec::new();
    for need in needs.iter().chain([&SCTP]) {
        let name = need.package(manager);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Requirement {
    fn package(&self, manager: PackageManager) -> &'static str {
        match manager {
            PackageManager::Apt => self.apt,
            PackageManager::Dnf => self.dnf,
            PackageManager::Apk => self.apk,
        }
    }

    /// Returns whether it is installed. Without a compiler, every header is reported as missing, along with the compiler.
    pub fn is_installed(&self) -> bool {
        match self.probe {
            Probe::Program(program) => find(program.as_ref(), search_path().as_deref()).is_some(),
            Probe::Header(header) => compiles("gcc", "c", header),
            Probe::CppHeader(header) => compiles("g++", "c++", header),
        }
    }
}

/// Checks that everything is installed.
///
/// # Errors
/// If something is missing. The error lists everything that is missing, and the commands that install it.
pub fn check(needs: &[Requirement], is_there: impl Fn(&Requirement) -> bool) -> Result<(), Error> {
    let missing: Vec<&Requirement> = needs.iter().filter(|need| !is_there(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |manager: PackageManager| {
        let mut names: Vec<&str> = missing.iter().map(|need| need.package(manager)).collect();
        names.dedup();
        names.join(" ")
    };
    let what = missing.iter().map(|need| need.what).collect::<Vec<_>>().join(", ");
    Err(Error::Missing(format!(
        "cannot build an emulator without {what}. Install what is missing:\n  Debian, Ubuntu: apt-get install {}\n  Fedora, Red Hat: dnf install {} \
         (or yum install)\n  Alpine: apk add {}",
        list(PackageManager::Apt),
        list(PackageManager::Dnf),
        list(PackageManager::Apk)
    )))
}

fn compiles(compiler: &str, language: &str, header: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-E", "-x", language, "-o", "/dev/null", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let written =
        child.stdin.take().map(|mut stdin| stdin.write_all(format!("#include <{header}>\n").as_bytes()));
    child.wait().is_ok_and(|status| status.success()) && matches!(written, Some(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_needs_are_reported_with_packages_of_each_system() {
        let error = |missing: &[&str], flavor, unpack| {
            let checked = check(&needs(flavor, unpack), |need| !missing.contains(&need.what));
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(error(&[], Flavor::Jit, Unpack::Nothing), None);
        let missing = ["a C++ compiler", "the C++ library's headers", "the headers of ncurses"];
        let text = error(&missing, Flavor::Jit, Unpack::Nothing).expect("something is missing");
        for part in [
            "the headers of ncurses, a C++ compiler",
            "apt-get install libncurses-dev g++\n",
            "dnf install ncurses-devel gcc-c++ (or yum install)\n",
            "apk add ncurses-dev g++",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(error(&["a C++ compiler"], Flavor::Emu, Unpack::Nothing), None);
        let text = error(&["dpkg-source"], Flavor::Jit, Unpack::DebianSource).expect("it is missing");
        assert!(text.contains("apt-get install dpkg-dev"), "{text}");
        assert_eq!(error(&["xz"], Flavor::Jit, Unpack::Tar { xz: false }), None);
        assert!(error(&["xz"], Flavor::Jit, Unpack::Tar { xz: true }).is_some());
    }

    #[test]
    fn container_packages_have_no_duplicates() {
        let names = packages(PackageManager::Apk, Flavor::Jit);
        assert_eq!(names.iter().filter(|name| **name == "g++").count(), 1);
        assert!(
            ["musl-dev", "linux-headers", "lksctp-tools-dev"].iter().all(|it| names.contains(it)),
            "{names:?}"
        );
        assert!(!packages(PackageManager::Apt, Flavor::Emu).contains(&"g++"));
    }
}
