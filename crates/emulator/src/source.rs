//! Sources of OTP: a folder, a tarball, or Debian's source package; unpacked into a folder of the build's own, and of which version.

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

/// Where a source comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder with a source; it stays as it is.
    Folder(PathBuf),
    /// A tarball, as OTP's own `otp_src_25.2.3.tar.gz`.
    Tarball(PathBuf),
    /// Debian's source package `erlang`.
    Debian {
        /// Its version: `1:25.2.3+dfsg-1+deb12u1`; `None`: that whose upstream version is the OTP that is wanted.
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
    /// Version of OTP, where it tells.
    pub otp: Option<String>,
    /// What it has.
    pub layout: Layout,
}

impl Source {
    /// What is meant by a word on a command line: `debian`, a folder, or a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn parse(text: &str) -> Result<Source, Error> {
        if text == "debian" {
            return Ok(Source::Debian { version: None });
        }
        let path = std::path::absolute(text).map_err(|source| Error::io(Path::new(text), source))?;
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(Source::Folder(path)),
            Ok(_) => Ok(Source::Tarball(path)),
            Err(why) => Err(Error::Usage(format!(
                "{}: {why}; a source is a folder or a tarball with that of OTP, or the word debian",
                path.display()
            ))),
        }
    }

    /// What unpacking it needs.
    pub fn unpack(&self) -> Unpack {
        match self {
            Source::Folder(_) => Unpack::Nothing,
            Source::Tarball(file) => Unpack::Tar { xz: file.extension().is_some_and(|it| it == "xz") },
            Source::Debian { .. } => Unpack::DebianSource,
        }
    }

    /// What is done first to get it.
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Source::Debian { .. } => Stage::Fetching,
            _ => Stage::Unpacking,
        }
    }

    /// Puts the source into the folder `into`, which is empty; what it was is told for the cache's list.
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
                // Before anything is copied.
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

/// The user knows the tarball, not where it was unpacked.
fn of_file(error: Error, file: &Path) -> Error {
    match error {
        Error::NotASource { why, .. } => Error::NotASource { path: file.to_owned(), why },
        other => other,
    }
}

impl Tree {
    /// Looks at a folder.
    ///
    /// # Errors
    /// If it holds no source that can be built.
    pub fn at(root: &Path) -> Result<Tree, Error> {
        let no = |why| Error::NotASource { path: root.to_owned(), why };
        let versions = fs::read_to_string(root.join("erts/vsn.mk"));
        let versions = versions.map_err(|_| no("it has no file erts/vsn.mk"))?;
        let erts = erts_version(&versions).ok_or_else(|| no("its erts/vsn.mk names no VSN"))?;
        if !root.join("erts/configure").is_file() {
            return Err(no(
                "it has no erts/configure, as a checkout of an old release; take the release's tarball, or run ./otp_build autoconf there",
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

    /// The version, for people: `ERTS 13.1.5 (OTP 25.2.3)`.
    pub fn version(&self) -> String {
        version(Some(&self.erts), self.otp.as_deref())
    }

    /// That it is of these versions, where they are known.
    ///
    /// # Errors
    /// If it is of another one; with both named.
    pub fn verify(&self, what: &str, erts: Option<&str>, otp: Option<&str>) -> Result<(), Error> {
        let differs = |wanted: Option<&str>, found: Option<&str>| {
            wanted.zip(found).is_some_and(|(wanted, found)| wanted != found)
        };
        // The emulator is ERTS; an OTP of another version can have the very same one. Without that, OTP's version decides.
        let other =
            if erts.is_some() { differs(erts, Some(&self.erts)) } else { differs(otp, self.otp.as_deref()) };
        if !other {
            return Ok(());
        }
        let next = match otp {
            Some(otp) => format!("take {}", tarball_url(otp)),
            None => "take the source of the very OTP that the target was built of".to_owned(),
        };
        let next = format!("{next}, or say with --for or --otp that something else is meant");
        Err(Error::WrongVersion {
            what: what.to_owned(),
            found: self.version(),
            wanted: version(erts, otp),
            next,
        })
    }
}

/// Where OTP's own source of a version is.
pub fn tarball_url(otp: &str) -> String {
    format!("https://github.com/erlang/otp/releases/download/OTP-{otp}/otp_src_{otp}.tar.gz")
}

/// Versions, for people.
pub fn version(erts: Option<&str>, otp: Option<&str>) -> String {
    match (erts, otp) {
        (Some(erts), Some(otp)) => format!("ERTS {erts} (OTP {otp})"),
        (Some(erts), None) => format!("ERTS {erts}"),
        (None, Some(otp)) => format!("OTP {otp}"),
        (None, None) => "any version".to_owned(),
    }
}

/// The line `VSN = 13.1.5` of erts/vsn.mk.
fn erts_version(text: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once('='));
    let mut found = values.filter(|(name, _)| name.trim() == "VSN").map(|(_, value)| value.trim());
    found.next().filter(|version| is_version(version)).map(str::to_owned)
}

/// Copies a source without what an earlier build or a version control has left there: only that makes it large.
fn copy(work: &mut Work<'_>, from: &Path, to: &Path, is_top: bool) -> Result<(), Error> {
    work.look()?;
    let entries = fs::read_dir(from).map_err(|source| Error::io(from, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| Error::io(from, source))?;
        let (name, path) = (entry.file_name(), entry.path());
        let kind = entry.file_type().map_err(|source| Error::io(&path, source))?;
        let new = to.join(&name);
        // Objects, and what was made of templates: a folder each per machine (`erts/x86_64-pc-linux-gnu`).
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
    use crate::work::tests::Looks;

    /// A folder that looks like a source of OTP 25.2.3.
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
    fn a_source_says_its_versions() {
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
    fn the_version_of_erts_is_that_of_its_line() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(erts_version(text).as_deref(), expect, "{text}");
        check("VSN = 13.1.5\nSYSTEM_VSN = 25\n", Some("13.1.5"));
        check("SYSTEM_VSN = 25\nVSN=17.1.1", Some("17.1.1"));
        check("SYSTEM_VSN = 25\n", None);
        check("VSN = $(x)\n", None);
    }

    #[test]
    fn a_source_of_another_version_is_refused_with_both_named() {
        let folder = source();
        let tree = Tree::at(folder.path()).expect("a source");
        let check = |erts: Option<&str>, otp: Option<&str>, expect: Option<&str>| {
            let told = tree.verify("x.tar.gz", erts, otp).err().map(|error| error.to_string());
            match (&told, expect) {
                (None, None) => {}
                (Some(told), Some(expect)) => assert!(told.contains(expect), "{told}"),
                _ => panic!("{told:?} for {erts:?} {otp:?}"),
            }
        };
        check(Some("13.1.5"), Some("25.2.3"), None);
        check(None, Some("25.2.3"), None);
        check(None, None, None);
        // The emulator is the same.
        check(Some("13.1.5"), Some("25.2.2"), None);
        let told = "x.tar.gz is ERTS 13.1.5 (OTP 25.2.3), but what is wanted is ERTS 15.2.7 (OTP 27.3.4.1)";
        check(Some("15.2.7"), Some("27.3.4.1"), Some(told));
        check(None, Some("27.3.4.1"), Some("OTP-27.3.4.1/otp_src_27.3.4.1.tar.gz"));
        check(Some("15.2.7"), None, Some("the very OTP"));
    }

    #[test]
    fn a_copy_leaves_out_what_was_built_and_leaves_the_folder_as_it_is() {
        let (from, to) = (source(), tempfile::tempdir().expect("a folder"));
        file(&from.path().join("erts/emulator/obj/x86_64/beam.o"), b"x");
        file(&from.path().join(".git/config"), b"x");
        file(&from.path().join("bin/x86_64/beam.smp"), b"x");
        file(&from.path().join("lib/kernel/bin/x"), b"x");
        file(&from.path().join("erts/emulator/x86_64-pc-linux-gnu/lcnt/preload.c"), b"x");
        symlink("vsn.mk", from.path().join("erts/link")).expect("a link");
        let mut watch = Looks(1000);
        let log = to.path().join("log");
        let mut work = Work::new(&mut watch, to.path(), log, Stage::Unpacking);
        let (tree, told) =
            Source::Folder(from.path().to_owned()).fetch(&mut work, None, to.path()).expect("copied");
        assert_eq!((tree.erts.as_str(), told), ("13.1.5", from.path().display().to_string()));
        let is_there = |name: &str| tree.root.join(name).symlink_metadata().is_ok();
        assert!(is_there("erts/link") && is_there("lib/kernel/bin/x"));
        for left in ["erts/emulator/obj", "erts/emulator/x86_64-pc-linux-gnu", ".git", "bin"] {
            assert!(!is_there(left), "{left}");
        }
    }

    #[test]
    fn a_word_means_debian_a_folder_or_a_tarball() {
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
