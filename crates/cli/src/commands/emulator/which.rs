//! For which Erlang an emulator is built: that of a running node, of a folder, or the one on the PATH.

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

use crate::access::AccessArgs;
use crate::subject::Live;

/// Where a system says what it is.
const OS_RELEASE: &str = "/etc/os-release";
const OS_RELEASE_BYTES: usize = 16 << 10;

/// What is known of an Erlang for which an emulator is wanted.
pub struct Wanted {
    /// What it is, for people.
    pub label: String,
    /// What its emulator says.
    pub program: Program,
    /// Its OTP, where a file tells.
    pub otp: Option<String>,
    /// Its folder as it sees it itself.
    pub root: Option<String>,
    /// Its folder as we see it, if it is no other system's.
    pub folder: Option<PathBuf>,
    /// The same, if its code may be run by us.
    pub trusted: Option<PathBuf>,
    /// The version of Debian's source package that it was built of.
    pub debian: Option<String>,
    /// What its system says it is.
    pub os_release: Option<String>,
}

impl Wanted {
    /// What is meant by the option --for.
    pub fn find(text: &str) -> Result<Wanted> {
        let folder = Path::new(text);
        if text.contains('/') || (folder.is_dir() && text.parse::<u32>().is_err()) {
            return Wanted::of(&Installation::at(folder)?);
        }
        let live = Live::find(Some(text), &AccessArgs::default())?;
        match &live.vm {
            Some(vm) => Wanted::of_vm(vm, &live.label),
            None => bail!(
                "{} is on another host, where its files are: build there, or name its versions with --otp and its source with --source",
                live.label
            ),
        }
    }

    /// That whose `erl` is on the PATH, if one is.
    pub fn on_path() -> Result<Option<Wanted>> {
        match Installation::of_command(OsStr::new("erl"), search_path().as_deref()) {
            Ok(installation) => Wanted::of(&installation).map(Some),
            Err(beamtune_emulator::Error::NoErl) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// That of an installation or a release.
    pub fn of(installation: &Installation) -> Result<Wanted> {
        let emulator = installation.emulator();
        let root = &installation.root;
        Ok(Wanted {
            label: root.display().to_string(),
            program: Program::read(&emulator)?,
            otp: installation.otp.clone(),
            root: root.to_str().map(str::to_owned),
            folder: Some(root.clone()),
            trusted: may_run(root).then(|| root.clone()),
            debian: debian_version_of(&emulator),
            // A folder in a system of its own, as a chroot has it, is that system's.
            os_release: root.ancestors().find_map(|folder| os_release(folder.to_str()?)),
        })
    }

    fn of_vm(vm: &Vm, label: &str) -> Result<Wanted> {
        let pid = vm.identity.pid;
        // What runs, whatever stands in its place by now; and no link of a container leads into our files.
        let program = Program::read(Path::new(&format!("/proc/{pid}/exe")));
        let program = program.with_context(|| format!("which emulator {label} runs cannot be read"))?;
        let is_here = vm.root.as_deref() == Some("/");
        let executable = vm.executable.as_deref().filter(|_| is_here);
        Ok(Wanted {
            label: label.to_owned(),
            program,
            otp: vm.installation.otp_version.clone(),
            root: vm.installation.root.clone(),
            folder: vm.installation.root.as_ref().filter(|_| is_here).map(PathBuf::from),
            // Whoever may write there would have his code run by us.
            trusted: None,
            debian: executable.and_then(|file| debian_version_of(Path::new(file))),
            os_release: vm.root.as_deref().and_then(os_release),
        })
    }

    /// Its versions, for people.
    pub fn version(&self) -> String {
        version(Some(&self.program.erts), self.otp.as_deref())
    }

    /// That it is of the OTP that was asked for, where it tells which it is.
    pub fn check_otp(&self, otp: Option<&str>) -> Result<()> {
        match (otp, &self.otp) {
            (Some(wanted), Some(found)) if wanted != found => bail!(
                "{} is {}, but --otp asks for {wanted}: leave it out, or name the other installation",
                self.label,
                self.version()
            ),
            _ => Ok(()),
        }
    }
}

/// Whether the code of an installation belongs to us or root, and nobody else may write it, as far as its own folders tell.
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

/// Who we are: the owner of our own process.
pub fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|found| found.uid())
}

fn os_release(root: &str) -> Option<String> {
    let mut content = Vec::new();
    LocalTree::default().read_start_below(root, OS_RELEASE, OS_RELEASE_BYTES, &mut content).ok()?;
    String::from_utf8(content).ok()
}
