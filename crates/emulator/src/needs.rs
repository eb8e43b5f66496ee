//! What a build needs of the system, and which packages bring it.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::installation::{find, search_path};
use crate::kind::Flavor;

/// By what it is seen that something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// A program on the PATH.
    Program(&'static str),
    /// A header that the compiler of C finds.
    Header(&'static str),
    /// A header that the compiler of C++ finds.
    CppHeader(&'static str),
}

/// Something that a build needs, with the package that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// What it is, for people.
    pub what: &'static str,
    /// How it is seen.
    pub probe: Probe,
    /// Package of Debian and Ubuntu.
    pub apt: &'static str,
    /// Package of Fedora, Red Hat, Rocky and the like.
    pub dnf: &'static str,
    /// Package of Alpine.
    pub apk: &'static str,
}

/// Who installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packages {
    /// Debian, Ubuntu.
    Apt,
    /// Fedora, Red Hat, Rocky and the like.
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
) -> Need {
    Need { what, probe, apt, dnf, apk }
}

/// What every build needs.
const ALWAYS: [Need; 7] = [
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
    // The C library's bring them, but for musl's.
    need(
        "the kernel's headers",
        Probe::Header("linux/errqueue.h"),
        "linux-libc-dev",
        "kernel-headers",
        "linux-headers",
    ),
];
/// What the just-in-time compiler is written in.
const JIT: [Need; 2] = [
    need("a C++ compiler", Probe::Program("g++"), "g++", "gcc-c++", "g++"),
    need("the C++ library's headers", Probe::CppHeader("vector"), "g++", "gcc-c++", "g++"),
];
/// What cuts debugging data off.
const STRIP: Need = need("strip", Probe::Program("strip"), "binutils", "binutils", "binutils");
/// What a tarball needs.
const TAR: Need = need("tar", Probe::Program("tar"), "tar", "tar", "tar");
const XZ: Need = need("xz", Probe::Program("xz"), "xz-utils", "xz", "xz");
const GZIP: Need = need("gzip", Probe::Program("gzip"), "gzip", "gzip", "gzip");
/// What Debian's source package needs.
const DPKG_SOURCE: Need =
    need("dpkg-source", Probe::Program("dpkg-source"), "dpkg-dev", "dpkg-dev", "dpkg-dev");
/// Without it, the emulator knows no SCTP, and `gen_sctp` says so.
pub const SCTP: Need = need(
    "the headers of SCTP",
    Probe::Header("netinet/sctp.h"),
    "libsctp-dev",
    "lksctp-tools-devel",
    "lksctp-tools-dev",
);

/// Where the source comes from, as far as unpacking it needs programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpack {
    /// A folder.
    Nothing,
    /// A tarball, compressed by gzip or xz, or by what tar itself knows.
    Tar {
        /// Its name ends in `.xz`.
        xz: bool,
    },
    /// Debian's source package.
    DebianSource,
}

/// What a build of this flavor needs.
pub fn needs(flavor: Flavor, unpack: Unpack) -> Vec<Need> {
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

/// Packages that a container needs to build an emulator of this flavor from a tarball of gzip, each once.
pub fn packages(manager: Packages, flavor: Flavor) -> Vec<&'static str> {
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

impl Need {
    fn package(&self, manager: Packages) -> &'static str {
        match manager {
            Packages::Apt => self.apt,
            Packages::Dnf => self.dnf,
            Packages::Apk => self.apk,
        }
    }

    /// Looks whether it is there. Without a compiler no header is; that the compiler is missing is told anyway.
    pub fn is_there(&self) -> bool {
        match self.probe {
            Probe::Program(program) => find(program.as_ref(), search_path().as_deref()).is_some(),
            Probe::Header(header) => compiles("gcc", "c", header),
            Probe::CppHeader(header) => compiles("g++", "c++", header),
        }
    }
}

/// An error that names all that is missing and how to install it, if anything is.
///
/// # Errors
/// If something is missing.
pub fn check(needs: &[Need], is_there: impl Fn(&Need) -> bool) -> Result<(), Error> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !is_there(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = |manager: Packages| {
        let mut names: Vec<&str> = missing.iter().map(|need| need.package(manager)).collect();
        names.dedup();
        names.join(" ")
    };
    let what = missing.iter().map(|need| need.what).collect::<Vec<_>>().join(", ");
    Err(Error::Missing(format!(
        "to build an emulator, this is missing: {what}. Install it:\n  Debian, Ubuntu: apt-get install {}\n  Fedora, Red Hat: dnf install {} \
         (or yum install)\n  Alpine: apk add {}",
        list(Packages::Apt),
        list(Packages::Dnf),
        list(Packages::Apk)
    )))
}

fn compiles(compiler: &str, language: &str, header: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-E", "-x", language, "-o", "/dev/null", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let told =
        child.stdin.take().map(|mut stdin| stdin.write_all(format!("#include <{header}>\n").as_bytes()));
    child.wait().is_ok_and(|status| status.success()) && matches!(told, Some(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_packages_of_each_system() {
        let told = |missing: &[&str], flavor, unpack| {
            let checked = check(&needs(flavor, unpack), |need| !missing.contains(&need.what));
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(told(&[], Flavor::Jit, Unpack::Nothing), None);
        let missing = ["a C++ compiler", "the C++ library's headers", "the headers of ncurses"];
        let text = told(&missing, Flavor::Jit, Unpack::Nothing).expect("something is missing");
        for part in [
            "the headers of ncurses, a C++ compiler",
            "apt-get install libncurses-dev g++\n",
            "dnf install ncurses-devel gcc-c++ (or yum install)\n",
            "apk add ncurses-dev g++",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(told(&["a C++ compiler"], Flavor::Emu, Unpack::Nothing), None);
        let text = told(&["dpkg-source"], Flavor::Jit, Unpack::DebianSource).expect("it is missing");
        assert!(text.contains("apt-get install dpkg-dev"), "{text}");
        assert_eq!(told(&["xz"], Flavor::Jit, Unpack::Tar { xz: false }), None);
        assert!(told(&["xz"], Flavor::Jit, Unpack::Tar { xz: true }).is_some());
    }

    #[test]
    fn a_container_needs_each_package_once() {
        let names = packages(Packages::Apk, Flavor::Jit);
        assert_eq!(names.iter().filter(|name| **name == "g++").count(), 1);
        assert!(
            ["musl-dev", "linux-headers", "lksctp-tools-dev"].iter().all(|it| names.contains(it)),
            "{names:?}"
        );
        assert!(!packages(Packages::Apt, Flavor::Emu).contains(&"g++"));
    }
}
