//! Runs a lab: compiles its modules with the OTP release of its VM, then starts the VM and the lab's driver, if it has one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_node::Printer;
use tempfile::TempDir;

use crate::catalog::{Lab, sources};
use crate::erlang::Erlang;
use crate::host::Conditions;
use crate::{elixir, nif};

/// How a lab is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed for all parameters that are not given.
    pub seed: u32,
    /// True for the healthy variant.
    pub cured: bool,
    /// The Erlang installation that runs the lab.
    pub erlang: Erlang,
    /// Number of CPUs for which the lab's schedulers and work are sized.
    pub cores: u32,
    /// Time after which the lab ends.
    pub for_seconds: u32,
    /// Parameters `key=number`; the others are drawn from the seed.
    pub params: Vec<String>,
    /// File for the standard error of the lab's VMs; `None`: beamtune's own standard error.
    pub errors: Option<Arc<File>>,
    /// Prints warnings.
    pub print: Printer,
}

/// A running lab. Dropping it kills all of its processes.
pub struct RunningLab {
    vm: Child,
    /// The lab's VM as a TARGET argument of beamtune.
    target: String,
    driver: Option<Child>,
    lines: Receiver<String>,
    // Dropped after the processes.
    conditions: Conditions,
    modules: Arc<Modules>,
}

/// The labs' modules, compiled by one Erlang installation.
pub struct Modules {
    erlang: Erlang,
    folder: TempDir,
    /// Labs whose native library has been compiled.
    with_library: Mutex<BTreeSet<String>>,
    /// Labs in Elixir that have been compiled, with their additional code paths.
    in_elixir: Mutex<BTreeMap<String, Vec<PathBuf>>>,
}

impl Modules {
    /// Compiles the Erlang modules of all labs.
    pub fn compile(erlang: &Erlang) -> Result<Modules> {
        Ok(Modules {
            erlang: erlang.clone(),
            folder: compile(erlang)?,
            with_library: Mutex::default(),
            in_elixir: Mutex::default(),
        })
    }

    /// Compiles the native library of a lab, once.
    fn add_library(&self, lab: &Lab) -> Result<()> {
        let Some((name, text)) = lab.nif()? else { return Ok(()) };
        let mut with_library = self.with_library.lock().unwrap_or_else(PoisonError::into_inner);
        // A VM may have loaded an existing library, so it must not be replaced.
        if !with_library.contains(&lab.manifest.name) {
            let source = self.folder.path().join(name);
            std::fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
            nif::compile(&source, &self.erlang)?;
            with_library.insert(lab.manifest.name.clone());
        }
        Ok(())
    }

    /// Returns the code paths of a lab. A lab in Elixir is compiled before its first use.
    fn folders(&self, lab: &Lab) -> Result<Vec<PathBuf>> {
        let mut folders = vec![self.folder.path().to_owned()];
        let Some((name, text)) = lab.elixir()? else { return Ok(folders) };
        let mut in_elixir = self.in_elixir.lock().unwrap_or_else(PoisonError::into_inner);
        if !in_elixir.contains_key(&lab.manifest.name) {
            let further = elixir::compile(name, text, self.folder.path(), &self.erlang)?;
            in_elixir.insert(lab.manifest.name.clone(), further);
        }
        folders.extend(in_elixir.get(&lab.manifest.name).into_iter().flatten().cloned());
        Ok(folders)
    }
}

/// An event of a running lab.
#[derive(Debug, PartialEq, Eq)]
pub enum LabEvent {
    /// The fault is present. Contains the line that the lab printed.
    Ready(String),
    /// Another line.
    Line(String),
    /// The lab's VM has ended.
    Ended,
    /// No event within the timeout.
    Nothing,
}

impl RunningLab {
    /// Starts a lab; returns before its fault is present.
    pub fn start(lab: &Lab, options: &Options, modules: &Arc<Modules>) -> Result<RunningLab> {
        let name = format!("{}-{}", lab.manifest.name, identity(options));
        modules.add_library(lab)?;
        let setting = lab.manifest.setting(options.cured);
        let conditions = Conditions::new(&setting.host, &name, options.print)?;
        if conditions.has_groups() {
            // Otherwise the VM would start epmd in the control group, where it would remain. If this fails, the VM starts epmd anyway.
            let mut epmd = options.erlang.command("epmd", &Conditions::default());
            let _ = epmd.arg("-daemon").stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let mut params = vec![format!("for_s={}", options.for_seconds), format!("cores={}", options.cores)];
        params.extend(setting.params.iter().map(|(key, value)| format!("{key}={value}")));
        params.extend(options.params.iter().cloned());

        let mut command =
            vm(lab, options, &conditions, &modules.folders(lab)?, &setting.flags(options.cores), "")?;
        command.args(["-run", &lab.module(), "start"]).args(arguments(options)).args(&params);
        command.envs(&setting.env).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| {
            format!(
                "cannot start {}: is Erlang installed? (on Debian: apt-get install erlang-base)",
                options.erlang.erl()
            )
        })?;
        let stdout = child.stdout.take().context("the VM has no standard output")?;
        let target = match setting.host.restarts {
            // The child process is the shell that restarts the VM.
            true => node_name(lab, options, ""),
            false => child.id().to_string(),
        };
        Ok(RunningLab {
            vm: child,
            target,
            driver: None,
            lines: read_lines(stdout),
            conditions,
            modules: Arc::clone(modules),
        })
    }

    /// Returns the VM as a TARGET argument of beamtune: its process id, or its node name if restarts change the process id.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the processes that were started for the lab, without their child processes.
    pub fn processes(&self) -> Vec<u32> {
        let vms = [Some(&self.vm), self.driver.as_ref()].into_iter().flatten().map(Child::id);
        vms.chain(self.conditions.neighbours()).collect()
    }

    /// Waits for the next line of the lab. Starts the driver if the line requests it.
    pub fn next(&mut self, lab: &Lab, options: &Options, timeout: Duration) -> Result<LabEvent> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let line = match self.lines.recv_timeout(timeout) {
            Ok(line) => line,
            Err(Timeout) => return Ok(LabEvent::Nothing),
            Err(Disconnected) => return Ok(LabEvent::Ended),
        };
        if let Some(port) = line.strip_prefix("lab driver port=") {
            self.driver = Some(self.start_driver(lab, options, port)?);
            return Ok(LabEvent::Line(line));
        }
        Ok(if line.starts_with("lab ready ") { LabEvent::Ready(line) } else { LabEvent::Line(line) })
    }

    fn start_driver(&self, lab: &Lab, options: &Options, port: &str) -> Result<Child> {
        let driver =
            lab.manifest.driver.as_ref().context("the lab requests a driver that is not in its manifest")?;
        let none = Conditions::default();
        let mut command = vm(lab, options, &none, &self.modules.folders(lab)?, &driver.erl, "_driver")?;
        command.args(["-run", &lab.module(), &driver.function]).args(arguments(options));
        command
            .arg(format!("port={port}"))
            .arg(format!("for_s={}", options.for_seconds))
            .stdout(Stdio::null());
        command.spawn().context("cannot start the lab's driver")
    }

    /// Waits for the VM to end, after it has closed its output.
    pub fn wait(&mut self) -> Result<std::process::ExitStatus> {
        self.vm.wait().context("cannot wait for the lab's VM")
    }
}

impl Drop for RunningLab {
    fn drop(&mut self) {
        for child in [Some(&mut self.vm), self.driver.as_mut()].into_iter().flatten() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn arguments(options: &Options) -> [String; 2] {
    [options.seed.to_string(), if options.cured { "cured" } else { "sick" }.to_owned()]
}

/// Returns a name that distinguishes this run from simultaneous runs of the same lab.
fn identity(options: &Options) -> String {
    let Options { seed, cured, .. } = options;
    format!("{seed}_{}_{}", std::process::id(), if *cured { "c" } else { "s" })
}

/// Returns the node name of a lab's VM, or of its driver.
fn node_name(lab: &Lab, options: &Options, suffix: &str) -> String {
    format!("{}_{}{suffix}@127.0.0.1", lab.module(), identity(options))
}

/// Returns the command that starts a VM of a lab, without the function that the VM runs.
fn vm(
    lab: &Lab,
    options: &Options,
    conditions: &Conditions,
    folders: &[PathBuf],
    flags: &[String],
    suffix: &str,
) -> Result<Command> {
    let mut command = options.erlang.command(&options.erlang.erl(), conditions);
    command
        .args(flags)
        .args([
            "-name",
            &node_name(lab, options, suffix),
            "-setcookie",
            &format!("lab{}", std::process::id()),
            "-noinput",
            "-pa",
        ])
        .args(folders.iter().map(|folder| options.erlang.inside(folder)))
        .stdin(Stdio::null());
    if let Some(errors) = &options.errors {
        command.stderr(errors.try_clone().context("cannot duplicate the log file of the VM")?);
    }
    Ok(command)
}

/// Compiles the Erlang modules of all labs.
fn compile(erlang: &Erlang) -> Result<TempDir> {
    let temporary = match &erlang.root {
        Some(root) => root.join("tmp"),
        None => std::env::temp_dir(),
    };
    let folder = tempfile::Builder::new()
        .prefix("beamtune-lab-")
        .tempdir_in(&temporary)
        .with_context(|| format!("cannot create a folder in {}", temporary.display()))?;
    let mut command = erlang.command(&erlang.erlc(), &Conditions::default());
    // erlc of OTP 25 strips the working directory as a prefix of paths, even if it matches only the beginning of a folder's name. A
    // relative path of erl refers to the current working directory.
    if erlang.erl.as_ref().is_none_or(|erl| erl.is_absolute()) {
        command.current_dir(folder.path());
    }
    command.arg("-o").arg(erlang.inside(folder.path()));
    for (name, text) in sources() {
        let path = folder.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        command.arg(erlang.inside(&path));
    }
    let output = command.output().with_context(|| {
        format!("cannot run {}: is Erlang installed? (on Debian: apt-get install erlang-base)", erlang.erlc())
    })?;
    if !output.status.success() {
        // erlc prints errors to standard output, its start script to standard error.
        bail!(
            "the lab does not compile:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(folder)
}

/// Reads lines from the VM's output in a thread. The channel closes when the output does.
fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
