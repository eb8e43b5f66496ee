//! Reads files, and replaces them atomically.
//!
//! A new text is written to a temporary file in the same folder, synced, and then renamed. A file that has changed since it was
//! read is not overwritten.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::{Builder, NamedTempFile};

/// Permissions of new files, before the umask is applied.
const NEW_FILE_MODE: u32 = 0o666;
/// The owner's write permission.
const OWNER_WRITES: u32 = 0o200;

/// The content and version of a file when it was read.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    pub bytes: Vec<u8>,
    stamp: Stamp,
}

/// Identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Snapshot {
    /// Reads at most `limit` + 1 bytes of a regular file. The extra byte shows that the file is larger than the limit.
    ///
    /// # Errors
    /// If the file does not exist, may not be read, or is not a regular file.
    pub fn read(path: &Path, limit: usize) -> Result<Snapshot> {
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path)?.is_file() {
            bail!("not a regular file; use - to read standard input");
        }
        let file = File::open(path)?;
        let stamp = Stamp::of(&file.metadata()?);
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Snapshot { path: path.to_owned(), bytes, stamp })
    }

    /// True if both are the same file, under any name.
    pub fn is_same_file(&self, other: &Snapshot) -> bool {
        (self.stamp.device, self.stamp.inode) == (other.stamp.device, other.stamp.inode)
    }

    /// Replaces the content of the file, and keeps owner and permissions. Symbolic links are followed.
    ///
    /// # Errors
    /// If the file has changed since it was read, is read-only, has several hard links, or its owner cannot be kept. The file
    /// then stays unchanged.
    pub fn replace(&self, bytes: &[u8]) -> Result<()> {
        let path = fs::canonicalize(&self.path)?;
        let metadata = fs::metadata(&path)?;
        if metadata.mode() & OWNER_WRITES == 0 {
            bail!("read-only: make it writable with chmod u+w");
        }
        if metadata.nlink() > 1 {
            bail!(
                "it has {} hard links, of which only one would change: write a new file with beamtune args -o",
                metadata.nlink()
            );
        }
        let mut new = temporary(&path, Builder::new().prefix(".beamtune-"))?;
        new.write_all(bytes)?;
        keep_owner(new.as_file(), &metadata)?;
        // Set after the owner, since chown clears permission bits.
        new.as_file().set_permissions(metadata.permissions())?;
        new.as_file().sync_all()?;
        self.ensure_unchanged(&path)?;
        new.persist(&path).map_err(|error| error.error)?;
        sync_folder(&path);
        Ok(())
    }

    fn ensure_unchanged(&self, path: &Path) -> Result<()> {
        const CHANGED: &str = "it has changed since it was read: run the command again";
        let now = Snapshot::read(path, self.bytes.len()).context(CHANGED)?;
        if now.stamp != self.stamp || now.bytes != self.bytes {
            bail!(CHANGED);
        }
        Ok(())
    }
}

/// Creates a file.
///
/// # Errors
/// If the path exists already, as a file, folder or link.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    let mode = Permissions::from_mode(NEW_FILE_MODE);
    let mut new = temporary(path, Builder::new().prefix(".beamtune-").permissions(mode))?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist_noclobber(path).map_err(|error| error.error)?;
    sync_folder(path);
    Ok(())
}

fn temporary(path: &Path, builder: &Builder<'_, '_>) -> Result<NamedTempFile> {
    let folder = folder(path);
    builder.tempfile_in(folder).with_context(|| format!("cannot write to the folder {}", folder.display()))
}

/// Gives a new file the owner and group of the old one.
fn keep_owner(file: &File, old: &Metadata) -> Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    fchown(file, Some(old.uid()), Some(old.gid()))
        .context("cannot keep its owner and group: run beamtune as its owner, or as root")
}

/// Syncs the folder, so that the new name survives a crash.
fn sync_folder(path: &Path) {
    // Not every file system supports this. The content is already synced.
    if let Ok(folder) = File::open(folder(path)) {
        let _ = folder.sync_all();
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const LIMIT: usize = 1000;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("text")
    }

    /// Lists the names in a folder, to check that no temporary file remains.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn replacing_keeps_the_permissions() {
        let folder = folder();
        let path = folder.path().join("vm.args");
        for mode in [0o600, 0o640, 0o755] {
            fs::write(&path, "+K true\n").expect("write");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
            Snapshot::read(&path, LIMIT).expect("read").replace(b"+P 5000\n").expect("replace");
            assert_eq!(text(&path), "+P 5000\n");
            assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o7777, mode);
        }
        assert_eq!(names(folder.path()), ["vm.args"]);
    }

    #[test]
    fn a_file_that_has_changed_is_not_overwritten() {
        let folder = folder();
        let path = folder.path().join("vm.args");
        let refused = |change: &dyn Fn()| {
            fs::write(&path, "old").expect("write");
            let snapshot = Snapshot::read(&path, LIMIT).expect("read");
            change();
            let before = fs::read(&path).ok();
            let error = snapshot.replace(b"new").expect_err("it has changed");
            assert_eq!(fs::read(&path).ok(), before, "{error:#}");
        };
        refused(&|| fs::write(&path, "other").expect("write"));
        // A longer text with the same beginning.
        refused(&|| fs::write(&path, "old and more").expect("write"));
        // Another file with the same text.
        refused(&|| {
            let other = folder.path().join("other");
            fs::write(&other, "old").expect("write");
            fs::rename(&other, &path).expect("rename");
        });
        refused(&|| fs::remove_file(&path).expect("remove"));
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_symbolic_link_is_kept() {
        let folder = folder();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").expect("write");
        symlink("file", &link).expect("link");
        Snapshot::read(&link, LIMIT).expect("read").replace(b"new").expect("replace");
        assert!(fs::symlink_metadata(&link).expect("metadata").is_symlink());
        assert_eq!(text(&file), "new");
    }

    #[test]
    fn hard_links_and_read_only_files_are_refused() {
        let folder = folder();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&file, "old").expect("write");
        fs::hard_link(&file, &other).expect("link");
        let error = Snapshot::read(&file, LIMIT).expect("read").replace(b"new").expect_err("two names");
        assert!(error.to_string().contains("2 hard links"), "{error}");
        fs::remove_file(&other).expect("remove");
        fs::set_permissions(&file, Permissions::from_mode(0o444)).expect("chmod");
        let error = Snapshot::read(&file, LIMIT).expect("read").replace(b"new").expect_err("read-only");
        assert!(error.to_string().contains("read-only"), "{error}");
        assert_eq!(text(&file), "old");
    }

    #[test]
    fn folders_and_devices_are_refused() {
        let folder = folder();
        let error = Snapshot::read(folder.path(), LIMIT).expect_err("a folder");
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert!(Snapshot::read(Path::new("/dev/null"), LIMIT).is_err());
    }

    #[test]
    fn reading_stops_after_the_limit() {
        let folder = folder();
        let path = folder.path().join("large");
        fs::write(&path, "x".repeat(5000)).expect("write");
        assert_eq!(Snapshot::read(&path, LIMIT).expect("read").bytes.len(), LIMIT + 1);
    }

    #[test]
    fn creating_does_not_overwrite() {
        let folder = folder();
        let path = folder.path().join("vm.args");
        create(&path, b"first").expect("create");
        assert!(create(&path, b"second").is_err());
        assert_eq!(text(&path), "first");
        symlink("nowhere", folder.path().join("link")).expect("link");
        assert!(create(&folder.path().join("link"), b"x").is_err());
        assert_eq!(names(folder.path()), ["link", "vm.args"]);
    }
}
