//! Files that are read, and written anew in one piece.
//!
//! A file is never half written: its new text goes to a temporary file in the same folder, reaches the disk, and only then
//! takes the name. What somebody else has changed since it was read is not overwritten.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::{Builder, NamedTempFile};

/// What new files may be at most, before the umask: readable and writable for all.
const NEW_FILE_MODE: u32 = 0o666;
/// The owner may write.
const OWNER_WRITES: u32 = 0o200;

/// A file as it was when it was read.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    pub bytes: Vec<u8>,
    stamp: Stamp,
}

/// By what a file is known again.
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
    /// Reads a regular file of at most `limit` bytes; of a larger one, one byte more than that.
    ///
    /// # Errors
    /// Where there is none, where it may not be read, and where it is something else: a folder, a pipe, a device.
    pub fn read(path: &Path, limit: usize) -> Result<Snapshot> {
        // A pipe must not even be opened: that waits for its writer.
        if !fs::metadata(path)?.is_file() {
            bail!("it is no regular file; - reads standard input");
        }
        let file = File::open(path)?;
        let stamp = Stamp::of(&file.metadata()?);
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Snapshot { path: path.to_owned(), bytes, stamp })
    }

    /// Whether both are the same file, by whatever names.
    pub fn is_same_file(&self, other: &Snapshot) -> bool {
        (self.stamp.device, self.stamp.inode) == (other.stamp.device, other.stamp.inode)
    }

    /// Puts `bytes` in the place of the file, with its owner and its permissions. A symbolic link stays one: what it leads to is
    /// replaced.
    ///
    /// # Errors
    /// Where the file has changed since it was read, is read-only, has other names, or its owner cannot be kept. It is
    /// as it was then.
    pub fn replace(&self, bytes: &[u8]) -> Result<()> {
        let path = fs::canonicalize(&self.path)?;
        let metadata = fs::metadata(&path)?;
        if metadata.mode() & OWNER_WRITES == 0 {
            bail!("it is read-only: chmod u+w lets it be written");
        }
        if metadata.nlink() > 1 {
            bail!(
                "it has {} names (hard links), and only one would get the new text: write it with beamtune args -o, or by hand",
                metadata.nlink()
            );
        }
        let mut new = temporary(&path, Builder::new().prefix(".beamtune-"))?;
        new.write_all(bytes)?;
        keep_owner(new.as_file(), &metadata)?;
        // After the owner, whose change would take bits away.
        new.as_file().set_permissions(metadata.permissions())?;
        new.as_file().sync_all()?;
        self.ensure_unchanged(&path)?;
        new.persist(&path).map_err(|error| error.error)?;
        sync_folder(&path);
        Ok(())
    }

    fn ensure_unchanged(&self, path: &Path) -> Result<()> {
        const CHANGED: &str = "it has changed since it was read: run the same command again";
        let now = Snapshot::read(path, self.bytes.len()).context(CHANGED)?;
        if now.stamp != self.stamp || now.bytes != self.bytes {
            bail!(CHANGED);
        }
        Ok(())
    }
}

/// Writes a file that does not exist yet.
///
/// # Errors
/// Where there is one of that name, whatever it is.
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
    builder.tempfile_in(folder).with_context(|| format!("cannot write into the folder {}", folder.display()))
}

/// A new file is ours; where the old one was somebody else's, it must be given back.
fn keep_owner(file: &File, old: &Metadata) -> Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    fchown(file, Some(old.uid()), Some(old.gid()))
        .context("its owner and group could not be kept: run this as its owner, or as root")
}

/// The new name reaches the disk, too.
fn sync_folder(path: &Path) {
    // Not every file system can do this; the file itself is safe already.
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

    /// Names in a folder: nothing temporary may be left.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions() {
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
    fn what_has_changed_meanwhile_is_not_overwritten() {
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
        // Longer, with the same beginning.
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
    fn a_symbolic_link_stays_one() {
        let folder = folder();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").expect("write");
        symlink("file", &link).expect("link");
        Snapshot::read(&link, LIMIT).expect("read").replace(b"new").expect("replace");
        assert!(fs::symlink_metadata(&link).expect("metadata").is_symlink());
        assert_eq!(text(&file), "new");
    }

    #[test]
    fn a_file_with_two_names_or_without_leave_to_write_is_refused() {
        let folder = folder();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&file, "old").expect("write");
        fs::hard_link(&file, &other).expect("link");
        let error = Snapshot::read(&file, LIMIT).expect("read").replace(b"new").expect_err("two names");
        assert!(error.to_string().contains("2 names"), "{error}");
        fs::remove_file(&other).expect("remove");
        fs::set_permissions(&file, Permissions::from_mode(0o444)).expect("chmod");
        let error = Snapshot::read(&file, LIMIT).expect("read").replace(b"new").expect_err("read-only");
        assert!(error.to_string().contains("read-only"), "{error}");
        assert_eq!(text(&file), "old");
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let folder = folder();
        let error = Snapshot::read(folder.path(), LIMIT).expect_err("a folder");
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert!(Snapshot::read(Path::new("/dev/null"), LIMIT).is_err());
    }

    #[test]
    fn of_a_large_file_only_a_little_is_read() {
        let folder = folder();
        let path = folder.path().join("large");
        fs::write(&path, "x".repeat(5000)).expect("write");
        assert_eq!(Snapshot::read(&path, LIMIT).expect("read").bytes.len(), LIMIT + 1);
    }

    #[test]
    fn a_new_file_takes_no_name_that_is_taken() {
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
