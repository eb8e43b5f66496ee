//! Creates a folder that imitates an installation with another emulator, for hosts on which a mount is not allowed.
//!
//! The folder contains links to the installation's files, and copies of its scripts, since scripts use their own location
//! (`readlink $0`). For a complete Erlang, it contains `bin/erl` and the programs, and commands find this `erl` through the PATH.
//! For a release with its own ERTS, it mirrors the release's folder, and the release's scripts are called there. The folder is
//! kept in the cache, since programs that were started from it may outlive beamtune.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::cache::{Cache, CachedEmulator};
use crate::error::Error;
use crate::installation::{Installation, find};
use crate::kind::Type;

/// Name of the folder of all overlays in the cache.
const FOLDER: &str = "overlays";
/// Scripts, boot files and configuration files up to this size are copied; larger files are linked.
const MAX_COPIED_BYTES: u64 = 4 << 20;
/// Folders of a release that are copied; all others are linked.
const RENEWED: [&str; 2] = ["bin", "releases"];
/// Paths of our `erl` in the overlay of a complete Erlang. The second one is for nodes that start other nodes: `erlexec` puts its
/// own folder in front of the PATH (erts/etc/common/erlexec.c).
const ERLS: [&str; 2] = ["bin/erl", "erts/bin/erl"];
/// Scripts are searched for the path of `erl` up to this size.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// A command, changed so that it runs the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayCommand {
    /// The overlay folder.
    pub root: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Variables to set.
    pub environment: Vec<(&'static str, OsString)>,
}

/// Creates the overlay folder, or reuses an identical one, and changes the command to use it. `search` is the PATH, and `flags`
/// the current value of `ERL_AFLAGS`.
///
/// # Errors
/// If the folder cannot be created, or the command would not use it.
pub fn start(
    cache: &Cache,
    kept: &CachedEmulator,
    installation: &Installation,
    command: &[OsString],
    search: Option<&OsStr>,
    flags: Option<&OsStr>,
) -> Result<OverlayCommand, Error> {
    let program = command.first().ok_or_else(|| Error::Usage("no command given".to_owned()))?;
    let file = find(program, search);
    let real = file.as_ref().and_then(|file| fs::canonicalize(file).ok());
    let inside = real.as_ref().and_then(|file| Some(file.strip_prefix(&installation.root).ok()?.to_owned()));
    let root = made(cache, kept, installation)?;
    let kind = kept.manifest.identity.variant.kind;
    let mut environment = Vec::new();
    let mut command = command.to_vec();
    if installation.is_release {
        let Some(inside) = inside else {
            return Err(Error::Usage(format!(
                "{} is not part of {}: run one of the scripts of that release",
                program.display(),
                installation.root.display()
            )));
        };
        if kind != Type::Opt {
            let mut value = OsString::from(format!("-emu_type {}", kind.name()));
            if let Some(flags) = flags.filter(|flags| !flags.is_empty()) {
                value.push(" ");
                value.push(flags);
            }
            environment.push(("ERL_AFLAGS", value));
        }
        replace_program(&mut command, root.join(inside));
    } else {
        let erl = root.join("bin/erl");
        if inside.is_some_and(|inside| inside.file_name() == Some(OsStr::new("erl"))) {
            replace_program(&mut command, erl.clone());
        } else if let Some(script) = real
            && let Some(erl) = fixed_erl(&script)
        {
            return Err(Error::FixedErl { script, erl });
        }
        let mut path = root.join("bin").into_os_string();
        if let Some(search) = search {
            path.push(":");
            path.push(search);
        }
        environment.extend([("PATH", path), ("ESCRIPT_EMULATOR", erl.into_os_string())]);
    }
    Ok(OverlayCommand { root, command, environment })
}

/// Returns the nearest parent folder that not all users may enter. Processes of other users cannot reach the file through it.
pub fn inaccessible_parent(file: &Path) -> Option<PathBuf> {
    const OTHERS_ENTER: u32 = 0o001;
    let is_closed = |folder: &&Path| fs::metadata(folder).is_ok_and(|it| it.mode() & OTHERS_ENTER == 0);
    file.ancestors().skip(1).find(is_closed).map(Path::to_owned)
}

fn replace_program(command: &mut [OsString], program: PathBuf) {
    if let Some(first) = command.first_mut() {
        *first = program.into_os_string();
    }
}

/// Finds an absolute path of `erl` in a script, outside of comments: `/usr/bin/erl`.
fn fixed_erl(script: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(script).ok()?.take(MAX_SCRIPT_BYTES).read_to_string(&mut text).ok()?;
    if !text.starts_with("#!") {
        return None;
    }
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || "\"'=;()`".contains(c)));
    words.find(|word| word.starts_with('/') && word.ends_with("/bin/erl")).map(str::to_owned)
}

/// Returns the overlay folder in the cache, and creates it if needed.
fn made(cache: &Cache, kept: &CachedEmulator, installation: &Installation) -> Result<PathBuf, Error> {
    let mut plan = Plan::default();
    if installation.is_release {
        plan.release(installation, kept)?;
    } else {
        plan.erlang(installation, kept)?;
    }
    let folder = cache.root().join(FOLDER);
    let root = folder.join(format!("{:016x}", plan.key(installation)));
    if root.is_dir() {
        return Ok(root);
    }
    let io = |source| Error::io(&folder, source);
    fs::create_dir_all(&folder).map_err(io)?;
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&folder).map_err(io)?;
    plan.make(new.path(), &root)?;
    fs::set_permissions(new.path(), Permissions::from_mode(0o755)).map_err(io)?;
    match fs::rename(new.path(), &root) {
        Ok(()) => {
            // The folder was renamed, so there is nothing to remove.
            let _ = new.keep();
            Ok(root)
        }
        // Another process has created the folder in the meantime.
        Err(_) if root.is_dir() => Ok(root),
        Err(source) => Err(Error::io(&root, source)),
    }
}

/// The content of an overlay folder, by relative paths.
#[derive(Debug, Default)]
struct Plan {
    folders: Vec<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    copies: Vec<(PathBuf, PathBuf)>,
    /// Text of [`ERLS`]; `@ROOT@` is replaced by the folder.
    erl: Option<String>,
    /// Paths, modification times and sizes of the copied files, to detect changes.
    stamps: Vec<(PathBuf, i64, i64, u64)>,
}

impl Plan {
    /// Plans the overlay of a complete Erlang: its programs, and an `erl` that starts them.
    fn erlang(&mut self, installation: &Installation, kept: &CachedEmulator) -> Result<(), Error> {
        self.folders = ["bin", "erts", "erts/bin"].map(PathBuf::from).to_vec();
        self.programs(&installation.bin, Path::new("erts/bin"), kept)?;
        self.copies.retain(|(_, to)| !ERLS.iter().any(|erl| to == Path::new(erl)));
        let kind = kept.manifest.identity.variant.kind;
        let flags = if kind == Type::Opt { String::new() } else { format!(" -emu_type {}", kind.name()) };
        self.erl = Some(format!(
            "#!/bin/sh\nROOTDIR={}\nBINDIR=@ROOT@/erts/bin\nEMU=beam\nPROGNAME=erl\nexport ROOTDIR BINDIR EMU PROGNAME\n\
             exec \"$BINDIR/erlexec\"{flags} ${{1+\"$@\"}}\n",
            quoted(&installation.root)
        ));
        Ok(())
    }

    /// Plans the overlay of a release: all of its files, with copies of the scripts.
    fn release(&mut self, installation: &Installation, kept: &CachedEmulator) -> Result<(), Error> {
        for (name, path, is_folder) in entries(&installation.root)? {
            let inside = PathBuf::from(&name);
            let erts = format!("erts-{}", installation.erts);
            if is_folder && name == OsStr::new(&erts) {
                self.folders.push(inside.clone());
                for (name, path, _) in entries(&path)? {
                    let inside = inside.join(&name);
                    if name == "bin" {
                        self.folders.push(inside.clone());
                        self.programs(&installation.bin, &inside, kept)?;
                    } else {
                        self.links.push((path, inside));
                    }
                }
            } else if is_folder && RENEWED.iter().any(|renewed| name == *renewed) {
                self.renewed(&path, &inside)?;
            } else {
                self.links.push((path, inside));
            }
        }
        Ok(())
    }

    /// Adds the programs of an ERTS, with the emulator replaced.
    fn programs(&mut self, bin: &Path, to: &Path, kept: &CachedEmulator) -> Result<(), Error> {
        let emulator = kept.manifest.identity.variant.kind.file();
        for (name, path, _) in entries(bin)? {
            if name == emulator {
                continue;
            }
            let to = to.join(&name);
            match is_script(&path) {
                true => self.copy(path, to)?,
                false => self.links.push((path, to)),
            }
        }
        self.links.push((kept.file.clone(), to.join(emulator)));
        Ok(())
    }

    /// Adds a folder with everything below it. Files that a script might overwrite are copied.
    fn renewed(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        self.folders.push(to.to_owned());
        for (name, path, is_folder) in entries(from)? {
            let to = to.join(&name);
            if is_folder {
                self.renewed(&path, &to)?;
                continue;
            }
            match fs::metadata(&path) {
                Ok(file) if file.is_file() && file.len() <= MAX_COPIED_BYTES => self.copy(path, to)?,
                _ => self.links.push((path, to)),
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: PathBuf, to: PathBuf) -> Result<(), Error> {
        let file = fs::metadata(&from).map_err(|source| Error::io(&from, source))?;
        self.stamps.push((from.clone(), file.mtime(), file.mtime_nsec(), file.len()));
        self.copies.push((from, to));
        Ok(())
    }

    /// Returns a hash of the content. It only has to differ if the content differs.
    fn key(&self, installation: &Installation) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&installation.root, &self.links, &self.copies, &self.erl, &self.stamps).hash(&mut hasher);
        hasher.finish()
    }

    /// Creates the content in the folder `at`, which is then renamed to `root`.
    fn make(&self, at: &Path, root: &Path) -> Result<(), Error> {
        for folder in &self.folders {
            let folder = at.join(folder);
            fs::create_dir(&folder).map_err(|source| Error::io(&folder, source))?;
        }
        for (target, link) in &self.links {
            let link = at.join(link);
            symlink(target, &link).map_err(|source| Error::io(&link, source))?;
        }
        for (from, to) in &self.copies {
            let to = at.join(to);
            // This also copies the mode.
            fs::copy(from, &to).map_err(|source| Error::io(&to, source))?;
        }
        for (file, text) in self.erl.iter().flat_map(|text| ERLS.map(|erl| (at.join(erl), text))) {
            let written = fs::write(&file, text.replace("@ROOT@", &quoted(root)));
            let written = written.and_then(|()| fs::set_permissions(&file, Permissions::from_mode(0o755)));
            written.map_err(|source| Error::io(&file, source))?;
        }
        Ok(())
    }
}

/// Returns all entries of a folder, sorted: name, path, and whether the entry is a folder (not a link to one).
fn entries(folder: &Path) -> Result<Vec<(OsString, PathBuf, bool)>, Error> {
    let io = |source| Error::io(folder, source);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        entries.push((entry.file_name(), entry.path(), entry.file_type().map_err(io)?.is_dir()));
    }
    entries.sort();
    Ok(entries)
}

fn is_script(path: &Path) -> bool {
    let mut begin = [0; 2];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *b"#!"
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::cache::tests::filled;
    use crate::installation::tests::{erlang, file};

    fn of(
        folder: &TempDir,
        installation: &Path,
        command: &[&str],
        path: &str,
    ) -> Result<OverlayCommand, Error> {
        let (cache, kept) = filled(folder);
        let installation =
            Installation::at(&fs::canonicalize(installation).expect("a folder")).expect("an installation");
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        start(&cache, &kept, &installation, &command, Some(OsStr::new(path)), Some(OsStr::new("+S 2:2")))
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("text")
    }

    #[test]
    fn erl_from_the_path_runs_the_other_emulator() {
        let (erlang, folder) = (erlang(), tempfile::tempdir().expect("a folder"));
        file(&erlang.path().join("erts-13.1.5/bin/erl"), b"#!/bin/sh\n");
        let started = of(&folder, erlang.path(), &["mix", "test"], "/none").expect("made");
        assert_eq!(started.command, ["mix", "test"]);
        let bin = started.root.join("bin");
        assert_eq!(started.environment[0], ("PATH", format!("{}:/none", bin.display()).into()));
        let script = text(&bin.join("erl"));
        assert!(script.contains(&format!("BINDIR='{}'/erts/bin\n", started.root.display())), "{script}");
        assert!(script.contains("exec \"$BINDIR/erlexec\" -emu_type lcnt ${1+\"$@\"}\n"), "{script}");
        assert_eq!(text(&started.root.join("erts/bin/beam.lcnt.smp")), "lcnt");
        assert!(started.root.join("erts/bin/erlexec").is_symlink());
        // Nodes that start other nodes find the same script.
        assert_eq!(text(&started.root.join("erts/bin/erl")), script);
        // A second call reuses the folder.
        let again = of(&folder, erlang.path(), &["mix", "test"], "/none").expect("found");
        assert_eq!(again.root, started.root);
    }

    #[test]
    fn a_folder_closed_to_other_users_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("cache/overlays/1");
        fs::create_dir_all(&inside).expect("folders");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
        };
        mode(folder.path(), 0o755);
        assert_ne!(inaccessible_parent(&inside).as_deref(), Some(folder.path()));
        mode(folder.path(), 0o700);
        assert_eq!(inaccessible_parent(&inside).as_deref(), Some(folder.path()));
        mode(folder.path(), 0o755);
        mode(&folder.path().join("cache"), 0o750);
        assert_eq!(inaccessible_parent(&inside), Some(folder.path().join("cache")));
    }

    #[test]
    fn erl_given_by_its_path_is_replaced() {
        let (erlang, folder) = (erlang(), tempfile::tempdir().expect("a folder"));
        let erl = erlang.path().join("bin/erl").display().to_string();
        let started = of(&folder, erlang.path(), &[&erl, "+S", "2"], "/none").expect("made");
        let expect = started.root.join("bin/erl").into_os_string();
        assert_eq!(started.command, [expect, "+S".into(), "2".into()]);
    }

    #[test]
    fn a_script_with_an_absolute_path_of_erl_is_refused() {
        let (erlang, folder) = (erlang(), tempfile::tempdir().expect("a folder"));
        let script = folder.path().join("ejabberdctl");
        file(&script, b"#!/bin/bash\n# see /x/bin/erl\nERL=\"/usr/bin/erl\"\n");
        let path = folder.path().display().to_string();
        let error =
            of(&folder, erlang.path(), &["ejabberdctl"], &path).expect_err("it has a path").to_string();
        assert!(error.contains("calls /usr/bin/erl by its absolute path"), "{error}");
        file(&script, b"#!/bin/bash\n# see /x/bin/erl\nexec erl\n");
        of(&folder, erlang.path(), &["ejabberdctl"], &path).expect("it finds erl on the PATH");
    }

    #[test]
    fn a_release_is_started_from_a_mirrored_folder() {
        let (release, folder) = (erlang(), tempfile::tempdir().expect("a folder"));
        let at = |name: &str| release.path().join(name);
        fs::remove_file(at("bin/erl")).expect("removed");
        file(&at("bin/shop"), b"#!/bin/sh\n");
        file(&at("releases/0.1.0/vm.args"), b"+S 1\n");
        file(&at("lib/kernel/ebin/kernel.app"), b"");
        let shop = at("bin/shop").display().to_string();
        let started = of(&folder, release.path(), &[&shop, "start"], "/none").expect("made");
        let expect = started.root.join("bin/shop").into_os_string();
        assert_eq!(started.command, [expect, "start".into()]);
        assert_eq!(started.environment, [("ERL_AFLAGS", "-emu_type lcnt +S 2:2".into())]);
        assert_eq!(text(&started.root.join("erts-13.1.5/bin/beam.lcnt.smp")), "lcnt");
        assert!(started.root.join("lib").is_symlink());
        for copied in ["bin/shop", "releases/0.1.0/vm.args"] {
            assert!(!started.root.join(copied).is_symlink(), "{copied}");
        }
        // A changed release gets a new folder; the release itself is unchanged.
        file(&at("releases/0.1.0/vm.args"), b"+S 2:2\n");
        let again = of(&folder, release.path(), &[&shop, "start"], "/none").expect("made");
        assert_ne!(again.root, started.root);
        assert!(!at("erts-13.1.5/bin/beam.lcnt.smp").exists());
        of(&folder, release.path(), &["make"], "/none").expect_err("none of its scripts");
    }
}
