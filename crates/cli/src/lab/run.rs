//! Runs a lab: compiles its modules on the target's own OTP, starts its VM, and, where it has one, its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::host::Conditions;
use super::{Lab, elixir, nif, sources};

/// Which Erlang runs the lab.
#[derive(Debug, Clone, Default)]
pub struct Erlang {
    /// A folder with a whole system in it, entered by chroot; `None` for this one.
    pub root: Option<PathBuf>,
    /// The `erl` program; from PATH if not given.
    pub erl: Option<PathBuf>,
}

/// How a lab is run.
#[derive(Debug, Clone)]
pub struct Options {
    pub seed: u32,
    pub cured: bool,
    pub erlang: Erlang,
    /// CPUs of the machine that it is to be sick on: it has schedulers and work for them.
    pub cores: u32,
    /// The lab ends by itself after this.
    pub for_seconds: u32,
    /// Parameters `key=number` that take the place of drawn ones.
    pub params: Vec<String>,
    /// Where its VMs write their standard error, such as what they log; ours if `None`.
    pub errors: Option<Arc<File>>,
}

/// A running lab; dropping it ends all of its processes.
pub struct Running {
    vm: Child,
    /// What the user names it by.
    target: String,
    driver: Option<Child>,
    lines: Receiver<String>,
    // Dropped after the processes.
    conditions: Conditions,
    modules: Arc<Modules>,
}

/// The labs' modules as one Erlang has compiled them.
pub struct Modules {
    erlang: Erlang,
    folder: TempDir,
    /// Labs whose native library lies there, too.
    with_library: Mutex<BTreeSet<String>>,
    /// Labs in Elixir that lie there, too, each with the further folders of modules that it needs.
    in_elixir: Mutex<BTreeMap<String, Vec<PathBuf>>>,
}

impl Modules {
    /// Compiles all modules of the labs with the `erlc` of the Erlang that will run them.
    pub fn compile(erlang: &Erlang) -> Result<Modules> {
        Ok(Modules {
            erlang: erlang.clone(),
            folder: compile(erlang)?,
            with_library: Mutex::default(),
            in_elixir: Mutex::default(),
        })
    }

    /// Compiles the native library of a lab that has one, once.
    fn add_library(&self, lab: &Lab) -> Result<()> {
        let Some((name, text)) = lab.nif()? else { return Ok(()) };
        let mut with_library = self.with_library.lock().unwrap_or_else(PoisonError::into_inner);
        // A VM may have loaded the one that is there.
        if !with_library.contains(&lab.manifest.name) {
            let source = self.folder.path().join(name);
            std::fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
            nif::compile(&source, &self.erlang)?;
            with_library.insert(lab.manifest.name.clone());
        }
        Ok(())
    }

    /// All folders of modules that a lab needs; of one in Elixir, it is compiled first, once.
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

/// What the lab has said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// The pathology is there; the line as the lab printed it.
    Ready(String),
    /// Anything else.
    Line(String),
    /// The lab's VM has ended.
    Ended,
    /// Nothing in the given time.
    Nothing,
}

impl Erlang {
    /// A command of this Erlang's system: inside its root, and with what goes before it.
    pub(super) fn command(&self, program: &str, conditions: &Conditions) -> Command {
        match &self.root {
            Some(root) => {
                let mut command = conditions.command("chroot");
                command.arg(root).arg(program);
                command
            }
            None => conditions.command(program),
        }
    }

    pub(super) fn erl(&self) -> String {
        self.erl.as_ref().map_or_else(|| "erl".to_owned(), |path| path.display().to_string())
    }

    fn erlc(&self) -> String {
        match &self.erl {
            // A script that starts another emulator stands alone.
            Some(path) if path.with_file_name("erlc").exists() => {
                path.with_file_name("erlc").display().to_string()
            }
            _ => "erlc".to_owned(),
        }
    }

    /// A path of ours as the Erlang sees it.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => Path::new("/").join(path.strip_prefix(root).unwrap_or(path)),
            None => path.to_owned(),
        }
    }
}

impl Running {
    /// Starts a lab with modules that its Erlang has compiled; returns before its pathology is established.
    pub fn start(lab: &Lab, options: &Options, modules: &Arc<Modules>) -> Result<Running> {
        let name = format!("{}-{}", lab.manifest.name, identity(options));
        modules.add_library(lab)?;
        let setting = lab.manifest.setting(options.cured);
        let conditions = Conditions::new(&setting.host, &name)?;
        if conditions.has_groups() {
            // Else the VM would start it in the control group, where it stays when the lab has ended. Without it the VM does all the same.
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
            // The process is that of the shell that starts the VM again.
            true => node_name(lab, options, ""),
            false => child.id().to_string(),
        };
        Ok(Running {
            vm: child,
            target,
            driver: None,
            lines: read_lines(stdout),
            conditions,
            modules: Arc::clone(modules),
        })
    }

    /// The lab's VM, as beamtune takes it: its process id, or its name where it gets another one now and then.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// All that was started for it; what these have started themselves is not listed.
    pub fn processes(&self) -> Vec<u32> {
        let vms = [Some(&self.vm), self.driver.as_ref()].into_iter().flatten().map(Child::id);
        vms.chain(self.conditions.neighbours()).collect()
    }

    /// Waits for the lab's next line, and starts the driver when the lab asks for it.
    pub fn next(&mut self, lab: &Lab, options: &Options, patience: Duration) -> Result<Said> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let line = match self.lines.recv_timeout(patience) {
            Ok(line) => line,
            Err(Timeout) => return Ok(Said::Nothing),
            Err(Disconnected) => return Ok(Said::Ended),
        };
        if let Some(port) = line.strip_prefix("lab driver port=") {
            self.driver = Some(self.start_driver(lab, options, port)?);
            return Ok(Said::Line(line));
        }
        Ok(if line.starts_with("lab ready ") { Said::Ready(line) } else { Said::Line(line) })
    }

    fn start_driver(&self, lab: &Lab, options: &Options, port: &str) -> Result<Child> {
        let driver = lab
            .manifest
            .driver
            .as_ref()
            .context("the lab asks for a driver that its manifest does not have")?;
        let none = Conditions::default();
        let mut command = vm(lab, options, &none, &self.modules.folders(lab)?, &driver.erl, "_driver")?;
        command.args(["-run", &lab.module(), &driver.function]).args(arguments(options));
        command
            .arg(format!("port={port}"))
            .arg(format!("for_s={}", options.for_seconds))
            .stdout(Stdio::null());
        command.spawn().context("cannot start the lab's driver")
    }

    /// Waits for the end of the VM, which has closed its output.
    pub fn wait(&mut self) -> Result<std::process::ExitStatus> {
        self.vm.wait().context("cannot wait for the lab's VM")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in [Some(&mut self.vm), self.driver.as_mut()].into_iter().flatten() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn arguments(options: &Options) -> [String; 2] {
    [options.seed.to_string(), if options.cured { "cured" } else { "sick" }.to_owned()]
}

/// What tells this run from others of the same lab, which may go on beside it.
fn identity(options: &Options) -> String {
    let Options { seed, cured, .. } = options;
    format!("{seed}_{}_{}", std::process::id(), if *cured { "c" } else { "s" })
}

/// The name of a lab's node, or of its driver's.
fn node_name(lab: &Lab, options: &Options, suffix: &str) -> String {
    format!("{}_{}{suffix}@127.0.0.1", lab.module(), identity(options))
}

/// A VM of the lab, without what it runs.
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
        command.stderr(errors.try_clone().context("cannot hand on the file for what the VM logs")?);
    }
    Ok(command)
}

/// Compiles all modules of the lab with the `erlc` of the Erlang that will run them.
fn compile(erlang: &Erlang) -> Result<TempDir> {
    let temporary = match &erlang.root {
        Some(root) => root.join("tmp"),
        None => std::env::temp_dir(),
    };
    let folder = tempfile::Builder::new()
        .prefix("beamtune-lab-")
        .tempdir_in(&temporary)
        .with_context(|| format!("cannot make a folder in {}", temporary.display()))?;
    let mut command = erlang.command(&erlang.erlc(), &Conditions::default());
    // erlc of OTP 25 takes the working folder off the front of a path, also where only the beginning of a name is the
    // same. (A relative path of erl counts from where we are.)
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
        // erlc tells on its standard output what is wrong, and what starts it on the other one.
        bail!(
            "the lab does not compile here:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(folder)
}

/// Lines of the VM's output as they come; the channel closes with the output.
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
