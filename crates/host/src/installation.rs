//! The Erlang/OTP installation that a VM runs, and its files.
//!
//! The command line contains the installation's folder. The version of the runtime system (ERTS) is part of the paths, and determines the
//! OTP release. The exact OTP version is in a file, which releases created by mix and rebar3 do not contain.

use crate::command_line::{CommandLine, Environment};
use crate::error::HostError;
use crate::text;
use crate::tree::FileTree;

/// Size limit of the files that are read from an installation; they have a few lines.
const FILE_BYTES: usize = 64 * 1024;
/// Maximum number of entries that are read from a folder: Debian's /usr/lib/x86_64-linux-gnu has a few thousand.
const MAX_ENTRIES: usize = 10_000;

/// The files of a process, below its own root. They belong to its user and are untrusted.
#[derive(Debug)]
pub(crate) struct Files<'a, T> {
    pub(crate) tree: &'a T,
    /// The path under which its root is accessible; `None` if unknown.
    pub(crate) root: Option<String>,
}

impl<T: FileTree> Files<'_, T> {
    /// Reads the beginning of a file, if it exists.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        let root = self.root.as_deref()?;
        self.tree.read_start_below(root, path, FILE_BYTES, &mut content).ok()?;
        Some(content)
    }

    /// Lists the names in a folder.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let list = |root: &String| {
            self.tree.list(
                &format!("{}/{}", root.trim_end_matches('/'), path.trim_start_matches('/')),
                MAX_ENTRIES,
            )
        };
        self.root.as_ref().map(list).and_then(Result::ok).unwrap_or_default()
    }
}

/// A VM's installation; `None` for unknown values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// Its folder (`-root`), as a path in the VM's own root.
    pub root: Option<String>,
    /// Version of ERTS: `13.1.5`.
    pub erts_version: Option<String>,
    /// Major OTP release: 25.
    pub otp_release: Option<u32>,
    /// Full version of OTP, if the installation has the file: `25.2.3`.
    pub otp_version: Option<String>,
    /// `opt`, `lcnt`, `debug` …, from the emulator's file name.
    pub emulator_type: Option<String>,
}

impl Installation {
    /// Derives the installation from the command line, the environment, the executable (if readable), and files.
    pub(crate) fn of<T: FileTree>(
        line: &CommandLine,
        environment: &Environment,
        executable: Option<&str>,
        comm: &str,
        files: &Files<'_, T>,
    ) -> Self {
        let root = line.value("root").or(environment.get("ROOTDIR")).map(text::printable);
        let paths = [line.value("bindir"), executable, line.program(), environment.get("BINDIR")];
        let folder = |name: &str| {
            root.as_deref().map(|root| format!("{}/releases/{name}", root.trim_end_matches('/')))
        };
        let erts_version = paths.iter().flatten().find_map(|path| erts_in_path(path)).or_else(|| {
            let content = String::from_utf8_lossy(&files.read(&folder("start_erl.data")?)?).into_owned();
            content.split_whitespace().next().filter(|version| is_version(version)).map(str::to_owned)
        });
        let otp_release = erts_version.as_deref().and_then(otp_of_erts);
        let otp_version = otp_release.and_then(|release| {
            // A locally patched version ends in "**" (System Principles, Versions).
            let content = files.read(&folder(&format!("{release}/OTP_VERSION"))?)?;
            let version = text::first_line(&content).trim_end_matches('*').to_owned();
            is_version(&version).then_some(version)
        });
        let file = executable
            .and_then(|path| path.trim_end_matches(" (deleted)").rsplit('/').next())
            .unwrap_or(comm);
        Installation { root, erts_version, otp_release, otp_version, emulator_type: emulator_type(file) }
    }
}

/// Whether a text is a version such as `13.1.5` or `27.0-rc1`.
fn is_version(text: &str) -> bool {
    text.len() <= 40
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-+_~".contains(c))
}

/// Finds the ERTS version in a path such as `/usr/lib/erlang/erts-13.1.5/bin`.
fn erts_in_path(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').filter_map(|part| part.strip_prefix("erts-"));
    parts.find(|version| is_version(version)).map(str::to_owned)
}

/// Returns the OTP release of an ERTS version. Since OTP 23, the major versions of both advance in step; OTP 21 and 22 share one.
/// Source: otp_versions.table in OTP's repository.
pub fn otp_of_erts(version: &str) -> Option<u32> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let major = numbers.next()??;
    match major {
        6..=9 => Some(major + 11),
        10 => Some(if numbers.next().flatten()? < 4 { 21 } else { 22 }),
        11..=100 => Some(major + 12),
        _ => None,
    }
}

/// Returns the emulator type for a file name: `opt` for `beam.smp`, `lcnt` for `beam.lcnt.smp` (erlexec.c). `None` for other files.
/// The kernel truncates process names to 15 bytes, so the end may be missing.
pub(crate) fn emulator_type(file: &str) -> Option<String> {
    let rest = file.strip_prefix("beam")?;
    let Some(rest) = rest.strip_prefix('.') else {
        return rest.is_empty().then(|| "opt".to_owned());
    };
    let mut parts = rest.split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("smp" | "emu" | "jit"), None, None) => Some("opt".to_owned()),
        (Some(kind), Some(flavor), None) => {
            let flavors = ["smp", "emu", "jit"];
            let fits = flavors.contains(&flavor)
                || (file.len() == 15 && flavors.iter().any(|f| f.starts_with(flavor)));
            let plain = !kind.is_empty() && kind.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            (fits && plain).then(|| kind.to_owned())
        }
        _ => None,
    }
}

/// Finds the version of an application in a path such as `/opt/rabbitmq_server-3.10.8/plugins`.
pub(crate) fn version_in_path(path: &str, application: &str) -> Option<String> {
    let version = |part: &str| {
        let version = part.strip_prefix(application)?.strip_prefix('-')?;
        is_version(version).then(|| version.to_owned())
    };
    path.split(['/', ':']).find_map(version)
}

/// Returns the path of a process's executable; `None` if it is not readable.
pub(crate) fn executable(tree: &impl FileTree, pid: u32) -> Result<Option<String>, HostError> {
    match tree.read_link(&format!("/proc/{pid}/exe")) {
        Ok(path) => Ok(Some(path)),
        Err(HostError::Denied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::FakeHost;

    #[test]
    fn otp_release_follows_from_erts() {
        let check = |erts, otp| assert_eq!(otp_of_erts(erts), otp, "{erts}");
        check("8.3.5.7", Some(19));
        check("9.3", Some(20));
        check("10.3.5.19", Some(21));
        check("10.4", Some(22));
        check("10.7.2.19", Some(22));
        check("11.1.8", Some(23));
        check("13.1.5", Some(25));
        check("15.2.7", Some(27));
        check("17.1.1", Some(29));
        check("5.10.4", None);
        check("x", None);
        check("", None);
    }

    #[test]
    fn emulator_type_follows_from_the_file_name() {
        let check = |file, expect: Option<&str>| assert_eq!(emulator_type(file).as_deref(), expect, "{file}");
        check("beam.smp", Some("opt"));
        check("beam", Some("opt"));
        check("beam.emu", Some("opt"));
        check("beam.lcnt.smp", Some("lcnt"));
        check("beam.debug.smp", Some("debug"));
        check("beam.frmptr.smp", Some("frmptr"));
        // "beam.valgrind.smp", truncated by the kernel.
        check("beam.valgrind.s", Some("valgrind"));
        check("beam.py", None);
        check("beam.debug.py", None);
        check("beam.d.s", None);
        check("beamer", None);
        check("beam.", None);
        check("beam.smp.old.x", None);
        check("erlexec", None);
    }

    #[test]
    fn versions_are_found_in_paths() {
        let check = |path, expect: Option<&str>| assert_eq!(erts_in_path(path).as_deref(), expect, "{path}");
        check("/usr/lib/erlang/erts-13.1.5/bin/beam.smp", Some("13.1.5"));
        check("/srv/erts-1/x/erts-15.2/bin", Some("15.2"));
        check("/srv/erts-/bin", None);
        check("/srv/erts-x/bin", None);
        let check = |path, expect: Option<&str>| {
            assert_eq!(version_in_path(path, "rabbitmq_server").as_deref(), expect);
        };
        check("/a:/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/plugins:/b", Some("3.10.8"));
        check("/usr/lib/rabbitmq_server/x", None);
        check("/usr/lib/rabbitmq_server-\x1b[2J/x", None);
    }

    #[test]
    fn exact_version_is_read_from_the_installation() {
        let host = FakeHost::new();
        let tree = host.tree();
        let line = CommandLine::parse(b"beam.smp\0--\0-root\0/opt/otp\0-progname\0erl\0");
        let of = |root: Option<&str>| {
            let files = Files { tree: &tree, root: root.map(str::to_owned) };
            Installation::of(
                &line,
                &Environment::default(),
                Some("/opt/otp/erts-13.1.5/bin/beam.smp"),
                "beam.smp",
                &files,
            )
        };
        assert_eq!(of(Some("/")).otp_version, None);
        host.file("/opt/otp/releases/25/OTP_VERSION", "25.2.3**\n");
        let expect = Installation {
            root: Some("/opt/otp".to_owned()),
            erts_version: Some("13.1.5".to_owned()),
            otp_release: Some(25),
            otp_version: Some("25.2.3".to_owned()),
            emulator_type: Some("opt".to_owned()),
        };
        assert_eq!(of(Some("/")), expect);
        // If the VM has another root, the files below our root are not read.
        assert_eq!(of(Some("/proc/7/root")).otp_version, None);
        assert_eq!(of(None).otp_version, None);
        host.file("/opt/otp/releases/25/OTP_VERSION", "root:x:0:0\n");
        assert_eq!(of(Some("/")).otp_version, None);
    }

    #[test]
    fn links_and_devices_of_a_container_are_not_followed_outside() {
        let host = FakeHost::new();
        host.file("/secret", "25.9").file("/box/opt/x", "");
        let tree = host.tree();
        let files = Files { tree: &tree, root: Some("/box".to_owned()) };
        host.link("/box/opt/up", "../../secret").link("/box/opt/absolute", "/secret");
        assert_eq!(files.read("/opt/up"), None);
        assert_eq!(files.read("/opt/absolute"), None);
        assert_eq!(files.read("/../secret"), None);
        // A link within the root is followed as the process itself would follow it.
        host.file("/box/secret", "mine");
        assert_eq!(files.read("/opt/absolute").as_deref(), Some(&b"mine"[..]));
        // Opening a FIFO could block until another process writes to it.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            host.path("/box/fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert_eq!(files.read("/fifo"), None);
        assert_eq!(files.read("/opt"), None);
    }

    #[test]
    fn the_version_is_read_from_start_erl_data_if_it_is_in_no_path() {
        let host = FakeHost::new();
        host.file("/srv/demo/releases/start_erl.data", "15.2.7 0.1.0\n");
        let tree = host.tree();
        let line = CommandLine::parse(b"beam.smp\0--\0-root\0/srv/demo\0-progname\0erl\0");
        let files = Files { tree: &tree, root: Some("/".to_owned()) };
        let found = Installation::of(&line, &Environment::default(), None, "beam.smp", &files);
        assert_eq!((found.erts_version.as_deref(), found.otp_release), (Some("15.2.7"), Some(27)));
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,60}") {
            let _ = (erts_in_path(&text), otp_of_erts(&text), emulator_type(&text), version_in_path(&text, "x"));
        }
    }
}
