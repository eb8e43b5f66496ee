//! Every Erlang VM on this host, from `/proc`.
//!
//! A VM is told by its file's name (`beam.smp`, `beam.lcnt.smp` …) and by a command line as erlexec makes it;
//! erl_child_setup, epmd, heart and inet_gethost, which VMs start, have other names. What belongs to other users
//! is read as far as everybody may read it, and each VM says what could not be read.

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

/// Linux has at most 4,194,304 processes; that many names are some 200 MB.
const MAX_PROCESSES: usize = 5_000_000;
/// A command line or environment longer than this is cut; what counts stands at the beginning.
const ARGUMENTS_BYTES: usize = 512 * 1024;
/// What may lie between the reading of two clocks on a busy host.
const CLOCKS_APART_NS: Nanos = 1_000_000_000;
/// `/proc/PID/cgroup` has a line per hierarchy, of at most a path's length.
const MEMBERSHIPS_BYTES: usize = 256 * 1024;
/// Enough for the accounts of a host; those of a directory service are not in it anyway.
const PASSWD_BYTES: usize = 1 << 20;

/// Whether something could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// It could.
    Readable,
    /// It could not; the text says why and what to do.
    Refused(String),
}

/// Whether a VM is in other namespaces than we are; `None` where that may not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Isolation {
    /// It sees other process ids: it is in a container.
    pub pid: Option<bool>,
    /// It has a network of its own: its ports are not reached at this host's loopback address.
    pub net: Option<bool>,
    /// It has mounts of its own: its paths are not ours.
    pub mount: Option<bool>,
    /// It has users of its own: what it may do it may do within its namespaces only.
    pub user: Option<bool>,
}

/// A running VM, as the operating system sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Process id, and which life of it.
    pub identity: Identity,
    /// Process id of the parent.
    pub parent: u32,
    /// Its process id as it sees it itself, where it is in a container.
    pub pid_inside: Option<u32>,
    /// Effective user id.
    pub uid: Option<u32>,
    /// That user's name, if the host knows it.
    pub user: Option<String>,
    /// That user's home, if the host knows it.
    pub user_home: Option<String>,
    /// How long it has been running.
    pub uptime_ns: Option<Nanos>,
    /// CPU time since it was started.
    pub cpu_ns: Nanos,
    /// Resident memory.
    pub rss_bytes: Option<i64>,
    /// Threads.
    pub threads: i64,
    /// The file that the kernel runs, where that may be read.
    pub executable: Option<String>,
    /// Its working folder as it sees it itself, where that may be read.
    pub working_folder: Option<String>,
    /// Its command line.
    pub command_line: CommandLine,
    /// What of its environment concerns the VM; empty where it may not be read.
    pub environment: Environment,
    /// Whether the environment, the open files and the like could be read.
    pub access: Access,
    /// Which Erlang/OTP it runs.
    pub installation: Installation,
    /// What the node is called and how it listens.
    pub distribution: Distribution,
    /// What it runs.
    pub product: Product,
    /// Which namespaces it shares with us.
    pub isolation: Isolation,
    /// The number of its network namespace, where that may be read.
    pub network: Option<u64>,
    /// The container that it is in, as far as the names of its control groups tell.
    pub container: Option<Container>,
    /// Where its file system is seen from here: `/`, or `/proc/PID/root`. `None` where it cannot be known.
    pub root: Option<String>,
}

impl Vm {
    /// Cores used since it was started, on average; `None` in its first instant.
    pub fn cores(&self) -> Option<f64> {
        let uptime = self.uptime_ns.filter(|uptime| *uptime > 0)?;
        Some(self.cpu_ns as f64 / uptime as f64)
    }

    /// Its process id as it sees it itself: `os:getpid/0`.
    pub fn own_pid(&self) -> u32 {
        self.pid_inside.unwrap_or(self.identity.pid)
    }
}

/// The VMs of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Those that were found, by process id.
    pub vms: Vec<Vm>,
    /// True if the kernel hides other users' processes from us (`hidepid`): there may be more.
    pub others_hidden: bool,
}

/// Finds every VM on this host. Processes that end meanwhile are left out.
pub fn discover(tree: &impl FileTree) -> Result<Discovery, HostError> {
    let names = tree.list("/proc", MAX_PROCESSES)?;
    let mut pids: Vec<u32> =
        names.iter().filter_map(|name| u32::try_from(text::number(name.as_bytes())?).ok()).collect();
    pids.sort_unstable();
    let mut host = Host::read(tree);
    // Process 1 is always there. Where it is not to be seen, those of others are not either.
    let mut found = Discovery { vms: Vec::new(), others_hidden: pids.first() != Some(&1) };
    for pid in pids {
        match host.vm(pid) {
            Ok(vm) => found.vms.push(vm),
            // What everybody may read otherwise: it is there, but nobody is to know what it is.
            Err(HostError::Denied { .. }) => found.others_hidden = true,
            Err(_) => {}
        }
    }
    Ok(found)
}

/// Looks at one process; an error if it is no VM.
pub fn look_at(tree: &impl FileTree, pid: u32) -> Result<Vm, HostError> {
    Host::read(tree).vm(pid)
}

/// The VM that goes on where another one has ended: started since, and configured to be called the same. `gone_ns` is how
/// long ago the first one was last seen; `own_pid` is what the new one says its process id is, where it has been asked. Of
/// several, those of the same container are preferred.
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

/// The same where the first one had a twin ([`has_twin`]), which may have been started again as well: only in the very
/// container of the first one it is no other's. Whether a container that was made anew is, cannot be told.
pub fn successor_of_twin(tree: &impl FileTree, before: &Vm, gone_ns: Nanos) -> Result<Vm, HostError> {
    let mut found = successors(tree, before, gone_ns)?;
    found.retain(|vm| vm.container.is_some() && vm.container == before.container);
    only(found, before)
}

/// Whether another VM among these is called the same and runs the same, as replicas do that each have a network of their own.
pub fn has_twin(vm: &Vm, among: &[Vm]) -> bool {
    among.iter().any(|other| other.identity != vm.identity && are_alike(other, vm))
}

fn are_alike(one: &Vm, other: &Vm) -> bool {
    one.distribution.name == other.distribution.name
        && (one.product.kind, &one.product.name) == (other.product.kind, &other.product.name)
}

fn successors(tree: &impl FileTree, before: &Vm, gone_ns: Nanos) -> Result<Vec<Vm>, HostError> {
    let goes_on = |vm: &Vm| {
        vm.identity != before.identity
            && vm.uptime_ns.is_some_and(|uptime| uptime <= gone_ns.saturating_add(CLOCKS_APART_NS))
            && are_alike(vm, before)
    };
    Ok(discover(tree)?.vms.into_iter().filter(goes_on).collect())
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

/// The name of the user that a process runs as, if the host knows it.
pub(crate) fn user_of(tree: &impl FileTree, pid: u32) -> Option<String> {
    let status = tree.read(&format!("/proc/{pid}/status"), SMALL_FILE_BYTES).ok()?;
    let (name, _) = Host::read(tree).account(Status::parse(&status).uid?)?;
    Some(name)
}

/// What is the same for all processes of the host.
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
        // Without it users are shown by their number.
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

    /// Name and home of a user.
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
        // It may be somebody's program of that name, or just be starting or ending.
        if !command_line.is_emulators() {
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
            // Everybody may read in which of them it has numbers.
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

    /// The kernel names the folder as it would be called without the process's own root (chroot).
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

    /// Where the files of a process are. What may not be looked at is taken for a process like ours, unless it is
    /// known to be in a container.
    fn root(&self, pid: u32, isolation: Isolation) -> Option<String> {
        let link = format!("/proc/{pid}/root");
        match self.tree.read_link(&link) {
            Ok(target) if target == "/" && isolation.mount == Some(false) => Some("/".to_owned()),
            Ok(_) => Some(link),
            Err(_) if isolation.pid == Some(false) => Some("/".to_owned()),
            Err(_) => None,
        }
    }

    /// The host's name as the process sees it. A container has its own, which the kernel tells only within; those who make
    /// containers write it into a variable and a file.
    fn host_name(&self, pid: u32, environment: &Environment, files: &Files<'_, T>) -> Option<String> {
        if self.other_namespace(pid, "uts") != Some(true) {
            return self.name.clone();
        }
        let in_file = || Some(text::first_line(&files.read("/etc/hostname")?));
        let name = environment.get("HOSTNAME").map(str::to_owned).or_else(in_file)?;
        Some(text::printable(&name)).filter(|name| !name.is_empty())
    }
}

/// The number in `net:[4026531840]`.
fn namespace_number(link: &str) -> Option<u64> {
    text::number(link.split_once(":[")?.1.strip_suffix(']')?.as_bytes())
}

#[cfg(test)]
mod tests;
