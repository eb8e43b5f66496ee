//! Software written in Erlang, from Debian packages: idle, under load, and with settings that cause a fault.
//!
//! Each case is a file in `lab/software`. The software is started like a target of `compare`: with its own folders and ports, and as a
//! child of a guard process.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_node::Printer;
use beamtune_recording::Stop;
use beamtune_runner::preset::{self, free_port};
use beamtune_runner::process::{GuardedCommand, Launch, POLL_INTERVAL, launch};
use serde::Deserialize;
use tempfile::TempDir;

use crate::catalog::FILES;
use crate::host::Conditions;
use crate::manifest::HostSetting;
use crate::otp::cache;

/// The folder below `lab`.
pub(crate) const FOLDER: &str = "software";
/// Time limit for the software to accept connections.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit for the load to start.
const LOAD_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of progress lines after which the load counts as running; it writes one line per second.
const MIN_LOAD_LINES: usize = 5;
/// Suffix of the files that define cases. The other files in the folder are used by cases.
const CASE_SUFFIX: &str = ".case.toml";

/// Unmodified software in a known state.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of the file, without suffix.
    pub name: String,
    /// The software and its state, in a few words.
    pub title: String,
    /// The software.
    pub software: Software,
    /// Configuration file in `lab/software`, instead of `ejabberd.yml` or `yaws.conf`.
    pub config: Option<String>,
    /// Emulator flags, in addition to the software's own.
    #[serde(default)]
    pub erl: Vec<String>,
    /// Host conditions for the VM.
    #[serde(default)]
    pub host: HostSetting,
    /// The load; `None`: the software is idle.
    pub load: Option<Load>,
    /// Expected findings, as in a lab's manifest; empty if there is no fault.
    #[serde(default)]
    pub expect: Vec<String>,
    /// Allowed findings, as in a lab's manifest.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The root cause, as in a lab's manifest.
    pub cause: Option<String>,
    /// A name that an expected finding must contain.
    pub culprit: Option<String>,
}

/// The load of a case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The command line. `$BEAMTUNE` is this program, `$PERFTEST` the folder of PerfTest, `$BEAMTUNE_PORT` the port of the software,
    /// and `$FILES` the folder with the files of `lab/software`. The command writes a progress line per second to the file `$TOLD`.
    command: String,
    /// Text that each progress line contains.
    tells: String,
}

/// The kinds of software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Software {
    /// The message broker, from the package `rabbitmq-server`.
    RabbitMq,
    /// The XMPP and MQTT server.
    Ejabberd,
    /// The HTTP server.
    Yaws,
}

impl Software {
    /// Returns the name of the software's configuration file.
    fn config(self) -> Result<&'static str> {
        match self {
            Software::RabbitMq => bail!("RabbitMQ cases have no configuration file"),
            Software::Ejabberd => Ok("ejabberd.yml"),
            Software::Yaws => Ok("yaws.conf"),
        }
    }
}

/// Returns all cases, sorted by name.
pub fn all() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let folder = FILES.get_dir(FOLDER);
    for file in folder.iter().flat_map(|folder| folder.files()) {
        let path = file.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(CASE_SUFFIX)) else {
            continue;
        };
        let text = file.contents_utf8().with_context(|| format!("lab/{} is not UTF-8", path.display()))?;
        let case: Case = toml::from_str(text).with_context(|| format!("lab/{}", path.display()))?;
        if case.name != name {
            bail!("lab/{} contains the name {}", path.display(), case.name);
        }
        cases.push(case);
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

impl Case {
    /// Returns what is missing on this host to run the case; `None` if it can run.
    pub(crate) fn missing(&self) -> Option<String> {
        let (program, package) = match self.software {
            Software::RabbitMq => ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),
            Software::Ejabberd => ("/usr/sbin/ejabberdctl", "ejabberd"),
            Software::Yaws => ("/usr/bin/yaws", "yaws"),
        };
        if !Path::new(program).exists() {
            return Some(format!("{package} is not installed (scripts/install.sh test)"));
        }
        let needs_perftest = self.load.as_ref().is_some_and(|load| load.command.contains("$PERFTEST"));
        if needs_perftest && !perftest().is_some_and(|folder| folder.is_dir()) {
            return Some("PerfTest is not downloaded (scripts/perftest.sh)".to_owned());
        }
        None
    }
}

/// Returns the folder of PerfTest.
fn perftest() -> Option<PathBuf> {
    std::env::var_os("PERFTEST").map(PathBuf::from).or_else(|| Some(cache()?.join("perftest")))
}

/// Running software. Dropping it ends all of its processes, those of the load first.
pub(crate) struct RunningSoftware {
    load: Option<GuardedCommand>,
    target: u32,
    // Dropped in this order.
    software: GuardedCommand,
    conditions: Conditions,
    _own: TempDir,
    _data: TempDir,
}

impl RunningSoftware {
    /// Returns the process id of the VM.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Returns the processes that were started for the case, without their child processes.
    pub fn processes(&self) -> Vec<u32> {
        let guards =
            [Some(&self.software), self.load.as_ref()].into_iter().flatten().map(GuardedCommand::guard);
        guards.chain(self.conditions.neighbours()).collect()
    }
}

/// Starts the software and its load, and waits until both run.
pub(crate) fn start(case: &Case, stop: &Stop, print: Printer) -> Result<RunningSoftware> {
    let folder = |prefix: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        let created = tempfile::Builder::new().prefix(prefix).permissions(permissions).tempdir();
        created.context("cannot create a temporary folder for the software")
    };
    // The software may switch to another user.
    let (own, data) = (folder("beamtune-software-", 0o700)?, folder("beamtune-data-", 0o755)?);
    let port = free_port()?;
    let data_path = data.path().to_str().context("the path of the temporary folder is not UTF-8")?;
    write_files(data.path(), port)?;
    if let Some(config) = &case.config {
        let (from, to) = (data.path().join(config), data.path().join(case.software.config()?));
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy lab/{FOLDER}/{config}"))?;
    }
    let line = match case.software {
        Software::RabbitMq => preset::rabbitmq()?.start,
        Software::Ejabberd => preset::ejabberd(data.path())?.start,
        Software::Yaws => "HOME=\"$BEAMTUNE_FOLDER\" exec yaws -i --conf \"$BEAMTUNE_FOLDER/yaws.conf\" \
                           --id beamtune_yaws --sname beamtune_yaws@localhost --erlarg -noinput"
            .to_owned(),
    };
    let mut environment = vec![
        ("BEAMTUNE_FOLDER".to_owned(), data_path.to_owned()),
        ("BEAMTUNE_PORT".to_owned(), port.to_string()),
    ];
    let conditions = Conditions::new(&case.host, &format!("{}-{}", case.name, std::process::id()), print)?;
    let mut software = launch(Launch {
        command: &conditions.shell(&line),
        folder: data.path(),
        flags: &case.erl,
        environment: environment.clone(),
        cpus: &[],
        folders: &[own.path(), data.path()],
        log: own.path().join("software.log"),
        out: None,
    })?;
    let address = format!("127.0.0.1:{port}");
    wait(&mut software, stop, READY_TIMEOUT, &format!("{} to serve", case.name), || {
        std::net::TcpStream::connect(&address).is_ok()
    })?;
    // The start scripts of the software may also run a VM.
    let vms = software.vms();
    let Some(vm) = vms.iter().find(|vm| vm.distribution.name.is_some()) else {
        bail!("{} serves, but none of its {} VMs is a node", case.name, vms.len());
    };
    let target = vm.identity.pid;

    let mut running = RunningSoftware { load: None, target, software, conditions, _own: own, _data: data };
    if let Some(load) = &case.load {
        let progress = running._own.path().join("progress");
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let program = std::env::current_exe().context("cannot find this program")?;
        environment.push(("BEAMTUNE".to_owned(), path(&program)));
        environment.push(("TOLD".to_owned(), path(&progress)));
        environment.push(("FILES".to_owned(), path(running._data.path())));
        environment.extend(perftest().map(|folder| ("PERFTEST".to_owned(), path(&folder))));
        let mut loading = launch(Launch {
            command: &load.command,
            folder: running._data.path(),
            flags: &[],
            environment,
            cpus: &[],
            folders: &[],
            log: running._own.path().join("load.log"),
            out: None,
        })?;
        wait(&mut loading, stop, LOAD_TIMEOUT, "its load", || {
            let text = std::fs::read_to_string(&progress).unwrap_or_default();
            text.lines().filter(|line| line.contains(&load.tells)).count() >= MIN_LOAD_LINES
        })?;
        running.load = Some(loading);
    }
    Ok(running)
}

/// Writes the other files of `lab/software`, with port and folder inserted.
fn write_files(folder: &Path, port: u16) -> Result<()> {
    let files = FILES.get_dir(FOLDER);
    for file in files.iter().flat_map(|files| files.files()) {
        let Some(name) = file.path().file_name().and_then(|name| name.to_str()) else { continue };
        let Some(text) = file.contents_utf8().filter(|_| !name.ends_with(CASE_SUFFIX)) else { continue };
        let text = text
            .replace("$BEAMTUNE_PORT", &port.to_string())
            .replace("$BEAMTUNE_FOLDER", &folder.to_string_lossy());
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Waits for a condition. The error contains the last output of the command.
fn wait(
    command: &mut GuardedCommand,
    stop: &Stop,
    within: Duration,
    what: &str,
    mut is_met: impl FnMut() -> bool,
) -> Result<()> {
    let until = Instant::now() + within;
    while !is_met() {
        let failed = command.exit().filter(|exit| !exit.is_success()).map(|exit| exit.how.clone());
        if let Some(how) = failed {
            bail!("waited for {what}, but it {how}: {}", command.last_output());
        }
        if stop.is_requested() || Instant::now() > until {
            bail!("waited for {what} for {} s; its output: {}", within.as_secs(), command.last_output());
        }
        stop.wait(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge;

    #[test]
    fn every_case_expects_known_codes() {
        let cases = all().expect("cases");
        assert!(cases.iter().any(|case| case.expect.is_empty()));
        for case in cases {
            for code in
                case.expect.iter().chain(&case.allow).flat_map(|expectation| judge::codes(expectation))
            {
                let known = beamtune_rules::RULES.iter().any(|rule| rule.code.0 == code);
                assert!(known, "{}: {code}", case.name);
            }
            assert!(case.cause.is_none_or(|cause| case.expect.contains(&cause)), "{}: its cause", case.name);
        }
    }
}
