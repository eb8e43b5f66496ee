//! The Erlang installation for which an emulator is built: that of a running node, of a folder, or of the `erl` on the PATH.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use beamtune_emulator::installation::search_path;
use beamtune_emulator::program::Program;
use beamtune_emulator::source::version;
use beamtune_emulator::{Installation, debian_version_of};
use beamtune_host::discovery::Vm;
use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_node::access::AccessOptions;
use beamtune_node::target::LiveTarget;

use crate::terminal;

/// The file that names the Linux distribution of a system.
const OS_RELEASE: &str = "/etc/os-release";
const OS_RELEASE_BYTES: usize = 16 << 10;

/// An Erlang installation for which an emulator is built.
pub struct TargetErlang {
    /// Its name for messages.
    pub label: String,
    /// Version and build of its emulator.
    pub program: Program,
    /// Its OTP version, if a file contains it.
    pub otp: Option<String>,
    /// Its folder, as a path in its own root file system.
    pub root: Option<String>,
    /// Its folder, as a path of this host; `None` if it is in another root file system.
    pub folder: Option<PathBuf>,
    /// Its folder, if it is safe for this user to execute its code.
    pub trusted: Option<PathBuf>,
    /// Version of the Debian source package from which it was built.
    pub debian: Option<String>,
    /// The contents of /etc/os-release in its system.
    pub os_release: Option<String>,
}

impl TargetErlang {
    /// Resolves the option `--for`.
    pub fn find(text: &str) -> Result<TargetErlang> {
        let folder = Path::new(text);
        if text.contains('/') || (folder.is_dir() && text.parse::<u32>().is_err()) {
            return TargetErlang::of(&Installation::at(folder)?);
        }
        let live = LiveTarget::find(Some(text), &AccessOptions::new(terminal::complain))?;
        match &live.vm {
            Some(vm) => TargetErlang::of_vm(vm, &live.label),
            None => bail!(
                "{} runs on another host: build there, or give its version with --otp and its source with --source",
                live.label
            ),
        }
    }

    /// Returns the Erlang installation whose `erl` is on the PATH.
    pub fn on_path() -> Result<Option<TargetErlang>> {
        match Installation::for_command(OsStr::new("erl"), search_path().as_deref()) {
            Ok(installation) => TargetErlang::of(&installation).map(Some),
            Err(beamtune_emulator::Error::NoErl) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the properties of an installation or a release.
    pub fn of(installation: &Installation) -> Result<TargetErlang> {
        let emulator = installation.emulator();
        let root = &installation.root;
        Ok(TargetErlang {
            label: root.display().to_string(),
            program: Program::read(&emulator)?,
            otp: installation.otp.clone(),
            root: root.to_str().map(str::to_owned),
            folder: Some(root.clone()),
            trusted: may_run(root).then(|| root.clone()),
            debian: debian_version_of(&emulator),
            // A folder within another system, such as a chroot, has the /etc/os-release of that system.
            os_release: root.ancestors().find_map(|folder| os_release(folder.to_str()?)),
        })
    }

    fn of_vm(vm: &Vm, label: &str) -> Result<TargetErlang> {
        let pid = vm.identity.pid;
        // This is the running executable, even if its file was replaced. A link in a container must not lead to files of this host.
        let program = Program::read(Path::new(&format!("/proc/{pid}/exe")));
        let program = program.with_context(|| format!("cannot read the emulator of {label}"))?;
        let is_here = vm.root.as_deref() == Some("/");
        let executable = vm.executable.as_deref().filter(|_| is_here);
        Ok(TargetErlang {
            label: label.to_owned(),
            program,
            otp: vm.installation.otp_version.clone(),
            root: vm.installation.root.clone(),
            folder: vm.installation.root.as_ref().filter(|_| is_here).map(PathBuf::from),
            // Never trusted: anyone who can write to that folder could have their code executed by this user.
            trusted: None,
            debian: executable.and_then(|file| debian_version_of(Path::new(file))),
            os_release: vm.root.as_deref().and_then(os_release),
        })
    }

    /// Returns the ERTS and OTP versions, for messages.
    pub fn version(&self) -> String {
        version(Some(&self.program.erts), self.otp.as_deref())
    }

    /// Fails if the OTP version is known and differs from the given one.
    pub fn check_otp(&self, otp: Option<&str>) -> Result<()> {
        match (otp, &self.otp) {
            (Some(wanted), Some(found)) if wanted != found => bail!(
                "{} is {}, but --otp is {wanted}: omit --otp, or name the other installation",
                self.label,
                self.version()
            ),
            _ => Ok(()),
        }
    }
}

/// True if the folders of an installation belong to this user or root, and only the owner may write to them.
fn may_run(root: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    let ours = own_uid();
    ["", "bin", "lib", "releases"].map(|name| root.join(name)).iter().all(|folder| {
        match fs::metadata(folder) {
            Ok(found) => [Some(0), ours].contains(&Some(found.uid())) && found.mode() & OTHERS_WRITE == 0,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    })
}

/// Returns the user id of this process.
pub fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|found| found.uid())
}

fn os_release(root: &str) -> Option<String> {
    let mut content = Vec::new();
    LocalTree::default().read_start_below(root, OS_RELEASE, OS_RELEASE_BYTES, &mut content).ok()?;
    String::from_utf8(content).ok()
}
