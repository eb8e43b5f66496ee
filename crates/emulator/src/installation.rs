//! Which installation of Erlang a command or a folder means, and where its emulator is.
//!
//! An installation is a folder with `erts-VERSION/bin`: that of a whole Erlang (`/usr/lib/erlang`), or of a release that brings its own
//! ERTS.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::kind::{Type, is_version, release_of};

/// Files with a version in them are a line long.
const MOST_LINE_BYTES: usize = 200;
/// A command of a release stands at most so many folders below it: `releases/VERSION/elixir`.
const MOST_FOLDERS_BELOW: usize = 3;

/// An installation of Erlang, or a release with an ERTS of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Its folder.
    pub root: PathBuf,
    /// The folder of its programs: `ROOT/erts-13.1.5/bin`.
    pub bin: PathBuf,
    /// Version of ERTS, by that folder's name.
    pub erts: String,
    /// Version of OTP, where a file tells it; releases have none.
    pub otp: Option<String>,
    /// Whether it is a release: it has no `bin/erl`.
    pub is_release: bool,
}

impl Installation {
    /// The one in a folder.
    ///
    /// # Errors
    /// If there is none, or several of which nothing tells which is meant.
    pub fn at(root: &Path) -> Result<Installation, Error> {
        let no = |why: String| Error::NoInstallation { path: root.to_owned(), why };
        let root = std::path::absolute(root).map_err(|source| Error::io(root, source))?;
        let entries = fs::read_dir(&root).map_err(|source| Error::io(&root, source))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let versions = names.filter_map(|name| name.strip_prefix("erts-").map(str::to_owned));
        let bin = |erts: &str| root.join(format!("erts-{erts}/bin"));
        let mut versions: Vec<String> =
            versions.filter(|erts| is_version(erts) && bin(erts).join(Type::Opt.file()).is_file()).collect();
        if versions.len() > 1 {
            // A release that was upgraded keeps those before; the file says which one is started.
            let started = line(&root.join("releases/start_erl.data"));
            let started = started.as_deref().and_then(|line| line.split_whitespace().next());
            versions.retain(|erts| Some(erts.as_str()) == started);
        }
        let erts = match versions.as_slice() {
            [erts] => erts.clone(),
            [] => return Err(no("it has no folder erts-VERSION with bin/beam.smp".to_owned())),
            _ => return Err(no(format!("it has several: {}", versions.join(", ")))),
        };
        let told = |release: u32| line(&root.join(format!("releases/{release}/OTP_VERSION")));
        // A version that was patched where it was built ends in "**" (System Principles, Versions).
        let otp = release_of(&erts).and_then(told).map(|line| line.trim_end_matches('*').to_owned());
        Ok(Installation {
            bin: bin(&erts),
            otp: otp.filter(|otp| is_version(otp)),
            is_release: fs::symlink_metadata(root.join("bin/erl")).is_err(),
            erts,
            root,
        })
    }

    /// The one that a command uses: that of the release which it is part of, else that of the `erl` in `search`, a PATH.
    ///
    /// # Errors
    /// If there is no `erl`, or its installation cannot be found.
    pub fn of_command(program: &OsStr, search: Option<&OsStr>) -> Result<Installation, Error> {
        if let Some(installation) = find(program, search).and_then(|file| Installation::around(&file)) {
            return Ok(installation);
        }
        let erl = find(OsStr::new("erl"), search).ok_or(Error::NoErl)?;
        if let Some(installation) = Installation::around(&erl) {
            return Ok(installation);
        }
        // A version manager's, which is a script that chooses one.
        let eval = "io:put_chars(code:root_dir()), halt().";
        let mut ask = Command::new(&erl);
        ask.args(["-boot", "start_clean", "-noshell", "-noinput", "-eval", eval]).stdin(Stdio::null());
        let start = |why| Error::Start { program: erl.display().to_string(), why };
        let told = ask.output().map_err(start)?;
        match told.stdout.trim_ascii() {
            b"" => Err(Error::SilentErl {
                erl,
                how: told.status.to_string(),
                told: last_line(&told.stderr).unwrap_or_else(|| "it said nothing".to_owned()),
            }),
            folder => Installation::at(Path::new(OsStr::from_bytes(folder))),
        }
    }

    /// The one that a file is part of.
    fn around(file: &Path) -> Option<Installation> {
        let file = fs::canonicalize(file).ok()?;
        file.ancestors().skip(1).take(MOST_FOLDERS_BELOW).find_map(|folder| Installation::at(folder).ok())
    }

    /// The emulator that it runs.
    pub fn emulator(&self) -> PathBuf {
        self.bin.join(Type::Opt.file())
    }

    /// A boot file that starts kernel and stdlib and no more, without its suffix; or one that starts more.
    pub fn boot(&self) -> Option<PathBuf> {
        boot(&self.root)
    }
}

/// The boot file of a folder with libraries.
pub(crate) fn boot(root: &Path) -> Option<PathBuf> {
    let releases = fs::read_dir(root.join("releases")).into_iter().flatten().flatten();
    let of_releases = releases.map(|entry| entry.path().join("start_clean"));
    let known = ["bin/start_clean", "bin/start"].map(|name| root.join(name));
    known.into_iter().chain(of_releases).find(|file| file.with_extension("boot").is_file())
}

/// The last line that has something in it.
fn last_line(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(last.chars().take(MOST_LINE_BYTES).collect())
}

/// The first line of a small file.
pub(crate) fn line(path: &Path) -> Option<String> {
    let content = fs::read(path).ok()?;
    let line = content.split(|byte| *byte == b'\n').next()?;
    let line = str::from_utf8(line.get(..line.len().min(MOST_LINE_BYTES))?).ok()?;
    Some(line.trim().to_owned())
}

/// Where a command is: as it stands if it is a path, else in `search`.
pub(crate) fn find(program: &OsStr, search: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    std::env::split_paths(search?).map(|folder| folder.join(program)).find(is_program)
}

/// The PATH that commands are looked for in.
pub fn search_path() -> Option<OsString> {
    std::env::var_os("PATH")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;
    use crate::program::tests::emulator;

    /// Writes a file that can be run, and the folders above it.
    pub(crate) fn file(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, content).expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// Writes a script that is run. By another process: a file that one of ours could still write cannot be started, and a child that another
    /// test is just starting holds all of our files for an instant.
    pub(crate) fn script(path: &Path, text: &str) {
        let written = path.with_extension("written");
        file(&written, format!("#!/bin/sh\n{text}\n").as_bytes());
        let copied = Command::new("cp").arg("-p").arg(&written).arg(path).status().expect("cp");
        assert!(copied.success());
        fs::remove_file(&written).expect("removed");
    }

    /// A folder that looks like a whole Erlang of OTP 25.
    pub(crate) fn erlang() -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let beam = emulator("Erlang/OTP 25%s [erts-13.1.5] [source] [64-bit] [jit:ns%s]");
        file(&folder.path().join("erts-13.1.5/bin/beam.smp"), &beam);
        file(&folder.path().join("erts-13.1.5/bin/erlexec"), b"\x7fELF");
        file(&folder.path().join("bin/erl"), b"#!/bin/sh\n");
        file(&folder.path().join("bin/start_clean.boot"), b"");
        file(&folder.path().join("releases/25/OTP_VERSION"), b"25.2.3**\n");
        folder
    }

    #[test]
    fn an_installation_says_its_versions() {
        let folder = erlang();
        let found = Installation::at(folder.path()).expect("an installation");
        assert_eq!((found.erts.as_str(), found.otp.as_deref()), ("13.1.5", Some("25.2.3")));
        assert!(!found.is_release);
        assert_eq!(found.boot(), Some(folder.path().join("bin/start_clean")));
        fs::write(folder.path().join("releases/25/OTP_VERSION"), "$(x)").expect("written");
        assert_eq!(Installation::at(folder.path()).expect("an installation").otp, None);
    }

    #[test]
    fn of_several_erts_the_one_that_is_started_counts() {
        let folder = erlang();
        file(&folder.path().join("erts-13.2/bin/beam.smp"), b"");
        // Without an emulator it is none.
        file(&folder.path().join("erts-14.0/bin/erlexec"), b"");
        let error = Installation::at(folder.path()).expect_err("nothing tells which").to_string();
        assert!(error.contains("no folder erts-VERSION"), "{error}");
        file(&folder.path().join("releases/start_erl.data"), b"13.2 0.1.0\n");
        assert_eq!(Installation::at(folder.path()).expect("an installation").erts, "13.2");
    }

    #[test]
    fn a_command_uses_its_own_release_or_the_erl_of_the_path() {
        let (erlang, release, elsewhere) = (erlang(), erlang(), tempfile::tempdir().expect("a folder"));
        fs::remove_file(release.path().join("bin/erl")).expect("removed");
        file(&release.path().join("bin/shop"), b"#!/bin/sh\n");
        file(&elsewhere.path().join("elixir"), b"#!/bin/sh\n");
        symlink(erlang.path().join("bin/erl"), elsewhere.path().join("erl")).expect("a link");
        let of = |program: &Path| {
            Installation::of_command(program.as_os_str(), Some(elsewhere.path().as_os_str()))
        };
        let root = |folder: &TempDir| fs::canonicalize(folder.path()).expect("a folder");
        let shop = of(&release.path().join("bin/shop")).expect("a release");
        assert_eq!((shop.root, shop.is_release), (root(&release), true));
        for program in ["elixir", "erl", "none"] {
            assert_eq!(of(Path::new(program)).expect("an installation").root, root(&erlang), "{program}");
        }
        fs::remove_file(elsewhere.path().join("erl")).expect("removed");
        assert!(matches!(of(Path::new("elixir")), Err(Error::NoErl)));
    }

    #[test]
    fn a_version_managers_erl_is_asked_for_its_installation() {
        let (erlang, shims) = (erlang(), tempfile::tempdir().expect("a folder"));
        script(&shims.path().join("erl"), &format!("printf %s {}", erlang.path().display()));
        let found = Installation::of_command(OsStr::new("mix"), Some(shims.path().as_os_str()));
        assert_eq!(found.expect("an installation").root, erlang.path());
    }

    #[test]
    fn an_erl_that_does_not_start_is_told_with_what_it_said() {
        let shims = tempfile::tempdir().expect("a folder");
        script(&shims.path().join("erl"), "echo 'no version is set' >&2; exit 126");
        let error = Installation::of_command(OsStr::new("mix"), Some(shims.path().as_os_str()));
        let error = error.expect_err("it does not start").to_string();
        assert!(error.contains("exit status: 126") && error.contains("no version is set"), "{error}");
        assert!(error.contains("--installation"), "{error}");
    }
}
