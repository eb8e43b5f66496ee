//! What runs on this host, and how it is reached: its VMs, those in containers too, and what EPMD knows of them.

mod again;

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

use again::Again;

use crate::access::{AccessArgs, Given};
use crate::subject::NoAccess;
use crate::terminal;

/// How long an EPMD of this host may take to list its nodes.
const EPMD_TIMEOUT: Duration = Duration::from_secs(2);
/// So many are asked at once, each by a thread of its own.
const EPMDS_AT_ONCE: usize = 64;
/// After so long, no further ones are asked.
const EPMDS_TIMEOUT: Duration = Duration::from_secs(6);

/// What is known of this host: its VMs, and the nodes that each EPMD knows.
pub struct Surroundings {
    pub discovery: Discovery,
    epmds: Vec<Epmd>,
    pub given: Given,
}

/// An EPMD of this host; each network has its own.
#[derive(Debug)]
struct Epmd {
    network: Network,
    port: u16,
    nodes: Vec<Registered>,
}

impl Epmd {
    /// The one that a VM is registered with, if it is.
    fn of(vm: &Vm) -> Epmd {
        let port = vm.distribution.epmd_port.unwrap_or(epmd::DEFAULT_PORT);
        Epmd { network: network(vm), port, nodes: Vec::new() }
    }

    fn is(&self, other: &Epmd) -> bool {
        let number = |epmd: &Epmd| match &epmd.network {
            Network::Ours => None,
            Network::Of(namespace) => Some(namespace.number),
        };
        (number(self), self.port) == (number(other), other.port)
    }

    /// Asks it for its nodes. One that is not there knows none; who needs it is told by the attempt to ask it again.
    fn ask(&mut self) {
        let asked = locate::registered_in(&self.network, "127.0.0.1", self.port, EPMD_TIMEOUT);
        self.nodes = asked.unwrap_or_default();
    }

    /// The name by which it knows a VM, and its distribution port.
    fn registration(&self, vm: &Vm) -> Option<&Registered> {
        match &vm.distribution.listeners {
            Some(listeners) => self.nodes.iter().find(|node| listeners.iter().any(|l| l.port == node.port)),
            // Without a look at its sockets the name has to do.
            None => {
                let name = vm.distribution.name.as_ref()?;
                self.nodes.iter().find(|node| name.alive == node.name)
            }
        }
    }
}

/// Asks all of them, as many at once as there can be threads: a container that is paused makes its EPMD silent. But whoever may
/// start processes here may name any number of EPMDs in them, none of which answers. Yields how many were left out at the end
/// of the time.
fn ask(epmds: &mut [Epmd]) -> usize {
    let begin = Instant::now();
    let others = epmds.len().min(EPMDS_AT_ONCE).saturating_sub(1);
    let queue = Mutex::new(epmds.iter_mut());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let ask_on = || {
        while begin.elapsed() <= EPMDS_TIMEOUT
            && let Some(epmd) = next()
        {
            epmd.ask();
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            // A container or a user may have no more threads. Then those that there are do it, at least this one.
            if thread::Builder::new().spawn_scoped(scope, ask_on).is_err() {
                break;
            }
        }
        ask_on();
    });
    let left = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    left.len()
}

impl Surroundings {
    /// Looks around.
    pub fn look(access: &AccessArgs) -> Result<Surroundings> {
        let discovery = discovery::discover(&LocalTree::default()).context("cannot look for VMs in /proc")?;
        let ours = Epmd { network: Network::Ours, port: own_epmd_port()?, nodes: Vec::new() };
        let mut epmds = vec![ours];
        for epmd in discovery.vms.iter().map(Epmd::of) {
            if !epmds.iter().any(|known| known.is(&epmd)) {
                epmds.push(epmd);
            }
        }
        let left_out = ask(&mut epmds);
        if left_out > 0 {
            terminal::complain(&format!(
                "{left_out} of the {} EPMDs on this host were not asked for their nodes, since others took more than {} s: a VM \
                 that is registered there is known by what it was started with only; name it by its process id\n",
                epmds.len(),
                EPMDS_TIMEOUT.as_secs()
            ));
        }
        Ok(Surroundings { discovery, epmds, given: access.given()? })
    }

    fn registration(&self, vm: &Vm) -> Option<&Registered> {
        let its = Epmd::of(vm);
        self.epmds.iter().find(|epmd| epmd.is(&its))?.registration(vm)
    }

    /// What a VM is called: its full node name, or as much of it as is known.
    pub fn name(&self, vm: &Vm) -> Option<String> {
        let configured = vm.distribution.name.as_ref();
        match self.registration(vm) {
            Some(node) => match configured.filter(|name| name.alive == node.name) {
                Some(name) => Some(name.full().unwrap_or_else(|| node.name.clone())),
                None => Some(node.name.clone()),
            },
            // Not registered: what it was started with is only what it wanted to be called.
            None if vm.distribution.uses_epmd && vm.distribution.listens => configured
                .and_then(|name| matches!(name.source, NameSource::CommandLine).then(|| name.to_string())),
            None => configured.map(ToString::to_string),
        }
    }

    /// How to attach to a VM of this host.
    pub fn access(&self, vm: &Vm) -> Result<source::Access, NoAccess> {
        if let (Access::Refused(reason), Some(true), None) = (&vm.access, vm.isolation.pid, vm.isolation.net)
        {
            // What it is registered as in our network may be another one.
            return Err(NoAccess::Closed(anyhow!("it is in a container: {reason}")));
        }
        let Some(route) = route(vm, self.registration(vm)) else { return Err(NoAccess::NoDistribution) };
        let closed = |error: AttachError| NoAccess::Closed(error.into());
        route.network.check().map_err(closed)?;
        let finder: Option<Arc<dyn Finder>> = match route.network {
            Network::Ours => None,
            Network::Of(_) => Some(Arc::new(Again::new(vm, discovery::has_twin(vm, &self.discovery.vms)))),
        };
        let name = self.name(vm);
        let host = name.as_deref().and_then(|name| Some(name.split_once('@')?.1));
        self.given.access(route, finder, Some(&process(vm)), host).map_err(closed)
    }

    /// The VMs of this host that a target can mean. Those that are called just so hide those that may be.
    pub fn local(&self, target: &Target) -> Vec<&Vm> {
        let vms = self.discovery.vms.iter();
        match target {
            Target::Node { name, host } => {
                let is_called = |vm: &&Vm| match self.registration(vm) {
                    Some(node) => node.name == *name,
                    None => vm.distribution.name.as_ref().is_some_and(|known| known.alive == *name),
                };
                let named: Vec<&Vm> = vms.filter(is_called).collect();
                let Some(host) = host else { return named };
                let whole = |vm: &Vm| vm.distribution.name.as_ref()?.host.clone();
                let (just_so, others): (Vec<_>, Vec<_>) =
                    named.into_iter().partition(|vm| whole(vm).as_ref() == Some(host));
                match just_so.is_empty() {
                    true => others.into_iter().filter(|vm| whole(vm).is_none()).collect(),
                    false => just_so,
                }
            }
            Target::Address { host, port } => {
                let here =
                    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
                // In another network that address is somebody else's.
                let listens = |vm: &&Vm| {
                    let listeners = vm.distribution.listeners.iter().flatten();
                    network(vm) == Network::Ours
                        && listeners.into_iter().any(|listener| listener.port == *port)
                };
                vms.filter(|vm| here && listens(vm)).take(1).collect()
            }
        }
    }
}

/// What sets a VM apart from those of the host itself: its container, or the namespaces that make one.
pub fn place(vm: &Vm) -> Option<String> {
    let network = match network(vm) {
        Network::Ours => None,
        Network::Of(namespace) => Some(format!("network {}", namespace.number)),
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

/// Where a VM's sockets are.
pub fn network(vm: &Vm) -> Network {
    let of = |number| Namespace { pid: vm.identity.pid, number, own_users: vm.isolation.user == Some(true) };
    let its_own = vm.network.filter(|_| vm.isolation.net == Some(true));
    its_own.map_or(Network::Ours, |number| Network::Of(of(number)))
}

/// How a VM is reached, `None` if it is no node.
fn route(vm: &Vm, registration: Option<&Registered>) -> Option<Route> {
    let distribution = &vm.distribution;
    let port = match registration {
        Some(node) => Some(node.port),
        None if distribution.name.is_none() && !looks_distributed(vm) => return None,
        // More than one candidate is no knowledge: an application's own port must not be knocked at.
        None => match distribution.candidates().as_slice() {
            [port] => Some(*port),
            _ => None,
        },
    };
    // Where it may not be seen whether that network is its own, the port may be that of another node, so whoever answers must
    // have its name.
    let port = port.filter(|_| vm.isolation.net.is_some());
    let target = match (port, &distribution.name) {
        (Some(port), _) => Target::Address { host: address(vm, port), port },
        (None, Some(name)) => Target::Node { name: name.alive.clone(), host: name.host.clone() },
        (None, None) => return None,
    };
    let Epmd { network, port: epmd_port, .. } = Epmd::of(vm);
    Some(Route { target, epmd_port, network })
}

/// True if a VM without a configured name listens where only the distribution would.
fn looks_distributed(vm: &Vm) -> bool {
    vm.distribution.ports.is_some() && !vm.distribution.candidates().is_empty()
}

/// Where a VM's port is reached from its own network.
fn address(vm: &Vm, port: u16) -> String {
    let bound = vm.distribution.listeners.iter().flatten().find(|listener| listener.port == port);
    match bound.map(|listener| listener.address) {
        Some(address) if !address.is_unspecified() => address.to_string(),
        Some(IpAddr::V4(_)) => "127.0.0.1".to_owned(),
        // Listening on all IPv6 addresses takes IPv4 connections too, unless it was told otherwise: both are tried.
        _ => "localhost".to_owned(),
    }
}

/// What the attach part wants to know of a process.
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

/// The port of the EPMD that is asked where no VM says another one.
pub fn own_epmd_port() -> Result<u16, AttachError> {
    epmd::port(std::env::var("ERL_EPMD_PORT").ok().as_deref())
}
