//! Software that others have written on Erlang, as Debian brings it: idle, under load, and with settings that make it sick.
//!
//! Each case is a file in `lab/software`. The software is started as `compare` starts it, with folders and ports of its
//! own, below a guard that ends all of it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_recording::Stop;
use serde::Deserialize;
use tempfile::TempDir;

use super::FILES;
use super::host::Conditions;
use super::manifest::HostSetting;
use super::otp::cache;
use crate::trial::preset::{self, free_port};
use crate::trial::started::{LOOK, Launch, Started, start as start_guarded};

/// Below `lab`.
pub const FOLDER: &str = "software";
/// How long software may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long a load may take until it flows.
const FLOWS_WITHIN: Duration = Duration::from_secs(90);
/// A load flows when it has told so often what it does: it tells once a second.
const FLOWS_LINES: usize = 5;
/// How the files of cases end; the others are what these need.
const CASE: &str = ".case.toml";

/// A case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The file's name.
    pub name: String,
    pub title: String,
    pub software: Software,
    /// The file here that is its configuration, in place of `ejabberd.yml` or `yaws.conf`.
    pub config: Option<String>,
    /// Emulator flags, behind the software's own.
    #[serde(default)]
    pub erl: Vec<String>,
    /// What is set up around it.
    #[serde(default)]
    pub host: HostSetting,
    /// The command line that loads it.
    pub load: Option<Load>,
    /// As in a lab's manifest; empty where nothing is wrong.
    #[serde(default)]
    pub expect: Vec<String>,
    #[serde(default)]
    pub allow: Vec<String>,
    pub cause: Option<String>,
    /// What a finding must name.
    pub culprit: Option<String>,
}

/// What loads it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The command line: `$BEAMTUNE` is this program, `$PERFTEST` where PerfTest is, `$BEAMTUNE_PORT` where the software
    /// serves, `$FILES` where the files of `lab/software` are, `$TOLD` the file that it writes each second.
    command: String,
    /// What stands in each line that it writes once a second.
    tells: String,
}

/// Which software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Software {
    RabbitMq,
    Ejabberd,
    Yaws,
}

impl Software {
    /// The name of its configuration.
    fn config(self) -> Result<&'static str> {
        match self {
            Software::RabbitMq => bail!("RabbitMQ is run without a file of its own"),
            Software::Ejabberd => Ok("ejabberd.yml"),
            Software::Yaws => Ok("yaws.conf"),
        }
    }
}

/// All cases, by name.
pub fn all() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let folder = FILES.get_dir(FOLDER);
    for file in folder.iter().flat_map(|folder| folder.files()) {
        let path = file.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(CASE)) else {
            continue;
        };
        let text = file.contents_utf8().with_context(|| format!("lab/{} is no text", path.display()))?;
        let case: Case = toml::from_str(text).with_context(|| format!("lab/{}", path.display()))?;
        if case.name != name {
            bail!("lab/{} has the name {}", path.display(), case.name);
        }
        cases.push(case);
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

impl Case {
    /// Why it cannot run here.
    pub fn missing(&self) -> Option<String> {
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
            return Some("PerfTest was not fetched (scripts/perftest.sh does, once)".to_owned());
        }
        None
    }
}

/// The folder of PerfTest.
fn perftest() -> Option<PathBuf> {
    std::env::var_os("PERFTEST").map(PathBuf::from).or_else(|| Some(cache()?.join("perftest")))
}

/// Software that runs; dropping it ends all of its processes, those of its load first.
pub struct Up {
    load: Option<Started>,
    target: u32,
    // In this order.
    started: Started,
    conditions: Conditions,
    _own: TempDir,
    _data: TempDir,
}

impl Up {
    /// The process id of its VM.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// All that was started for it; what these have started themselves is not listed.
    pub fn processes(&self) -> Vec<u32> {
        let guards = [Some(&self.started), self.load.as_ref()].into_iter().flatten().map(Started::guard);
        guards.chain(self.conditions.neighbours()).collect()
    }
}

/// Starts it with its load, and waits until it serves and the load flows.
pub fn start(case: &Case, stop: &Stop) -> Result<Up> {
    let folder = |prefix: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        let made = tempfile::Builder::new().prefix(prefix).permissions(permissions).tempdir();
        made.context("cannot make a folder for the software")
    };
    // The software may run as another user.
    let (own, data) = (folder("beamtune-software-", 0o700)?, folder("beamtune-data-", 0o755)?);
    let port = free_port()?;
    let data_path = data.path().to_str().context("the folder of temporary files has no name in UTF-8")?;
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
    let conditions = Conditions::new(&case.host, &format!("{}-{}", case.name, std::process::id()))?;
    let mut started = start_guarded(Launch {
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
    wait(&mut started, stop, READY_WITHIN, &format!("{} to serve", case.name), || {
        std::net::TcpStream::connect(&address).is_ok()
    })?;
    // Scripts that start others may be there, too.
    let vms = started.vms();
    let Some(vm) = vms.iter().find(|vm| vm.distribution.name.is_some()) else {
        bail!("{} serves, but none of its {} VMs is a node", case.name, vms.len());
    };
    let target = vm.identity.pid;

    let mut up = Up { load: None, target, started, conditions, _own: own, _data: data };
    if let Some(load) = &case.load {
        let told = up._own.path().join("told");
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let program = std::env::current_exe().context("cannot find this program")?;
        environment.push(("BEAMTUNE".to_owned(), path(&program)));
        environment.push(("TOLD".to_owned(), path(&told)));
        environment.push(("FILES".to_owned(), path(up._data.path())));
        environment.extend(perftest().map(|folder| ("PERFTEST".to_owned(), path(&folder))));
        let mut loading = start_guarded(Launch {
            command: &load.command,
            folder: up._data.path(),
            flags: &[],
            environment,
            cpus: &[],
            folders: &[],
            log: up._own.path().join("load.log"),
            out: None,
        })?;
        wait(&mut loading, stop, FLOWS_WITHIN, "its load to flow", || {
            let said = std::fs::read_to_string(&told).unwrap_or_default();
            said.lines().filter(|line| line.contains(&load.tells)).count() >= FLOWS_LINES
        })?;
        up.load = Some(loading);
    }
    Ok(up)
}

/// The files beside the cases, with the port in them.
fn write_files(folder: &Path, port: u16) -> Result<()> {
    let files = FILES.get_dir(FOLDER);
    for file in files.iter().flat_map(|files| files.files()) {
        let Some(name) = file.path().file_name().and_then(|name| name.to_str()) else { continue };
        let Some(text) = file.contents_utf8().filter(|_| !name.ends_with(CASE)) else { continue };
        let text = text
            .replace("$BEAMTUNE_PORT", &port.to_string())
            .replace("$BEAMTUNE_FOLDER", &folder.to_string_lossy());
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Waits for a condition, and tells what was said where it does not come.
fn wait(
    started: &mut Started,
    stop: &Stop,
    within: Duration,
    what: &str,
    mut is_so: impl FnMut() -> bool,
) -> Result<()> {
    let until = Instant::now() + within;
    while !is_so() {
        let ended = started.ended().filter(|ended| !ended.is_well()).map(|ended| ended.how.clone());
        if let Some(how) = ended {
            bail!("waited for {what}, but it {how}: {}", started.last_words());
        }
        if stop.is_requested() || Instant::now() > until {
            bail!("waited for {what} for {} s; it said: {}", within.as_secs(), started.last_words());
        }
        stop.wait(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::judge;

    #[test]
    fn every_case_expects_what_rules_find() {
        let cases = all().expect("cases");
        assert!(cases.iter().any(|case| case.expect.is_empty()));
        for case in cases {
            for code in case.expect.iter().chain(&case.allow).flat_map(|told| judge::codes(told)) {
                let known = beamtune_rules::RULES.iter().any(|rule| rule.code.0 == code);
                assert!(known, "{}: {code}", case.name);
            }
            assert!(case.cause.is_none_or(|cause| case.expect.contains(&cause)), "{}: its cause", case.name);
        }
    }
}
