//! OTP sources: a folder, a tarball, or Debian's source package. They are unpacked into the folder of the build.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian;
use crate::error::Error;
use crate::installation::line;
use crate::kind::is_version;
use crate::needs::Unpack;
use crate::recipe::{Layout, Stage};
use crate::work::Work;

/// Where an OTP source comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A source folder, which is copied, not changed.
    Folder(PathBuf),
    /// A tarball such as `otp_src_25.2.3.tar.gz`.
    Tarball(PathBuf),
    /// Debian's source package `erlang`.
    Debian {
        /// Its version, such as `1:25.2.3+dfsg-1+deb12u1`; `None` for the newest package of the needed OTP version.
        version: Option<String>,
    },
}

/// An unpacked source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Its folder.
    pub root: PathBuf,
    /// Version of its ERTS.
    pub erts: String,
    /// Version of OTP, if `OTP_VERSION` exists.
    pub otp: Option<String>,
    /// Its layout.
    pub layout: Layout,
}

impl Source {
    /// Parses the argument of `--source`: `debian`, a folder, or a file.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn parse(text: &str) -> Result<Source, Error> {
        if text == "debian" {
            return Ok(Source::Debian { version: None });
        }
        let path = std::path::absolute(text).map_err(|source| Error::io(Path::new(text), source))?;
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(Source::Folder(path)),
            Ok(_) => Ok(Source::Tarball(path)),
            Err(why) => Err(Error::Usage(format!(
                "{}: {why}; a source is a folder or a tarball with OTP's source, or the word debian",
                path.display()
            ))),
        }
    }

    /// Returns how the source is unpacked.
    pub fn unpack(&self) -> Unpack {
        match self {
            Source::Folder(_) => Unpack::Nothing,
            Source::Tarball(file) => Unpack::Tar { xz: file.extension().is_some_and(|it| it == "xz") },
            Source::Debian { .. } => Unpack::DebianSource,
        }
    }

    /// Returns the first stage of a build from this source.
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Source::Debian { .. } => Stage::Fetching,
            _ => Stage::Unpacking,
        }
    }

    /// Puts the source into the empty folder `into`. Also returns a description of the source for the manifest.
    pub(crate) fn fetch(
        &self,
        work: &mut Work<'_>,
        otp: Option<&str>,
        into: &Path,
    ) -> Result<(Tree, String), Error> {
        let root = into.join("otp");
        fs::create_dir(&root).map_err(|source| Error::io(&root, source))?;
        match self {
            Source::Folder(folder) => {
                // An unusable folder is an error before anything is copied.
                Tree::at(folder)?;
                copy(work, folder, &root, true)?;
                Ok((Tree::at(&root)?, folder.display().to_string()))
            }
            Source::Tarball(file) => {
                let mut tar = Command::new("tar");
                tar.arg("-xf").arg(file).arg("-C").arg(&root).arg("--strip-components=1");
                work.run(&format!("unpacking {}", file.display()), &mut tar)?;
                let tree = Tree::at(&root).map_err(|error| of_file(error, file))?;
                Ok((tree, file.display().to_string()))
            }
            Source::Debian { version } => {
                let (root, version) = debian::fetch(work, version.as_deref(), otp, into)?;
                Ok((Tree::at(&root)?, format!("Debian's erlang {version}")))
            }
        }
    }
}

/// Names the tarball in an error instead of the folder that it was unpacked to.
fn of_file(error: Error, file: &Path) -> Error {
    match error {
        Error::NotASource { why, .. } => Error::NotASource { path: file.to_owned(), why },
        other => other,
    }
}

impl Tree {
    /// Reads the properties of the source in a folder.
    ///
    /// # Errors
    /// If the folder is not a source that can be built.
    pub fn at(root: &Path) -> Result<Tree, Error> {
        let no = |why| Error::NotASource { path: root.to_owned(), why };
        let versions = fs::read_to_string(root.join("erts/vsn.mk"));
        let versions = versions.map_err(|_| no("it has no file erts/vsn.mk"))?;
        let erts = erts_version(&versions).ok_or_else(|| no("its erts/vsn.mk has no VSN"))?;
        if !root.join("erts/configure").is_file() {
            return Err(no(
                "it has no erts/configure (a git checkout of an old release); use the release's tarball, or run ./otp_build autoconf there",
            ));
        }
        let otp = line(&root.join("OTP_VERSION")).map(|line| line.trim_end_matches('*').to_owned());
        Ok(Tree {
            root: root.to_owned(),
            erts,
            otp: otp.filter(|otp| is_version(otp)),
            layout: Layout { make_configure: root.join("make/configure").is_file() },
        })
    }

    /// Formats its versions for output: `ERTS 13.1.5 (OTP 25.2.3)`.
    pub fn version(&self) -> String {
        version(Some(&self.erts), self.otp.as_deref())
    }

    /// Checks that the source has these versions, if they are known. `what` names the source in the error.
    ///
    /// # Errors
    /// If a version differs.
    pub fn verify(&self, what: &str, erts: Option<&str>, otp: Option<&str>) -> Result<(), Error> {
        let differs = |wanted: Option<&str>, found: Option<&str>| {
            wanted.zip(found).is_some_and(|(wanted, found)| wanted != found)
        };
        // Only the ERTS version matters, and several OTP versions can have the same one. If it is unknown, compare the OTP
        // version.
        let other =
            if erts.is_some() { differs(erts, Some(&self.erts)) } else { differs(otp, self.otp.as_deref()) };
        if !other {
            return Ok(());
        }
        let next = match otp {
            Some(otp) => format!("use {}", tarball_url(otp)),
            None => "use the source of exactly the OTP that the target was built from".to_owned(),
        };
        let next = format!("{next}, or name another target with --for or --otp");
        Err(Error::WrongVersion {
            what: what.to_owned(),
            found: self.version(),
            wanted: version(erts, otp),
            next,
        })
    }
}

/// Returns the address of OTP's own source tarball.
pub fn tarball_url(otp: &str) -> String {
    format!("https://github.com/erlang/otp/releases/download/OTP-{otp}/otp_src_{otp}.tar.gz")
}

/// Formats versions for output.
pub fn version(erts: Option<&str>, otp: Option<&str>) -> String {
    match (erts, otp) {
        (Some(erts), Some(otp)) => format!("ERTS {erts} (OTP {otp})"),
        (Some(erts), None) => format!("ERTS {erts}"),
        (None, Some(otp)) => format!("OTP {otp}"),
        (None, None) => "any version".to_owned(),
    }
}

/// Returns the version in the line `VSN = 13.1.5` of erts/vsn.mk.
fn erts_version(text: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once('='));
    let mut found = values.filter(|(name, _)| name.trim() == "VSN").map(|(_, value)| value.trim());
    found.next().filter(|version| is_version(version)).map(str::to_owned)
}

/// Copies a source folder, except for build results and `.git`, which make up most of its size.
fn copy(work: &mut Work<'_>, from: &Path, to: &Path, is_top: bool) -> Result<(), Error> {
    work.check_cancelled()?;
    let entries = fs::read_dir(from).map_err(|source| Error::io(from, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| Error::io(from, source))?;
        let (name, path) = (entry.file_name(), entry.path());
        let kind = entry.file_type().map_err(|source| Error::io(&path, source))?;
        let new = to.join(&name);
        // Object files, and generated files in one folder per architecture (`erts/x86_64-pc-linux-gnu`).
        let is_built = name == "obj" || name.to_string_lossy().contains("-linux-");
        let is_results = is_top && (name == "bin" || name == "release");
        if kind.is_dir() && (is_built || is_results || name == ".git") {
            continue;
        }
        let copied = if kind.is_dir() {
            fs::create_dir(&new).map_err(|source| Error::io(&new, source))?;
            copy(work, &path, &new, false)?;
            Ok(())
        } else if kind.is_symlink() {
            fs::read_link(&path).and_then(|target| symlink(target, &new))
        } else if kind.is_file() {
            fs::copy(&path, &new).map(drop)
        } else {
            Ok(())
        };
        copied.map_err(|source| Error::io(&new, source))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::installation::tests::file;
    use crate::work::tests::CancelAfter;

    /// Creates a folder that looks like a source of OTP 25.2.3.
    pub(crate) fn source() -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        file(&at("OTP_VERSION"), b"25.2.3\n");
        file(
            &at("erts/vsn.mk"),
            b"# %CopyrightBegin%\n\nVSN = 13.1.5\n\n# Port number 4365 in 4.2\nSYSTEM_VSN = 25\n",
        );
        file(&at("erts/configure"), b"#!/bin/sh\n");
        file(&at("make/configure"), b"#!/bin/sh\n");
        folder
    }

    #[test]
    fn versions_are_read_from_a_source() {
        let folder = source();
        let tree = Tree::at(folder.path()).expect("a source");
        assert_eq!(tree.version(), "ERTS 13.1.5 (OTP 25.2.3)");
        assert!(tree.layout.make_configure);
        fs::remove_file(folder.path().join("erts/configure")).expect("removed");
        let error = Tree::at(folder.path()).expect_err("no configure").to_string();
        assert!(error.contains("otp_build autoconf"), "{error}");
        fs::remove_file(folder.path().join("erts/vsn.mk")).expect("removed");
        assert!(Tree::at(folder.path()).is_err());
    }

    #[test]
    fn erts_version_is_parsed_from_its_line() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(erts_version(text).as_deref(), expect, "{text}");
        check("VSN = 13.1.5\nSYSTEM_VSN = 25\n", Some("13.1.5"));
        check("SYSTEM_VSN = 25\nVSN=17.1.1", Some("17.1.1"));
        check("SYSTEM_VSN = 25\n", None);
        check("VSN = $(x)\n", None);
    }

    #[test]
    fn a_wrong_version_is_refused_with_both_versions() {
        let folder = source();
        let tree = Tree::at(folder.path()).expect("a source");
        let check = |erts: Option<&str>, otp: Option<&str>, expect: Option<&str>| {
            let error = tree.verify("x.tar.gz", erts, otp).err().map(|error| error.to_string());
            match (&error, expect) {
                (None, None) => {}
                (Some(error), Some(expect)) => assert!(error.contains(expect), "{error}"),
                _ => panic!("{error:?} for {erts:?} {otp:?}"),
            }
        };
        check(Some("13.1.5"), Some("25.2.3"), None);
        check(None, Some("25.2.3"), None);
        check(None, None, None);
        // Another OTP version with the same ERTS version.
        check(Some("13.1.5"), Some("25.2.2"), None);
        let error = "x.tar.gz is ERTS 13.1.5 (OTP 25.2.3), but exactly ERTS 15.2.7 (OTP 27.3.4.1) is needed";
        check(Some("15.2.7"), Some("27.3.4.1"), Some(error));
        check(None, Some("27.3.4.1"), Some("OTP-27.3.4.1/otp_src_27.3.4.1.tar.gz"));
        check(Some("15.2.7"), None, Some("exactly the OTP"));
    }

    #[test]
    fn a_copy_omits_build_results_and_leaves_the_folder_unchanged() {
        let (from, to) = (source(), tempfile::tempdir().expect("a folder"));
        file(&from.path().join("erts/emulator/obj/x86_64/beam.o"), b"x");
        file(&from.path().join(".git/config"), b"x");
        file(&from.path().join("bin/x86_64/beam.smp"), b"x");
        file(&from.path().join("lib/kernel/bin/x"), b"x");
        file(&from.path().join("erts/emulator/x86_64-pc-linux-gnu/lcnt/preload.c"), b"x");
        symlink("vsn.mk", from.path().join("erts/link")).expect("a link");
        let mut watch = CancelAfter(1000);
        let log = to.path().join("log");
        let mut work = Work::new(&mut watch, to.path(), log, Stage::Unpacking);
        let (tree, description) =
            Source::Folder(from.path().to_owned()).fetch(&mut work, None, to.path()).expect("copied");
        assert_eq!((tree.erts.as_str(), description), ("13.1.5", from.path().display().to_string()));
        let is_there = |name: &str| tree.root.join(name).symlink_metadata().is_ok();
        assert!(is_there("erts/link") && is_there("lib/kernel/bin/x"));
        for omitted in ["erts/emulator/obj", "erts/emulator/x86_64-pc-linux-gnu", ".git", "bin"] {
            assert!(!is_there(omitted), "{omitted}");
        }
    }

    #[test]
    fn a_source_is_parsed_as_debian_folder_or_tarball() {
        let folder = source();
        assert_eq!(Source::parse("debian").expect("known"), Source::Debian { version: None });
        let text = folder.path().display().to_string();
        assert_eq!(Source::parse(&text).expect("a folder"), Source::Folder(folder.path().to_owned()));
        let file = folder.path().join("OTP_VERSION");
        let parsed = Source::parse(&file.display().to_string()).expect("a file");
        assert_eq!(parsed.unpack(), Unpack::Tar { xz: false });
        let error = Source::parse("/none/otp_src.tar.gz").expect_err("it is not there").to_string();
        assert!(error.contains("or the word debian"), "{error}");
    }
}
