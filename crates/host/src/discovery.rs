//! Finds every Erlang VM on this host, from `/proc`.
//!
//! A VM is recognized by the name of its executable (`beam.smp`, `beam.lcnt.smp` …) and by a command line of the form that erlexec creates.
//! Programs that VMs start (erl_child_setup, epmd, heart, inet_gethost) have other names. For VMs of other users, only world-readable files
//! can be read; [`Vm::access`] contains the reason.

use beamtune_model::Nanos;

use crate::cgroup::memberships;
use crate::command_line::{CommandLine, Environment};
use crate::container::Container;
use crate::distribution::Distribution;
use crate::error::HostError;
use crate::installation::{self, Files, Installation, emulator_type};
use crate::process::{self, Identity, SMALL_FILE_BYTES, Status};
use crate::product::{self, Product};
use crate::sockets::Sockets;
use crate::text;
use crate::tree::FileTree;

/// Linux has at most 4,194,304 processes; that many names take about 200 MB.
const MAX_PROCESSES: usize = 5_000_000;
/// Longer command lines and environments are truncated; the relevant part is at the beginning.
const ARGUMENTS_BYTES: usize = 512 * 1024;
/// Tolerated difference between two clocks that are read one after the other on a busy host.
const CLOCK_TOLERANCE_NS: Nanos = 1_000_000_000;
/// `/proc/PID/cgroup` has one line per hierarchy, each no longer than a path.
const MEMBERSHIPS_BYTES: usize = 256 * 1024;
/// Enough for local accounts; those of a directory service are not in the file anyway.
const PASSWD_BYTES: usize = 1 << 20;

/// Whether the non-public files of a process could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// They could be read.
    Readable,
    /// They could not; the text gives the reason and what to do.
    Refused(String),
}

/// Whether a VM is in namespaces other than beamtune's; `None` if the namespace is not readable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Isolation {
    /// It has its own PID namespace, so it is in a container.
    pub pid: Option<bool>,
    /// It has its own network namespace, so its ports are not reachable at this host's loopback address.
    pub net: Option<bool>,
    /// It has its own mount namespace, so its paths are not ours.
    pub mount: Option<bool>,
    /// It has its own user namespace, so its privileges are limited to its namespaces.
    pub user: Option<bool>,
}

/// A running VM, according to the operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Process id and start time.
    pub identity: Identity,
    /// Process id of the parent.
    pub parent: u32,
    /// Process id inside its container, if it is in one.
    pub pid_inside: Option<u32>,
    /// Effective user id.
    pub uid: Option<u32>,
    /// Name of this user, if the host knows it.
    pub user: Option<String>,
    /// Home folder of this user, if the host knows it.
    pub user_home: Option<String>,
    /// Time since the process was started.
    pub uptime_ns: Option<Nanos>,
    /// CPU time since the process was started.
    pub cpu_ns: Nanos,
    /// Resident memory.
    pub rss_bytes: Option<i64>,
    /// Number of threads.
    pub threads: i64,
    /// Path of its executable, if readable.
    pub executable: Option<String>,
    /// Its working directory, as a path in its own root, if readable.
    pub working_folder: Option<String>,
    /// Its command line.
    pub command_line: CommandLine,
    /// The environment variables that concern the VM; empty if the environment is not readable.
    pub environment: Environment,
    /// Whether its environment, open files and other non-public data could be read.
    pub access: Access,
    /// Its Erlang/OTP installation.
    pub installation: Installation,
    /// Its node name and distribution ports.
    pub distribution: Distribution,
    /// The product that it runs, such as RabbitMQ.
    pub product: Product,
    /// The namespaces that it does not share with beamtune.
    pub isolation: Isolation,
    /// The inode of its network namespace, if readable.
    pub network: Option<u64>,
    /// Its container, if the names of its control groups contain one.
    pub container: Option<Container>,
    /// The path under which its file system is accessible: `/`, or `/proc/PID/root`. `None` if unknown.
    pub root: Option<String>,
}

impl Vm {
    /// Average CPU usage since the process was started, in cores; `None` if it has just been started.
    pub fn cores(&self) -> Option<f64> {
        let uptime = self.uptime_ns.filter(|uptime| *uptime > 0)?;
        Some(self.cpu_ns as f64 / uptime as f64)
    }

    /// Its process id inside its container, which `os:getpid/0` returns.
    pub fn own_pid(&self) -> u32 {
        self.pid_inside.unwrap_or(self.identity.pid)
    }
}

/// The VMs of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The VMs, ordered by process id.
    pub vms: Vec<Vm>,
    /// Whether the kernel hides other users' processes (`hidepid`), so that there may be more VMs.
    pub may_be_incomplete: bool,
}

/// Finds every VM on this host. Processes that end during the search are left out.
pub fn discover(tree: &impl FileTree) -> Result<Discovery, HostError> {
    let names = tree.list("/proc", MAX_PROCESSES)?;
    let mut pids: Vec<u32> =
        names.iter().filter_map(|name| u32::try_from(text::number(name.as_bytes())?).ok()).collect();
    pids.sort_unstable();
    let mut host = Host::read(tree);
    // If process 1 is hidden, so are all processes of other users.
    let mut found = Discovery { vms: Vec::new(), may_be_incomplete: pids.first() != Some(&1) };
    for pid in pids {
        match host.vm(pid) {
            Ok(vm) => found.vms.push(vm),
            // With hidepid=1 the process is listed, but even its world-readable files are not accessible.
            Err(HostError::Denied { .. }) => found.may_be_incomplete = true,
            Err(_) => {}
        }
    }
    Ok(found)
}

/// Inspects one process. Fails if it is not a VM.
pub fn inspect(tree: &impl FileTree, pid: u32) -> Result<Vm, HostError> {
    Host::read(tree).vm(pid)
}

/// Finds the VM that replaces `before`, which has ended: it has the same configured name, and was started since `before` was last seen,
/// `gone_ns` ago. `own_pid` is the process id that the new VM reports, if it was asked. VMs in the same container are preferred.
pub fn successor(
    tree: &impl FileTree,
    before: &Vm,
    gone_ns: Nanos,
    own_pid: Option<u32>,
) -> Result<Vm, HostError> {
    let mut found = successors(tree, before, gone_ns)?;
    found.retain(|vm| own_pid.is_none_or(|own_pid| vm.own_pid() == own_pid));
    if found.iter().any(|vm| vm.container == before.container) {
        found.retain(|vm| vm.container == before.container);
    }
    only(found, before)
}

/// Like [`successor`], for a VM that had a twin ([`has_twin`]). The twin may have been restarted as well, so only a VM in the same
/// container is accepted. If the container was recreated, the successor is unknown.
pub fn successor_in_same_container(
    tree: &impl FileTree,
    before: &Vm,
    gone_ns: Nanos,
) -> Result<Vm, HostError> {
    let mut found = successors(tree, before, gone_ns)?;
    found.retain(|vm| vm.container.is_some() && vm.container == before.container);
    only(found, before)
}

/// Whether another VM in `among` has the same name and product, as replicas with their own networks do.
pub fn has_twin(vm: &Vm, among: &[Vm]) -> bool {
    among.iter().any(|other| other.identity != vm.identity && are_alike(other, vm))
}

fn are_alike(one: &Vm, other: &Vm) -> bool {
    one.distribution.name == other.distribution.name
        && (one.product.kind, &one.product.name) == (other.product.kind, &other.product.name)
}

fn successors(tree: &impl FileTree, before: &Vm, gone_ns: Nanos) -> Result<Vec<Vm>, HostError> {
    let replaces = |vm: &Vm| {
        vm.identity != before.identity
            && vm.uptime_ns.is_some_and(|uptime| uptime <= gone_ns.saturating_add(CLOCK_TOLERANCE_NS))
            && are_alike(vm, before)
    };
    Ok(discover(tree)?.vms.into_iter().filter(replaces).collect())
}

fn only(mut found: Vec<Vm>, before: &Vm) -> Result<Vm, HostError> {
    let pid = before.identity.pid;
    match (found.pop(), found.as_slice()) {
        (Some(only), []) => Ok(only),
        (None, _) => Err(HostError::Ended { pid }),
        (Some(last), others) => {
            let pids = others.iter().map(|vm| vm.identity.pid).chain([last.identity.pid]).collect();
            Err(HostError::SeveralSuccessors { pid, pids })
        }
    }
}

/// Returns the name of the user that a process runs as, if the host knows it.
pub(crate) fn user_of(tree: &impl FileTree, pid: u32) -> Option<String> {
    let status = tree.read(&format!("/proc/{pid}/status"), SMALL_FILE_BYTES).ok()?;
    let (name, _) = Host::read(tree).account(Status::parse(&status).uid?)?;
    Some(name)
}

/// Data of the host that is read once for all its processes.
struct Host<'a, T> {
    tree: &'a T,
    name: Option<String>,
    uptime_ns: Option<Nanos>,
    accounts: Vec<u8>,
    sockets: Sockets,
}

impl<'a, T: FileTree> Host<'a, T> {
    fn read(tree: &'a T) -> Self {
        let line = |path| tree.read(path, SMALL_FILE_BYTES).ok().map(|content| text::first_line(&content));
        let uptime = line("/proc/uptime").and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
        let mut accounts = Vec::new();
        // Without the file, users are identified by number.
        let _ = tree.read_start("/etc/passwd", PASSWD_BYTES, &mut accounts);
        Host {
            tree,
            name: line("/proc/sys/kernel/hostname")
                .map(|name| text::printable(&name))
                .filter(|name| !name.is_empty()),
            uptime_ns: uptime
                .filter(|seconds| (0.0..1e9).contains(seconds))
                .map(|seconds| (seconds * 1e9) as Nanos),
            accounts,
            sockets: Sockets::default(),
        }
    }

    /// Returns the name and the home folder of a user.
    fn account(&self, uid: u32) -> Option<(String, String)> {
        let line = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b':');
            let name = fields.next()?;
            let found = text::number(fields.nth(1)?)? == u64::from(uid);
            let home = fields.nth(2)?;
            let text = |field| String::from_utf8_lossy(field).into_owned();
            found.then(|| (text::printable(&text(name)), text(home)))
        };
        text::lines(&self.accounts).find_map(line)
    }

    fn vm(&mut self, pid: u32) -> Result<Vm, HostError> {
        let tree = self.tree;
        let mut content = Vec::new();
        let stat = process::read_stat(tree, pid, &mut content)?;
        let comm = text::printable(&String::from_utf8_lossy(stat.comm));
        let no_vm = || HostError::NotAVm { pid, runs: comm.clone() };
        if stat.is_kernel_thread() {
            return Err(no_vm());
        }
        let executable = installation::executable(tree, pid)?;
        let file = executable.as_deref().map(|path| path.trim_end_matches(" (deleted)"));
        let file = file.and_then(|path| path.rsplit('/').next());
        let runs_emulator = file.and_then(emulator_type).is_some();
        if !runs_emulator && emulator_type(&comm).is_none() {
            return Err(no_vm());
        }
        let (parent, threads, start_ticks) = (stat.ppid, stat.threads, stat.start_ticks);
        let tick_ns = process::tick_ns();
        let cpu_ns = stat.user_ticks.saturating_add(stat.system_ticks).saturating_mul(tick_ns);
        tree.read_start(&format!("/proc/{pid}/cmdline"), ARGUMENTS_BYTES, &mut content)?;
        let command_line = CommandLine::parse(&content);
        // Another program with the same name, or a VM that is starting or ending.
        if !command_line.is_from_erlexec() {
            return Err(no_vm());
        }
        tree.read_start(&format!("/proc/{pid}/status"), SMALL_FILE_BYTES, &mut content)?;
        let status = Status::parse(&content);
        let (user, user_home) = status.uid.and_then(|uid| self.account(uid)).unzip();
        let (environment, access) =
            match tree.read_start(&format!("/proc/{pid}/environ"), ARGUMENTS_BYTES, &mut content) {
                Ok(()) => (Environment::parse(&content), Access::Readable),
                Err(error) => {
                    let refused = error.with_owner(user.as_deref()).to_string();
                    (Environment::default(), Access::Refused(refused))
                }
            };
        let isolation = self.isolation(pid, &status);
        let root = self.root(pid, isolation);
        let files = Files { tree, root: root.clone() };
        let host_name = self.host_name(pid, &environment, &files);
        let mut distribution = Distribution::configured(&command_line, &environment, host_name.as_deref());
        if distribution.name.is_none() {
            distribution.name =
                product::rabbitmq_name(&command_line, &environment, host_name.as_deref(), &files);
        }
        distribution.ports =
            distribution.ports.or_else(|| product::rabbitmq_ports(&command_line, &environment));
        distribution.listeners = self.sockets.listeners(tree, pid).ok();
        let uptime = self.uptime_ns.map(|uptime| uptime - start_ticks.saturating_mul(tick_ns));
        Ok(Vm {
            identity: Identity { pid, start_ticks },
            parent,
            pid_inside: status.pids.last().copied().filter(|_| status.pids.len() > 1),
            uid: status.uid,
            user,
            user_home,
            uptime_ns: uptime.filter(|uptime| *uptime >= 0),
            cpu_ns,
            rss_bytes: status.rss_bytes,
            threads,
            working_folder: self.working_folder(pid),
            installation: Installation::of(&command_line, &environment, executable.as_deref(), &comm, &files),
            product: Product::of(&command_line, &environment, &distribution, &files),
            executable,
            command_line,
            environment,
            access,
            distribution,
            isolation,
            network: self.namespace(pid, "net").as_deref().and_then(namespace_number),
            container: self.container(pid),
            root,
        })
    }

    fn isolation(&self, pid: u32, status: &Status) -> Isolation {
        let differs = |kind| self.other_namespace(pid, kind);
        Isolation {
            // How many process ids it has is world-readable; the namespace is not.
            pid: match status.pids.len() {
                0 => differs("pid"),
                numbers => Some(numbers > 1),
            },
            net: differs("net"),
            mount: differs("mnt"),
            user: differs("user"),
        }
    }

    fn other_namespace(&self, pid: u32, kind: &str) -> Option<bool> {
        let ours = self.tree.read_link(&format!("/proc/self/ns/{kind}")).ok()?;
        Some(ours != self.namespace(pid, kind)?)
    }

    /// `net:[4026531840]`
    fn namespace(&self, pid: u32, kind: &str) -> Option<String> {
        self.tree.read_link(&format!("/proc/{pid}/ns/{kind}")).ok()
    }

    fn container(&self, pid: u32) -> Option<Container> {
        let groups = self.tree.read(&format!("/proc/{pid}/cgroup"), MEMBERSHIPS_BYTES).ok()?;
        Container::of(&memberships(&groups))
    }

    /// Returns the working directory relative to the process's root; the kernel's path is relative to our root (chroot).
    fn working_folder(&self, pid: u32) -> Option<String> {
        let link = |name| self.tree.read_link(&format!("/proc/{pid}/{name}"));
        let folder = link("cwd").ok()?;
        let root = link("root").unwrap_or_default();
        match folder.strip_prefix(root.trim_end_matches('/')) {
            Some("") => Some("/".to_owned()),
            Some(inside) if inside.starts_with('/') => Some(inside.to_owned()),
            _ => Some(folder),
        }
    }

    /// Returns the path under which the files of a process are accessible. If the link is not readable, the process is assumed to share
    /// our root, unless it is known to be in a container.
    fn root(&self, pid: u32, isolation: Isolation) -> Option<String> {
        let link = format!("/proc/{pid}/root");
        match self.tree.read_link(&link) {
            Ok(target) if target == "/" && isolation.mount == Some(false) => Some("/".to_owned()),
            Ok(_) => Some(link),
            Err(_) if isolation.pid == Some(false) => Some("/".to_owned()),
            Err(_) => None,
        }
    }

    /// Returns the host name inside the process's namespace. A container has its own host name, which the kernel reveals only inside it;
    /// container runtimes also write it to a variable and a file.
    fn host_name(&self, pid: u32, environment: &Environment, files: &Files<'_, T>) -> Option<String> {
        if self.other_namespace(pid, "uts") != Some(true) {
            return self.name.clone();
        }
        let in_file = || Some(text::first_line(&files.read("/etc/hostname")?));
        let name = environment.get("HOSTNAME").map(str::to_owned).or_else(in_file)?;
        Some(text::printable(&name)).filter(|name| !name.is_empty())
    }
}

/// Parses the inode number in `net:[4026531840]`.
fn namespace_number(link: &str) -> Option<u64> {
    text::number(link.split_once(":[")?.1.strip_suffix(']')?.as_bytes())
}

#[cfg(test)]
mod tests;
