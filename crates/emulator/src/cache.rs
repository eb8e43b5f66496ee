//! The cache of built emulators. Each has a folder named after its identity, with the emulator and a manifest.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, statvfs};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{BUILD_MB, Error};
use crate::kind::Identity;

/// Name of the manifest in an emulator's folder.
const MANIFEST: &str = "emulator.json";
/// Prefix of the folders of running builds.
const BUILDING: &str = ".build-";
/// Name of a file that a running build locks, so that folders left behind by a crash can be recognized.
const LOCK: &str = "lock";
/// Name of the file with the output of the last failed build.
const FAILED: &str = "failed.log";
/// Mode bits of a file that its group or everybody may write.
const OTHERS_WRITE: u32 = 0o022;

/// The folder with all built emulators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// The manifest of an emulator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The identity of the emulator.
    #[serde(flatten)]
    pub identity: Identity,
    /// The OTP version of its source, if the source names it.
    pub otp: Option<String>,
    /// Description of its source, for output.
    pub source: String,
    /// The oldest glibc version with which it starts: the `N` of `2.N`.
    pub glibc: Option<u32>,
    /// Size in bytes.
    pub bytes: u64,
    /// Build time in milliseconds.
    pub took_ms: u64,
}

/// An emulator in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedEmulator {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its file.
    pub file: PathBuf,
}

impl Cache {
    /// Uses a folder as the cache. It need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    /// Returns the default cache: `beamtune/emulators` below `XDG_CACHE_HOME`, or below `.cache` in `HOME`. The arguments are the
    /// values of these two variables.
    ///
    /// # Errors
    /// If neither is set.
    pub fn from_environment(cache_home: Option<OsString>, home: Option<OsString>) -> Result<Cache, Error> {
        let set = |value: Option<OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
        // A relative path is ignored (XDG Base Directory Specification).
        let cache_home = set(cache_home).filter(|path| path.is_absolute());
        let cache = cache_home.or_else(|| Some(set(home)?.join(".cache")));
        let cache = cache.ok_or_else(|| {
            Error::Usage(
                "cannot keep emulators: neither XDG_CACHE_HOME nor HOME is set; set one of them".to_owned(),
            )
        })?;
        Ok(Cache::at(cache.join("beamtune/emulators")))
    }

    /// Returns the folder of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the emulator with this identity, if it was built.
    ///
    /// # Errors
    /// If another user could have written it.
    pub fn find(&self, identity: &Identity) -> Result<Option<CachedEmulator>, Error> {
        let Some(kept) = self.read(&identity.key()).filter(|kept| kept.manifest.identity == *identity) else {
            return Ok(None);
        };
        let metadata = fs::metadata(&kept.file).map_err(|source| Error::io(&kept.file, source))?;
        let ours = rustix::process::geteuid().as_raw();
        if ![0, ours].contains(&metadata.uid()) || metadata.mode() & OTHERS_WRITE != 0 {
            return Err(Error::Untrusted { path: kept.file });
        }
        Ok(Some(kept))
    }

    /// Returns all emulators, sorted by name.
    ///
    /// # Errors
    /// If the folder exists but cannot be read.
    pub fn list(&self) -> Result<Vec<CachedEmulator>, Error> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(Error::NoCache { folder: self.root.clone(), why }),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names.iter().filter_map(|name| self.read(name)).collect())
    }

    fn read(&self, name: &str) -> Option<CachedEmulator> {
        let folder = self.root.join(name);
        let about: Manifest = serde_json::from_slice(&fs::read(folder.join(MANIFEST)).ok()?).ok()?;
        let file = folder.join(about.identity.variant.kind.file());
        file.is_file().then_some(CachedEmulator { manifest: about, file })
    }

    /// Creates a folder for a build, which is removed on drop.
    pub(crate) fn workplace(&self) -> Result<Workplace, Error> {
        let io = |source| Error::io(&self.root, source);
        let no = |why| Error::NoCache { folder: self.root.clone(), why };
        // The user that the VM runs as must have access; only we may write.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.root).map_err(no)?;
        self.remove_leftovers();
        let free = statvfs(&self.root).map_err(|errno| io(errno.into()))?;
        let free_mb = free.f_bavail.saturating_mul(free.f_frsize) / 1_000_000;
        if free_mb < BUILD_MB {
            return Err(Error::NoRoom { folder: self.root.clone(), needed_mb: BUILD_MB, free_mb });
        }
        let folder = tempfile::Builder::new().prefix(BUILDING).tempdir_in(&self.root).map_err(no)?;
        let lock = File::create(folder.path().join(LOCK)).map_err(io)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| io(errno.into()))?;
        Ok(Workplace { folder, _lock: lock })
    }

    /// Removes the folders of killed builds.
    fn remove_leftovers(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(BUILDING) {
                continue;
            }
            // A folder without a lock file was just created, or is being removed.
            let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // If this fails, the next build that lacks disk space reports it.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Moves a new emulator into the cache, replacing one with the same identity.
    pub(crate) fn keep(
        &self,
        workplace: &Workplace,
        about: Manifest,
        built: &Path,
    ) -> Result<CachedEmulator, Error> {
        let new = workplace.path().join("keep");
        fs::create_dir(&new).map_err(|source| Error::io(&new, source))?;
        let name = about.identity.variant.kind.file();
        let file = new.join(name);
        let written = || {
            fs::rename(built, &file)?;
            // The user that the VM runs as must be able to execute it.
            fs::set_permissions(&file, Permissions::from_mode(0o755))?;
            File::open(&file)?.sync_all()?;
            fs::write(new.join(MANIFEST), serde_json::to_vec_pretty(&about)?)
        };
        written().map_err(|source| Error::io(&file, source))?;
        let place = self.root.join(about.identity.key());
        let moved = || {
            match fs::rename(&place, workplace.path().join("before")) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::set_permissions(&new, Permissions::from_mode(0o755))?;
            fs::rename(&new, &place)
        };
        moved().map_err(|source| Error::io(&place, source))?;
        Ok(CachedEmulator { file: place.join(name), manifest: about })
    }

    /// Keeps the log of a failed build; returns its path, if it could be copied.
    pub(crate) fn keep_log(&self, log: &Path) -> Option<PathBuf> {
        let kept = self.root.join(FAILED);
        fs::copy(log, &kept).ok().map(|_| kept)
    }
}

/// A folder for a build, which is removed with its content on drop.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: TempDir,
    _lock: File,
}

impl Workplace {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a subfolder.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.path().join(name);
        fs::create_dir(&folder).map_err(|source| Error::io(&folder, source))?;
        Ok(folder)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kind::{Flavor, Libc, Options, Type, Variant};

    pub(crate) fn about() -> Manifest {
        let variant = Variant { kind: Type::Lcnt, flavor: Flavor::Jit, options: Options::default() };
        let identity = Identity {
            erts: "13.1.5".to_owned(),
            variant,
            architecture: "x86_64".to_owned(),
            libc: Libc::Glibc,
        };
        let source = "otp_src_25.2.3.tar.gz".to_owned();
        Manifest { identity, otp: Some("25.2.3".to_owned()), source, glibc: Some(34), bytes: 3, took_ms: 1 }
    }

    /// Creates a cache that contains one emulator.
    pub(crate) fn filled(folder: &TempDir) -> (Cache, CachedEmulator) {
        let cache = Cache::at(folder.path().join("cache"));
        let workplace = cache.workplace().expect("a workplace");
        let built = workplace.path().join("built");
        fs::write(&built, "lcnt").expect("written");
        let kept = cache.keep(&workplace, about(), &built).expect("kept");
        (cache, kept)
    }

    #[test]
    fn an_emulator_is_found_only_by_its_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, kept) = filled(&folder);
        assert_eq!(cache.find(&about().identity).expect("ours"), Some(kept.clone()));
        assert_eq!(cache.list().expect("a list"), std::slice::from_ref(&kept));
        assert_eq!(fs::metadata(&kept.file).expect("a file").mode() & 0o777, 0o755);
        let mut other = about().identity;
        other.erts = "13.1.6".to_owned();
        assert_eq!(cache.find(&other).expect("nothing"), None);
        // A renamed folder.
        fs::rename(cache.root().join(about().identity.key()), cache.root().join(other.key()))
            .expect("renamed");
        assert_eq!(cache.find(&other).expect("nothing"), None);
        // The build's folder is gone.
        assert_eq!(fs::read_dir(cache.root()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_rebuilt_emulator_replaces_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, kept) = filled(&folder);
        let workplace = cache.workplace().expect("a workplace");
        let built = workplace.path().join("built");
        fs::write(&built, "again").expect("written");
        cache.keep(&workplace, about(), &built).expect("kept");
        assert_eq!(fs::read_to_string(kept.file).expect("a file"), "again");
    }

    #[test]
    fn an_emulator_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, kept) = filled(&folder);
        fs::set_permissions(&kept.file, Permissions::from_mode(0o777)).expect("chmod");
        assert!(matches!(cache.find(&about().identity), Err(Error::Untrusted { .. })));
    }

    #[test]
    fn an_unusable_folder_is_an_error_and_a_missing_one_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Cache::at(folder.path().join("none")).list().expect("empty"), []);
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(matches!(Cache::at(&file).list(), Err(Error::NoCache { .. })));
        let error = Cache::at(file.join("below")).workplace().expect_err("no folder").to_string();
        assert!(error.contains("set XDG_CACHE_HOME"), "{error}");
    }

    #[test]
    fn folders_of_killed_builds_are_removed_and_running_ones_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let under_way = cache.workplace().expect("a workplace");
        let left = folder.path().join(".build-left");
        fs::create_dir(&left).expect("made");
        fs::write(left.join(LOCK), "").expect("written");
        let _other = cache.workplace().expect("a workplace");
        assert!(under_way.path().is_dir() && !left.exists());
    }

    #[test]
    fn default_cache_follows_the_xdg_specification() {
        let usual = |cache: Option<&str>, home: Option<&str>| {
            Cache::from_environment(cache.map(Into::into), home.map(Into::into))
                .map(|cache| cache.root().to_owned())
                .ok()
        };
        assert_eq!(usual(Some("/c"), Some("/h")), Some("/c/beamtune/emulators".into()));
        assert_eq!(usual(Some(""), Some("/h")), Some("/h/.cache/beamtune/emulators".into()));
        assert_eq!(usual(Some("c"), Some("/h")), Some("/h/.cache/beamtune/emulators".into()));
        assert_eq!(usual(None, None), None);
    }
}
