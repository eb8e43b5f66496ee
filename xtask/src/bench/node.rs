//! The nodes that are measured: which Erlangs there are, and VMs with a load of a known size.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::process::{Running, command, output};
use crate::repository;

/// What runs in the nodes.
const SOURCE: &str = include_str!("bench_node.erl");

/// Processes that wait, in the nodes that are measured.
pub const PROCESSES: u32 = 10_000;
/// ETS tables in them.
pub const TABLES: u32 = 500;

/// An Erlang on this machine.
#[derive(Debug, Clone)]
pub struct Otp {
    /// Its release: 25.
    pub release: u32,
    /// Folder with a whole system in it; `None` for this one.
    root: Option<PathBuf>,
}

/// Those that beamtune is tested on, as far as they are installed; the machine's own is the first.
pub fn installed() -> Result<Vec<Otp>> {
    let eval = "io:put_chars(erlang:system_info(otp_release)), halt().";
    let own = output(command("erl").args(["-noshell", "-eval", eval]))
        .context("Erlang is needed (on Debian: apt-get install erlang-base)")?;
    let mut found = vec![Otp { release: own.trim().parse().context("erl names no release")?, root: None }];
    let others = repository::chroots()?.into_iter();
    found.extend(others.map(|(release, root)| Otp { release, root: Some(root) }));
    Ok(found)
}

impl Otp {
    fn command(&self, program: &str) -> Command {
        match &self.root {
            Some(root) => {
                let mut command = command("chroot");
                command.arg(root).arg(program);
                command
            }
            None => command(program),
        }
    }

    /// A path of ours as this Erlang sees it.
    fn inside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => Path::new("/").join(path.strip_prefix(root).unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// A folder with the module that runs in the nodes, compiled by this Erlang.
    fn compile(&self) -> Result<TempDir> {
        let parent = self.root.as_ref().map_or_else(std::env::temp_dir, |root| root.join("tmp"));
        let folder = tempfile::Builder::new().prefix("beamtune-bench-").tempdir_in(parent)?;
        let source = folder.path().join("bench_node.erl");
        std::fs::write(&source, SOURCE)?;
        let mut compile = self.command("erlc");
        compile.arg("-o").arg(self.inside(folder.path())).arg(self.inside(&source));
        output(&mut compile)?;
        Ok(folder)
    }

    /// Starts a VM that runs a function of the module.
    fn start(
        &self,
        flags: &[&str],
        run: &[&str],
        cookie: &str,
        paths: &[&Path],
    ) -> Result<(Running, String, TempDir)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{}_{number}@127.0.0.1", std::process::id());
        let modules = self.compile()?;
        let mut vm = self.command("erl");
        vm.args(flags).args(["-name", &name, "-setcookie", cookie, "-noshell", "-pa"]);
        vm.arg(self.inside(modules.path())).args(paths).args(["-run", "bench_node"]).args(run);
        Ok((Running::start(&mut vm)?, name, modules))
    }
}

/// What a node has to do.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// So many processes that wait, ETS tables and ports.
    Huge { processes: u32, tables: u32, ports: u32 },
    /// So many megabytes of binaries, held by a process on each scheduler.
    Carriers { megabytes: u32 },
    /// Nothing: it has just been started.
    Empty,
    /// [`PROCESSES`] processes wait, and [`TABLES`] tables are there.
    Idle,
    /// The same, and so many workers.
    Busy(usize),
}

/// A node with a load.
pub struct Node {
    running: Running,
    /// Its full name.
    pub name: String,
    /// What it says it is: `OTP 25 (erts 13.1.5)`.
    pub version: String,
    /// Where it sends back what it gets.
    pub answering: SocketAddr,
    otp: Otp,
    cookie: String,
    // Removed after the VM has ended.
    _modules: TempDir,
}

impl Node {
    /// Starts one and waits until its load is there.
    pub fn start(otp: &Otp, flags: &[&str], load: Load) -> Result<Node> {
        let cookie = format!("bench{:016x}", fastrand::u64(..));
        let [processes, tables, ports] = match load {
            Load::Empty | Load::Carriers { .. } => [0, 0, 0],
            Load::Idle | Load::Busy(_) => [PROCESSES, TABLES, 0],
            Load::Huge { processes, tables, ports } => [processes, tables, ports],
        };
        let workers = if let Load::Busy(workers) = load { workers } else { 0 };
        let megabytes = if let Load::Carriers { megabytes } = load { megabytes } else { 0 };
        let sizes = [processes, tables, ports, megabytes].map(|size| size.to_string());
        let run = ["target", &sizes[0], &sizes[1], &sizes[2], &workers.to_string(), &sizes[3]];
        let (mut running, name, modules) = otp.start(flags, &run, &cookie, &[])?;
        let ready = running.expect_line("bench ready ")?;
        let (port, version) = ready.split_once(' ').context("the node names no port")?;
        let answering = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?));
        let version = version.to_owned();
        Ok(Node { running, name, version, answering, otp: otp.clone(), cookie, _modules: modules })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Begins to measure.
    pub fn begin(&mut self) -> Result<()> {
        self.running.say("begin")?;
        self.running.expect_line("bench began").map(drop)
    }

    /// What it has measured since: the mean number of active schedulers, or for a busy one the units of work per second.
    pub fn end(&mut self) -> Result<f64> {
        self.running.say("end")?;
        Ok(self.running.expect_line("bench measured ")?.parse()?)
    }

    /// Starts a process that computes without end, and gives its pid.
    pub fn heat(&mut self) -> Result<String> {
        self.running.say("heat")?;
        self.running.expect_line("bench heated ")
    }

    /// Waits until an agent has left, and what that takes is over.
    pub fn wait_until_left(&mut self) -> Result<()> {
        self.running.say("left")?;
        self.running.expect_line("bench left").map(drop)
    }
}

/// A VM that runs etop at one refresh a second.
pub struct Etop {
    running: Running,
    _modules: TempDir,
}

impl Etop {
    /// Starts it and waits for its first table. `observer` is the folder of its beams where the Erlang has none itself.
    pub fn start(node: &Node, observer: Option<&Path>) -> Result<Etop> {
        let (running, _, modules) =
            node.otp.start(&["-hidden"], &["etop", &node.name], &node.cookie, observer.as_slice())?;
        let mut etop = Etop { running, _modules: modules };
        etop.running.expect_line(" Load:")?;
        Ok(etop)
    }

    /// Tables that it has printed since it was last asked.
    pub fn tables(&self) -> usize {
        self.running.lines().filter(|line| line.starts_with(" Load:")).count()
    }
}
