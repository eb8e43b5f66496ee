//! OTP installations, and nodes with a defined load.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::process::{Running, command, output};
use crate::repository;

/// The module that runs in the nodes.
const SOURCE: &str = include_str!("bench_node.erl");

/// Number of idle processes of a node.
pub const PROCESSES: u32 = 10_000;
/// Number of ETS tables of a node.
pub const TABLES: u32 = 500;

/// An OTP installation.
#[derive(Debug, Clone)]
pub struct Otp {
    /// OTP release: 25.
    pub release: u32,
    /// Root of its chroot; `None` for the host.
    root: Option<PathBuf>,
}

/// Returns the host's OTP, then those in chroots.
pub fn installed() -> Result<Vec<Otp>> {
    let eval = "io:put_chars(erlang:system_info(otp_release)), halt().";
    let own = output(command("erl").args(["-noshell", "-eval", eval]))
        .context("Erlang is needed (on Debian: apt-get install erlang-base)")?;
    let release =
        own.trim().parse::<u32>().with_context(|| format!("erl printed {own:?}, expected a release"))?;
    let mut found = vec![Otp { release, root: None }];
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

    /// Converts a path of the host to the path in this OTP's chroot.
    fn inside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => Path::new("/").join(path.strip_prefix(root).unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// Compiles the module that runs in the nodes into a temporary folder.
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

/// The load of a node.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// Idle processes, ETS tables and ports.
    Huge { processes: u32, tables: u32, ports: u32 },
    /// Binaries, kept alive by a process on each scheduler.
    Carriers { megabytes: u32 },
    /// No load.
    Empty,
    /// [`PROCESSES`] idle processes and [`TABLES`] tables.
    Idle,
    /// The same as [`Self::Idle`], and this number of workers.
    Busy(usize),
}

/// A node with a load.
pub struct Node {
    running: Running,
    /// The node name.
    pub name: String,
    /// OTP release and ERTS version: `OTP 25 (erts 13.1.5)`.
    pub version: String,
    /// Address of the node's echo server.
    pub echo: SocketAddr,
    otp: Otp,
    cookie: String,
    // Removed after the VM has ended.
    _modules: TempDir,
}

impl Node {
    /// Starts a node and waits until its load is set up.
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
        let (port, version) = ready.split_once(' ').context("the node printed no port")?;
        let echo = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?));
        let version = version.to_owned();
        Ok(Node { running, name, version, echo, otp: otp.clone(), cookie, _modules: modules })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Starts a measurement.
    pub fn begin(&mut self) -> Result<()> {
        self.running.write_line("begin")?;
        self.running.expect_line("bench began").map(drop)
    }

    /// Ends the measurement. Returns the mean number of active schedulers or, for a busy node, units of work per second.
    pub fn end(&mut self) -> Result<f64> {
        self.running.write_line("end")?;
        Ok(self.running.expect_line("bench measured ")?.parse()?)
    }

    /// Starts a process that computes in an endless loop, and returns its pid.
    pub fn heat(&mut self) -> Result<String> {
        self.running.write_line("heat")?;
        self.running.expect_line("bench heated ")
    }

    /// Waits until the agent has been unloaded.
    pub fn wait_until_unloaded(&mut self) -> Result<()> {
        self.running.write_line("left")?;
        self.running.expect_line("bench left").map(drop)
    }
}

/// A VM that runs etop with one refresh a second.
pub struct Etop {
    running: Running,
    _modules: TempDir,
}

impl Etop {
    /// Starts etop and waits for its first table. `observer` is the folder of its modules if the OTP lacks them.
    pub fn start(node: &Node, observer: Option<&Path>) -> Result<Etop> {
        let (running, _, modules) =
            node.otp.start(&["-hidden"], &["etop", &node.name], &node.cookie, observer.as_slice())?;
        let mut etop = Etop { running, _modules: modules };
        etop.running.expect_line(" Load:")?;
        Ok(etop)
    }

    /// Returns the number of tables printed since the last call.
    pub fn tables(&self) -> usize {
        self.running.lines().filter(|line| line.starts_with(" Load:")).count()
    }
}
