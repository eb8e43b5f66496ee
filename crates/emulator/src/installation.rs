//! Finds the installation of Erlang that a command or a folder belongs to, and its emulator.
//!
//! An installation is a folder with `erts-VERSION/bin`: a complete Erlang (`/usr/lib/erlang`), or a release with its own ERTS.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::kind::{Type, is_version, release_of};

/// Maximum length of a line that is read. Version files have one short line.
const MAX_LINE_BYTES: usize = 200;
/// Maximum depth of a release's commands below its folder: `releases/VERSION/elixir`.
const MAX_DEPTH: usize = 3;

/// An installation of Erlang, or a release with its own ERTS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Its folder.
    pub root: PathBuf,
    /// The folder of its programs: `ROOT/erts-13.1.5/bin`.
    pub bin: PathBuf,
    /// Version of ERTS, from the name of the folder `erts-VERSION`.
    pub erts: String,
    /// Version of OTP, if a file contains it. Releases have no such file.
    pub otp: Option<String>,
    /// Whether it is a release: there is no `bin/erl`.
    pub is_release: bool,
}

impl Installation {
    /// Returns the installation in a folder.
    ///
    /// # Errors
    /// If the folder has no ERTS, or has several and no `start_erl.data` that names the current one.
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
            // An upgraded release keeps older versions of ERTS; this file names the one that is started.
            let started = line(&root.join("releases/start_erl.data"));
            let started = started.as_deref().and_then(|line| line.split_whitespace().next());
            versions.retain(|erts| Some(erts.as_str()) == started);
        }
        let erts = match versions.as_slice() {
            [erts] => erts.clone(),
            [] => return Err(no("it has no folder erts-VERSION with bin/beam.smp".to_owned())),
            _ => return Err(no(format!("it has several ERTS: {}", versions.join(", ")))),
        };
        let version_line = |release: u32| line(&root.join(format!("releases/{release}/OTP_VERSION")));
        // A version that was patched locally ends in "**" (System Principles, Versions).
        let otp = release_of(&erts).and_then(version_line).map(|line| line.trim_end_matches('*').to_owned());
        Ok(Installation {
            bin: bin(&erts),
            otp: otp.filter(|otp| is_version(otp)),
            is_release: fs::symlink_metadata(root.join("bin/erl")).is_err(),
            erts,
            root,
        })
    }

    /// Returns the installation that a command uses: the release that contains the command, or else that of the first `erl` in
    /// `search`, which is a PATH.
    ///
    /// # Errors
    /// If no `erl` is found, or its installation cannot be determined.
    pub fn for_command(program: &OsStr, search: Option<&OsStr>) -> Result<Installation, Error> {
        if let Some(installation) = find(program, search).and_then(|file| Installation::around(&file)) {
            return Ok(installation);
        }
        let erl = find(OsStr::new("erl"), search).ok_or(Error::NoErl)?;
        if let Some(installation) = Installation::around(&erl) {
            return Ok(installation);
        }
        // This must be the shim of a version manager, which chooses the real `erl`.
        let eval = "io:put_chars(code:root_dir()), halt().";
        let mut ask = Command::new(&erl);
        ask.args(["-boot", "start_clean", "-noshell", "-noinput", "-eval", eval]).stdin(Stdio::null());
        let start = |why| Error::Start { program: erl.display().to_string(), why };
        let output = ask.output().map_err(start)?;
        match output.stdout.trim_ascii() {
            b"" => Err(Error::ErlFailed {
                erl,
                how: output.status.to_string(),
                output: last_line(&output.stderr).unwrap_or_else(|| "no output".to_owned()),
            }),
            folder => Installation::at(Path::new(OsStr::from_bytes(folder))),
        }
    }

    /// Returns the installation that contains a file.
    fn around(file: &Path) -> Option<Installation> {
        let file = fs::canonicalize(file).ok()?;
        file.ancestors().skip(1).take(MAX_DEPTH).find_map(|folder| Installation::at(folder).ok())
    }

    /// Returns the path of the installation's emulator.
    pub fn emulator(&self) -> PathBuf {
        self.bin.join(Type::Opt.file())
    }

    /// Returns a boot file without its suffix, preferably one that starts only kernel and stdlib.
    pub fn boot(&self) -> Option<PathBuf> {
        boot(&self.root)
    }
}

/// Returns a boot file of a folder with `releases` or `bin`, without its suffix. `start_clean` is preferred.
pub(crate) fn boot(root: &Path) -> Option<PathBuf> {
    let releases = fs::read_dir(root.join("releases")).into_iter().flatten().flatten();
    let of_releases = releases.map(|entry| entry.path().join("start_clean"));
    let known = ["bin/start_clean", "bin/start"].map(|name| root.join(name));
    known.into_iter().chain(of_releases).find(|file| file.with_extension("boot").is_file())
}

/// Returns the last line that is not blank.
fn last_line(output: &[u8]) -> Option<String> {
    let output = String::from_utf8_lossy(output);
    let last = output.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(last.chars().take(MAX_LINE_BYTES).collect())
}

/// Returns the first line of a small file, trimmed.
pub(crate) fn line(path: &Path) -> Option<String> {
    let content = fs::read(path).ok()?;
    let line = content.split(|byte| *byte == b'\n').next()?;
    let line = str::from_utf8(line.get(..line.len().min(MAX_LINE_BYTES))?).ok()?;
    Some(line.trim().to_owned())
}

/// Returns the file of a command: the command itself if it is a path, or else the first match in `search`.
pub(crate) fn find(program: &OsStr, search: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    std::env::split_paths(search?).map(|folder| folder.join(program)).find(is_program)
}

/// Returns the value of PATH.
pub fn search_path() -> Option<OsString> {
    std::env::var_os("PATH")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;
    use crate::program::tests::emulator;

    /// Writes an executable file and its parent folders.
    pub(crate) fn file(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, content).expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// Writes a script that the test then runs. `cp` writes the final file, since a file that is open for writing cannot be
    /// executed: a child that another test is just spawning briefly inherits all files that we have open.
    pub(crate) fn script(path: &Path, text: &str) {
        let written = path.with_extension("written");
        file(&written, format!("#!/bin/sh\n{text}\n").as_bytes());
        let copied = Command::new("cp").arg("-p").arg(&written).arg(path).status().expect("cp");
        assert!(copied.success());
        fs::remove_file(&written).expect("removed");
    }

    /// Creates a folder that looks like a complete Erlang of OTP 25.
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
    fn versions_are_read_from_an_installation() {
        let folder = erlang();
        let found = Installation::at(folder.path()).expect("an installation");
        assert_eq!((found.erts.as_str(), found.otp.as_deref()), ("13.1.5", Some("25.2.3")));
        assert!(!found.is_release);
        assert_eq!(found.boot(), Some(folder.path().join("bin/start_clean")));
        fs::write(folder.path().join("releases/25/OTP_VERSION"), "$(x)").expect("written");
        assert_eq!(Installation::at(folder.path()).expect("an installation").otp, None);
    }

    #[test]
    fn start_erl_data_selects_among_several_erts() {
        let folder = erlang();
        file(&folder.path().join("erts-13.2/bin/beam.smp"), b"");
        // A folder without an emulator is ignored.
        file(&folder.path().join("erts-14.0/bin/erlexec"), b"");
        let error = Installation::at(folder.path()).expect_err("no start_erl.data").to_string();
        assert!(error.contains("no folder erts-VERSION"), "{error}");
        file(&folder.path().join("releases/start_erl.data"), b"13.2 0.1.0\n");
        assert_eq!(Installation::at(folder.path()).expect("an installation").erts, "13.2");
    }

    #[test]
    fn a_command_belongs_to_its_release_or_to_erl_on_the_path() {
        let (erlang, release, elsewhere) = (erlang(), erlang(), tempfile::tempdir().expect("a folder"));
        fs::remove_file(release.path().join("bin/erl")).expect("removed");
        file(&release.path().join("bin/shop"), b"#!/bin/sh\n");
        file(&elsewhere.path().join("elixir"), b"#!/bin/sh\n");
        symlink(erlang.path().join("bin/erl"), elsewhere.path().join("erl")).expect("a link");
        let of = |program: &Path| {
            Installation::for_command(program.as_os_str(), Some(elsewhere.path().as_os_str()))
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
    fn a_version_managers_shim_is_run_to_find_the_installation() {
        let (erlang, shims) = (erlang(), tempfile::tempdir().expect("a folder"));
        script(&shims.path().join("erl"), &format!("printf %s {}", erlang.path().display()));
        let found = Installation::for_command(OsStr::new("mix"), Some(shims.path().as_os_str()));
        assert_eq!(found.expect("an installation").root, erlang.path());
    }

    #[test]
    fn error_of_an_erl_that_does_not_start_has_its_output() {
        let shims = tempfile::tempdir().expect("a folder");
        script(&shims.path().join("erl"), "echo 'no version is set' >&2; exit 126");
        let error = Installation::for_command(OsStr::new("mix"), Some(shims.path().as_os_str()));
        let error = error.expect_err("it does not start").to_string();
        assert!(error.contains("exit status: 126") && error.contains("no version is set"), "{error}");
        assert!(error.contains("--installation"), "{error}");
    }
}
