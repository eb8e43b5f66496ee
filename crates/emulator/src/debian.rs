//! Downloads Debian's source package of Erlang with apt, without changing the system.
//!
//! apt is given source lists that are derived from the system's, and separate folders for everything that it writes. So it does
//! not need root, and the system's lists stay unchanged and need no `deb-src` entries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::source::tarball_url;
use crate::work::{Work, stdout_of};

/// apt's source lists.
const LIST: &str = "/etc/apt/sources.list";
const PARTS: &str = "/etc/apt/sources.list.d";
/// Maximum size of a source list; larger files are ignored.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Name of the source package.
const PACKAGE: &str = "erlang";

/// Source lists, in the two formats that apt reads (sources.list(5)).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// One-line format.
    pub(crate) lines: String,
    /// deb822 format.
    pub(crate) stanzas: String,
}

impl Lists {
    /// Derives the `deb-src` entries from source lists, which are given as names and contents.
    pub(crate) fn of<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Lists {
        let mut lists = Lists::default();
        for (name, content) in files {
            if name.ends_with(".sources") {
                content.split("\n\n").filter_map(stanza).for_each(|text| lists.stanzas.push_str(&text));
            } else {
                for line in content.lines().filter_map(entry) {
                    if !lists.lines.contains(&line) {
                        lists.lines.push_str(&line);
                    }
                }
            }
        }
        lists
    }
}

/// Converts `deb [options] URI suite components` to the same line with `deb-src`.
fn entry(line: &str) -> Option<String> {
    let (kind, rest) = line.trim().split_once(char::is_whitespace)?;
    matches!(kind, "deb" | "deb-src").then(|| format!("deb-src {}\n", rest.trim()))
}

/// Returns a stanza with `deb-src` as its type; `None` if the stanza is disabled or has no types.
fn stanza(text: &str) -> Option<String> {
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
    let field = |name: &str| {
        let values = lines.iter().filter_map(|line| line.split_once(':'));
        let mut values = values.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    };
    field("Types")?;
    if field("Enabled")
        .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "no" | "false" | "off" | "0"))
    {
        return None;
    }
    let is_types =
        |line: &str| line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("Types"));
    let lines = lines.iter().map(|line| if is_types(line) { "Types: deb-src" } else { line });
    Some(format!("{}\n\n", lines.collect::<Vec<_>>().join("\n")))
}

/// Returns the version of the source package from which an installed file was built: `1:25.2.3+dfsg-1+deb12u1`.
pub fn version_of(file: &Path) -> Option<String> {
    // dpkg knows files by their paths without links. A file below /proc belongs to a container with its own dpkg.
    let real = if file.starts_with("/proc") { None } else { fs::canonicalize(file).ok() }?;
    let owner = stdout_of(Command::new("dpkg-query").arg("-S").arg(real))?;
    let package = owner.split(':').next()?;
    let output = stdout_of(Command::new("dpkg-query").args([
        "-W",
        "-f",
        "${source:Package} ${source:Version}",
        package,
    ]))?;
    let (source, version) = output.split_once(' ')?;
    (source == PACKAGE && is_version(version)).then(|| version.to_owned())
}

/// Downloads and unpacks the source package; returns its folder and version. Without a version, uses the newest package of the
/// given OTP version.
pub(crate) fn fetch(
    work: &mut Work<'_>,
    version: Option<&str>,
    otp: Option<&str>,
    into: &Path,
) -> Result<(PathBuf, String), Error> {
    let apt = Apt::new(into)?;
    // A list or server that fails does not matter if another one has the source.
    let updated = work.try_run(apt.command("apt-get").args(["-q", "update"]))?;
    let known =
        stdout_of(apt.command("apt-cache").args(["showsrc", "--only-source", PACKAGE])).unwrap_or_default();
    let known = versions(&known);
    let Some(chosen) = chosen(&known, version, otp, is_newer).cloned() else {
        let wanted = version.or(otp).unwrap_or("(unknown version; name it with --otp)");
        let found = match (known.as_slice(), updated) {
            ([], Some(_)) => {
                let failed = work.failed("apt-get update", "it found no sources".to_owned());
                return Err(or_own_source(failed, otp));
            }
            ([], None) => "they have no version of it".to_owned(),
            (known, _) => format!("available: {}", known.join(", ")),
        };
        return Err(Error::Debian(format!(
            "the archives in {LIST} and {PARTS} have no source of {PACKAGE} {wanted}: {found}. Upgrade Erlang to an available version, or \
             name OTP's own source with --source"
        )));
    };
    let folder = into.join("source");
    fs::create_dir(&folder).map_err(|source| Error::io(&folder, source))?;
    let mut source = apt.command("apt-get");
    source.args(["-q", "--only-source", "source", &format!("{PACKAGE}={chosen}")]).current_dir(&folder);
    work.run(&format!("apt-get source {PACKAGE}={chosen}"), &mut source)
        .map_err(|error| or_own_source(error, Some(upstream(&chosen))))?;
    let entries = fs::read_dir(&folder).map_err(|source| Error::io(&folder, source))?;
    let mut folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let root = folders.find(|path| path.join("erts/vsn.mk").is_file());
    let root = root
        .ok_or(Error::NotASource { path: folder, why: "apt-get source left no folder with erts/vsn.mk" })?;
    Ok((root, chosen))
}

/// Adds to an error from apt what to do if Debian's source is not available.
fn or_own_source(error: Error, otp: Option<&str>) -> Error {
    match error {
        Error::Step { what, how, last, log } => {
            let own = otp.map_or_else(|| "OTP's own source".to_owned(), tarball_url);
            let last = format!(
                "{last}\nif Debian's archive is not reachable or lacks this version: download {own} and name it with --source"
            );
            Error::Step { what, how, last, log }
        }
        other => other,
    }
}

/// An apt that uses separate folders.
struct Apt {
    root: PathBuf,
}

impl Apt {
    fn new(into: &Path) -> Result<Apt, Error> {
        let root = into.join("apt");
        for folder in ["parts", "lists/partial", "cache/archives/partial"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
        }
        let files = list_files();
        let lists = Lists::of(files.iter().map(|(name, content)| (name.as_str(), content.as_str())));
        for (name, content) in [("sources.list", &lists.lines), ("parts/all.sources", &lists.stanzas)] {
            let file = root.join(name);
            fs::write(&file, content).map_err(|source| Error::io(&file, source))?;
        }
        Ok(Apt { root })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folders = [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::Etc::SourceParts", "parts"),
            ("Dir::State::Lists", "lists"),
            ("Dir::Cache", "cache"),
        ];
        for (option, name) in folders {
            command.arg("-o").arg(format!("{option}={}", self.root.join(name).display()));
        }
        command
            .args(["-o", "Acquire::Languages=none"])
            // By default, an unreachable server is only a warning. Lists from other servers are still used.
            .args(["-o", "APT::Update::Error-Mode=any"])
            .env("LC_ALL", "C.UTF-8");
        command
    }
}

/// Reads apt's source lists as names and contents, without those that are unreadable or too large.
fn list_files() -> Vec<(String, String)> {
    let parts = fs::read_dir(PARTS).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut parts: Vec<PathBuf> =
        parts.filter(|path| path.extension().is_some_and(|it| it == "list" || it == "sources")).collect();
    parts.sort();
    let read = |path: PathBuf| {
        let is_small = fs::metadata(&path).is_ok_and(|it| it.is_file() && it.len() <= MAX_LIST_BYTES);
        let content = is_small.then(|| fs::read_to_string(&path).ok()).flatten()?;
        Some((path.display().to_string(), content))
    };
    [PathBuf::from(LIST)].into_iter().chain(parts).filter_map(read).collect()
}

/// Returns the versions in the output of `apt-cache showsrc`, in the same order, without duplicates.
fn versions(text: &str) -> Vec<String> {
    let values = text.lines().filter_map(|line| line.strip_prefix("Version:").map(str::trim));
    let mut found: Vec<String> = Vec::new();
    for version in values.filter(|version| is_version(version)) {
        if !found.iter().any(|known| known == version) {
            found.push(version.to_owned());
        }
    }
    found
}

/// Returns the version to build: exactly the given one, or else the newest one of the same OTP version. (Archives drop a package
/// version as soon as a patched one exists.) The ERTS version of the source is checked later.
fn chosen<'v>(
    known: &'v [String],
    version: Option<&str>,
    otp: Option<&str>,
    is_newer: impl Fn(&str, &str) -> bool,
) -> Option<&'v String> {
    let same = known.iter().find(|known| Some(known.as_str()) == version);
    let otp = version.map(upstream).or(otp)?;
    let alike = known.iter().filter(|known| upstream(known) == otp);
    same.or_else(|| alike.reduce(|best, next| if is_newer(next, best) { next } else { best }))
}

/// Returns whether one version is newer than the other, by dpkg's rules.
fn is_newer(one: &str, other: &str) -> bool {
    let compared = Command::new("dpkg").args(["--compare-versions", one, "gt", other]).status();
    compared.is_ok_and(|status| status.success())
}

/// Returns the OTP version that Debian has packaged: `1:25.2.3+dfsg-1+deb12u1` → `25.2.3`.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(rest, _)| rest);
    version.split_once('+').map_or(version, |(rest, _)| rest)
}

/// Returns whether a text is a package version and nothing else (deb-version(7)).
fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".+-:~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_lists_are_derived_from_package_lists() {
        let lines = "# deb http://x y z\ndeb http://deb.debian.org/debian bookworm main\n\ndeb [arch=amd64 signed-by=/k]  http://x y z\n\
                     deb-src http://deb.debian.org/debian bookworm main\n";
        let stanzas = "Types: deb\n# a comment\nURIs: http://deb.debian.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
                       Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n\n\n\
                       Enabled: no\nTypes: deb\nURIs: http://off\n\n# only a comment\n\nTYPES: deb deb-src\nURIs: http://security\n";
        let lists = Lists::of([
            ("/etc/apt/sources.list", lines),
            ("/etc/apt/sources.list.d/debian.sources", stanzas),
        ]);
        let expect = Lists {
            lines: "deb-src http://deb.debian.org/debian bookworm main\ndeb-src [arch=amd64 signed-by=/k]  http://x y z\n".to_owned(),
            stanzas: "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
                      Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n\nTypes: deb-src\nURIs: http://security\n\n"
                .to_owned(),
        };
        assert_eq!(lists, expect);
    }

    #[test]
    fn upstream_version_is_parsed() {
        let check = |version, expect| assert_eq!(upstream(version), expect);
        check("1:25.2.3+dfsg-1+deb12u1", "25.2.3");
        check("1:27.3.4.1+dfsg-1+deb13u1", "27.3.4.1");
        check("1:23.2.6+dfsg-1+deb11u1", "23.2.6");
        check("28.0-1", "28.0");
    }

    #[test]
    fn exact_version_is_preferred_to_the_newest_of_the_same_otp() {
        let known =
            ["1:25.2.3+dfsg-1", "1:25.2.3+dfsg-1+deb12u4", "1:25.2.3+dfsg-1+deb12u1", "1:27.3+dfsg-1"];
        let known = known.map(str::to_owned);
        let check = |version, otp, expect| {
            let found = chosen(&known, version, otp, |one, other| one > other);
            assert_eq!(found.map(String::as_str), expect, "{version:?} {otp:?}");
        };
        check(Some("1:25.2.3+dfsg-1"), None, Some("1:25.2.3+dfsg-1"));
        check(Some("1:25.2.3+dfsg-1+deb12u3"), Some("25.2.3"), Some("1:25.2.3+dfsg-1+deb12u4"));
        check(None, Some("27.3"), Some("1:27.3+dfsg-1"));
        check(Some("1:25.2.2+dfsg-1"), None, None);
        check(None, Some("25.2"), None);
        check(None, None, None);
    }

    #[test]
    fn otps_own_source_is_named_if_debians_is_not_available() {
        let failed = Error::Step {
            what: "apt-get source".to_owned(),
            how: "1".to_owned(),
            last: "404".to_owned(),
            log: None,
        };
        let text = or_own_source(failed, Some("29.1.2")).to_string();
        assert!(
            text.contains("404\n") && text.contains("otp_src_29.1.2.tar.gz and name it with --source"),
            "{text}"
        );
        assert!(matches!(or_own_source(Error::Cancelled, None), Error::Cancelled));
    }

    #[test]
    fn versions_are_listed_once() {
        let text = "Package: erlang\nVersion: 1:25.2.3+dfsg-1\nStandards-Version: 4\n\nPackage: erlang\nVersion: 1:25.2.3+dfsg-1+deb12u1\n\
                    Version: 1:25.2.3+dfsg-1\nVersion: $(x)\n";
        assert_eq!(versions(text), ["1:25.2.3+dfsg-1", "1:25.2.3+dfsg-1+deb12u1"]);
    }
}
