//! A fake host for tests: files in a temporary folder, with the layout of the kernel's files.

use std::fs;
use std::path::PathBuf;

use crate::tree::LocalTree;

/// A folder that looks like the root of a host.
pub(crate) struct FakeHost {
    root: tempfile::TempDir,
}

impl FakeHost {
    pub(crate) fn new() -> Self {
        FakeHost { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn tree(&self) -> LocalTree {
        LocalTree::at(self.root.path())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Creates a file, or replaces its content.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Returns the content of the file `stat` of a process or thread.
    pub(crate) fn stat(id: u32, comm: &str, user: i64, system: i64, start: i64) -> String {
        format!(
            "{id} ({comm}) S 1 {id} {id} 0 -1 4194304 100 0 5 0 {user} {system} 0 0 20 0 3 0 {start} \
             2379137024 256 18446744073709551615 1 1 0 0 0 0 0 4096 134759 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        )
    }

    /// Creates the files of a single-threaded process; `children` are the ids of its child processes.
    pub(crate) fn program(&self, id: u32, ppid: u32, comm: &str, ticks: i64, start: i64, children: &str) {
        let stat = FakeHost::stat(id, comm, ticks, 0, start).replacen("S 1 ", &format!("S {ppid} "), 1);
        self.file(&format!("/proc/{id}/stat"), stat.replacen(" 3 0 ", " 1 0 ", 1));
        self.file(&format!("/proc/{id}/task/{id}/children"), children);
    }

    /// Creates the files of a thread.
    pub(crate) fn thread(&self, pid: u32, tid: u32, comm: &str, user: i64, system: i64, schedstat: &str) {
        let folder = format!("/proc/{pid}/task/{tid}");
        self.file(&format!("{folder}/stat"), FakeHost::stat(tid, comm, user, system, 500));
        self.file(
            &format!("{folder}/status"),
            format!("Name:\t{comm}\nvoluntary_ctxt_switches:\t1274\nnonvoluntary_ctxt_switches:\t18\n"),
        );
        self.file(&format!("{folder}/schedstat"), format!("{schedstat}\n"));
    }
}
