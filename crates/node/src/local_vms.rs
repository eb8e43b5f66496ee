//! The VMs on this host, including those in containers, and the nodes that are registered with its EPMDs.

mod successor;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use beamtune_attach::epmd::{self, Registered};
use beamtune_attach::locate::{self, Route};
use beamtune_attach::network::Namespace;
use beamtune_attach::process::Process;
use beamtune_attach::source::{self, Finder};
use beamtune_attach::{AttachError, Network, Target};
use beamtune_host::discovery::{self, Access, Discovery, Vm};
use beamtune_host::distribution::NameSource;
use beamtune_host::tree::LocalTree;

use successor::SuccessorFinder;

use crate::Printer;
use crate::access::{AccessError, AccessOptions, Credentials};

/// Time limit for one EPMD to list its nodes.
const EPMD_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of EPMDs that are queried in parallel, each by its own thread.
const MAX_PARALLEL_EPMDS: usize = 64;
/// After this time, no further EPMD is queried.
const EPMDS_TIMEOUT: Duration = Duration::from_secs(6);

/// The VMs on this host, and the nodes registered with each EPMD.
pub struct LocalVms {
    /// The VMs.
    pub discovery: Discovery,
    epmds: Vec<Epmd>,
    pub(crate) credentials: Credentials,
    pub(crate) print: Printer,
}

/// An EPMD on this host; each network namespace has its own.
#[derive(Debug)]
struct Epmd {
    network: Network,
    port: u16,
    nodes: Vec<Registered>,
}

impl Epmd {
    /// Returns the EPMD that a VM would register with.
    fn of(vm: &Vm) -> Epmd {
        let port = vm.distribution.epmd_port.unwrap_or(epmd::DEFAULT_PORT);
        Epmd { network: network(vm), port, nodes: Vec::new() }
    }

    fn is(&self, other: &Epmd) -> bool {
        let number = |epmd: &Epmd| match &epmd.network {
            Network::Own => None,
            Network::Other(namespace) => Some(namespace.inode),
        };
        (number(self), self.port) == (number(other), other.port)
    }

    /// Reads the registered nodes; none if the EPMD does not answer. The next attempt to use it reports why.
    fn query(&mut self) {
        let asked = locate::registered_in(&self.network, "127.0.0.1", self.port, EPMD_TIMEOUT);
        self.nodes = asked.unwrap_or_default();
    }

    /// Returns the entry of a VM: its name and its distribution port.
    fn registration(&self, vm: &Vm) -> Option<&Registered> {
        match &vm.distribution.listeners {
            Some(listeners) => self.nodes.iter().find(|node| listeners.iter().any(|l| l.port == node.port)),
            // Without the VM's sockets, only its name can be compared.
            None => {
                let name = vm.distribution.name.as_ref()?;
                self.nodes.iter().find(|node| name.alive == node.name)
            }
        }
    }
}

/// Queries EPMDs in parallel. A paused container has a silent EPMD, and any user may start processes that name silent EPMDs, so the
/// time is limited. Returns the number of EPMDs that were not queried in time.
fn query(epmds: &mut [Epmd]) -> usize {
    let begin = Instant::now();
    let others = epmds.len().min(MAX_PARALLEL_EPMDS).saturating_sub(1);
    let queue = Mutex::new(epmds.iter_mut());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let query_remaining = || {
        while begin.elapsed() <= EPMDS_TIMEOUT
            && let Some(epmd) = next()
        {
            epmd.query();
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            // The thread limit of the container or user may be reached. The existing threads, at least this one, do all the work.
            if thread::Builder::new().spawn_scoped(scope, query_remaining).is_err() {
                break;
            }
        }
        query_remaining();
    });
    let left = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    left.len()
}

impl LocalVms {
    /// Finds the VMs, and queries their EPMDs.
    pub fn discover(access: &AccessOptions) -> Result<LocalVms> {
        let discovery = discovery::discover(&LocalTree::default()).context("cannot search /proc for VMs")?;
        let ours = Epmd { network: Network::Own, port: own_epmd_port()?, nodes: Vec::new() };
        let mut epmds = vec![ours];
        for epmd in discovery.vms.iter().map(Epmd::of) {
            if !epmds.iter().any(|known| known.is(&epmd)) {
                epmds.push(epmd);
            }
        }
        let left_out = query(&mut epmds);
        if left_out > 0 {
            (access.print)(&format!(
                "{left_out} of {} EPMDs on this host were not queried within {} s: name a VM that is registered with one of these \
                 by its process id\n",
                epmds.len(),
                EPMDS_TIMEOUT.as_secs()
            ));
        }
        Ok(LocalVms { discovery, epmds, credentials: access.credentials()?, print: access.print })
    }

    fn registration(&self, vm: &Vm) -> Option<&Registered> {
        let its = Epmd::of(vm);
        self.epmds.iter().find(|epmd| epmd.is(&its))?.registration(vm)
    }

    /// Returns the full node name of a VM, or the known part of it.
    pub fn name(&self, vm: &Vm) -> Option<String> {
        let configured = vm.distribution.name.as_ref();
        match self.registration(vm) {
            Some(node) => match configured.filter(|name| name.alive == node.name) {
                Some(name) => Some(name.full().unwrap_or_else(|| node.name.clone())),
                None => Some(node.name.clone()),
            },
            // Not registered: the command line contains only the requested name.
            None if vm.distribution.uses_epmd && vm.distribution.listens => configured
                .and_then(|name| matches!(name.source, NameSource::CommandLine).then(|| name.to_string())),
            None => configured.map(ToString::to_string),
        }
    }

    /// Returns the connection parameters of a VM on this host, or why it cannot be attached to.
    pub fn access(&self, vm: &Vm) -> Result<source::Access, AccessError> {
        if let (Access::Refused(reason), Some(true), None) = (&vm.access, vm.isolation.pid, vm.isolation.net)
        {
            // In our network namespace, the same name may belong to another node.
            return Err(AccessError::CannotAttach(anyhow!("it runs in a container: {reason}")));
        }
        let Some(route) = route(vm, self.registration(vm)) else { return Err(AccessError::NoDistribution) };
        let closed = |error: AttachError| AccessError::CannotAttach(error.into());
        route.network.check().map_err(closed)?;
        let finder: Option<Arc<dyn Finder>> = match route.network {
            Network::Own => None,
            Network::Other(_) => {
                let has_twin = discovery::has_twin(vm, &self.discovery.vms);
                Some(Arc::new(SuccessorFinder::new(vm, has_twin)))
            }
        };
        let name = self.name(vm);
        let host = name.as_deref().and_then(|name| Some(name.split_once('@')?.1));
        self.credentials.access(route, finder, Some(&process(vm)), host).map_err(closed)
    }

    /// Returns the VMs on this host that match a target. An exact match of the full name excludes partial matches.
    pub fn matching(&self, target: &Target) -> Vec<&Vm> {
        let vms = self.discovery.vms.iter();
        match target {
            Target::Node { name, host } => {
                let is_called = |vm: &&Vm| match self.registration(vm) {
                    Some(node) => node.name == *name,
                    None => vm.distribution.name.as_ref().is_some_and(|known| known.alive == *name),
                };
                let named: Vec<&Vm> = vms.filter(is_called).collect();
                let Some(host) = host else { return named };
                let full_host = |vm: &Vm| vm.distribution.name.as_ref()?.host.clone();
                let (exact, others): (Vec<_>, Vec<_>) =
                    named.into_iter().partition(|vm| full_host(vm).as_ref() == Some(host));
                match exact.is_empty() {
                    true => others.into_iter().filter(|vm| full_host(vm).is_none()).collect(),
                    false => exact,
                }
            }
            Target::Address { host, port } => {
                let here =
                    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
                // In another network namespace, the address belongs to another process.
                let listens = |vm: &&Vm| {
                    let listeners = vm.distribution.listeners.iter().flatten();
                    network(vm) == Network::Own
                        && listeners.into_iter().any(|listener| listener.port == *port)
                };
                vms.filter(|vm| here && listens(vm)).take(1).collect()
            }
        }
    }
}

/// Describes the container or network namespace that a VM runs in; `None` for a VM directly on the host.
pub fn place(vm: &Vm) -> Option<String> {
    let network = match network(vm) {
        Network::Own => None,
        Network::Other(namespace) => Some(format!("network {}", namespace.inode)),
    };
    match &vm.container {
        Some(container) => Some(container.to_string()),
        None if vm.isolation.pid == Some(true) => {
            let network = network.map_or_else(String::new, |network| format!(", {network}"));
            Some(format!("container{network}"))
        }
        None => network,
    }
}

/// Returns the network namespace of a VM's sockets.
pub fn network(vm: &Vm) -> Network {
    let of = |number| Namespace {
        pid: vm.identity.pid,
        inode: number,
        has_user_namespace: vm.isolation.user == Some(true),
    };
    let its_own = vm.network.filter(|_| vm.isolation.net == Some(true));
    its_own.map_or(Network::Own, |number| Network::Other(of(number)))
}

/// Returns the route to a VM; `None` if it is not a node.
fn route(vm: &Vm, registration: Option<&Registered>) -> Option<Route> {
    let distribution = &vm.distribution;
    let port = match registration {
        Some(node) => Some(node.port),
        None if distribution.name.is_none() && !looks_distributed(vm) => return None,
        // With several candidates, one may be a port of the application, which must not be connected to.
        None => match distribution.possible_ports().as_slice() {
            [port] => Some(*port),
            _ => None,
        },
    };
    // If the network namespace cannot be read, the port may belong to another node. Then the node is found by its name.
    let port = port.filter(|_| vm.isolation.net.is_some());
    let target = match (port, &distribution.name) {
        (Some(port), _) => Target::Address { host: address(vm, port), port },
        (None, Some(name)) => Target::Node { name: name.alive.clone(), host: name.host.clone() },
        (None, None) => return None,
    };
    let Epmd { network, port: epmd_port, .. } = Epmd::of(vm);
    Some(Route { target, epmd_port, network })
}

/// True if a VM without a configured name listens on a port that only the distribution would use.
fn looks_distributed(vm: &Vm) -> bool {
    vm.distribution.ports.is_some() && !vm.distribution.possible_ports().is_empty()
}

/// Returns the address of a VM's port, as seen from the VM's own network namespace.
fn address(vm: &Vm, port: u16) -> String {
    let bound = vm.distribution.listeners.iter().flatten().find(|listener| listener.port == port);
    match bound.map(|listener| listener.address) {
        Some(address) if !address.is_unspecified() => address.to_string(),
        Some(IpAddr::V4(_)) => "127.0.0.1".to_owned(),
        // A listener on all IPv6 addresses usually also accepts IPv4, but not always. "localhost" tries both.
        _ => "localhost".to_owned(),
    }
}

/// Returns the attributes of a VM's process that are needed to attach to it.
fn process(vm: &Vm) -> Process {
    Process {
        arguments: vm.command_line.secret_arguments().to_vec(),
        environment: vm
            .environment
            .secret_variables()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        directory: vm.working_folder.as_ref().map(PathBuf::from).unwrap_or_default(),
        owner: vm.user.clone().or_else(|| vm.uid.map(|uid| format!("user {uid}"))).unwrap_or_default(),
        owner_home: vm.user_home.as_ref().map(PathBuf::from),
        root: PathBuf::from(vm.root.as_deref().unwrap_or("/")),
    }
}

/// Returns the EPMD port of our own environment: `ERL_EPMD_PORT`, or the default.
pub fn own_epmd_port() -> Result<u16, AttachError> {
    epmd::port(std::env::var("ERL_EPMD_PORT").ok().as_deref())
}
