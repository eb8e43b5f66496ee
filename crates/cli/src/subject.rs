//! TARGET: from what the user wrote to a node to attach to, a process to look at, or a recording to read.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_attach::epmd::{self, Registered};
use beamtune_attach::process::Process;
use beamtune_attach::source::Access;
use beamtune_attach::{AttachError, Target, locate};
use beamtune_host::discovery::{self, Discovery, Vm};
use beamtune_host::tree::LocalTree;

use crate::access::{AccessArgs, Given};
use crate::terminal;

/// How long this host's EPMD may take to list its nodes.
const EPMD_TIMEOUT: Duration = Duration::from_secs(2);
/// After so long, no further EPMD is asked.
const EPMDS_TIMEOUT: Duration = Duration::from_secs(6);

/// What TARGET means.
pub enum Subject {
    /// A recording.
    Recording(PathBuf),
    /// A running VM.
    Live(Box<Live>),
}

/// A running VM, as far as it is known before it is attached to.
pub struct Live {
    /// Its process, where it is one of this host.
    pub vm: Option<Vm>,
    /// How to attach to it; an error says why it cannot be.
    pub access: Result<Access, NoAccess>,
    /// The node, for messages.
    pub label: String,
}

/// Why a VM cannot be attached to.
#[derive(Debug)]
pub enum NoAccess {
    /// It is no node: it has no distribution. The host can be looked at all the same.
    NoDistribution,
    /// It is one, but there is no way in yet.
    Closed(anyhow::Error),
}

impl NoAccess {
    /// The reason, with the next step.
    pub fn reason(&self) -> String {
        match self {
            NoAccess::NoDistribution => {
                "it has no distribution: start it with -sname or -name to look inside".to_owned()
            }
            NoAccess::Closed(error) => format!("{error:#}"),
        }
    }
}

/// What is known of this host: its VMs, and the nodes that its EPMD knows.
pub struct Surroundings {
    pub discovery: Discovery,
    /// By the port of the EPMD.
    registered: Vec<(u16, Vec<Registered>)>,
    given: Given,
}

impl Surroundings {
    /// Looks around.
    pub fn look(access: &AccessArgs) -> Result<Surroundings> {
        let discovery = discovery::discover(&LocalTree::default()).context("cannot look for VMs in /proc")?;
        let mut surroundings = Surroundings { discovery, registered: Vec::new(), given: access.given()? };
        let own = own_epmd_port()?;
        let vms = surroundings.discovery.vms.iter();
        let mut ports: Vec<u16> = vms.filter_map(|vm| vm.distribution.epmd_port).collect();
        // Ours is the first.
        ports.sort_unstable_by_key(|port| (*port != own, *port));
        ports.dedup();
        if ports.first() != Some(&own) {
            ports.insert(0, own);
        }
        let begin = Instant::now();
        for port in ports {
            // Whoever may start processes here may name any number of EPMDs in them, none of which answers.
            if begin.elapsed() > EPMDS_TIMEOUT {
                break;
            }
            // An EPMD that is not there knows no nodes; who needs it is told by the attempt to ask it.
            let nodes = locate::registered("127.0.0.1", port, EPMD_TIMEOUT).unwrap_or_default();
            surroundings.registered.push((port, nodes));
        }
        Ok(surroundings)
    }

    /// The name by which EPMD knows a VM of this host, and its distribution port.
    fn registration(&self, vm: &Vm) -> Option<&Registered> {
        let epmd = vm.distribution.epmd_port.unwrap_or(epmd::DEFAULT_PORT);
        let (_, nodes) = self.registered.iter().find(|(port, _)| *port == epmd)?;
        match &vm.distribution.listeners {
            Some(listeners) => nodes.iter().find(|node| listeners.iter().any(|l| l.port == node.port)),
            // Without a look at its sockets the name has to do.
            None => nodes
                .iter()
                .find(|node| vm.distribution.name.as_ref().is_some_and(|name| name.alive == node.name)),
        }
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
            None if vm.distribution.uses_epmd && vm.distribution.listens => configured.and_then(|name| {
                matches!(name.source, beamtune_host::distribution::NameSource::CommandLine)
                    .then(|| name.to_string())
            }),
            None => configured.map(ToString::to_string),
        }
    }

    /// How to attach to a VM of this host.
    pub fn access(&self, vm: &Vm) -> Result<Access, NoAccess> {
        let distribution = &vm.distribution;
        let closed = |error: anyhow::Error| Err(NoAccess::Closed(error));
        if vm.isolation.net == Some(true) {
            return closed(anyhow::anyhow!(
                "it has a network of its own: run beamtune inside its container or network namespace"
            ));
        }
        let port = match self.registration(vm) {
            Some(node) => Some(node.port),
            None if distribution.name.is_none() && !self.looks_distributed(vm) => {
                return Err(NoAccess::NoDistribution);
            }
            // More than one candidate is no knowledge: an application's own port must not be knocked at.
            None => match distribution.candidates().as_slice() {
                [port] => Some(*port),
                _ => None,
            },
        };
        let target = match (port, &distribution.name) {
            (Some(port), _) => Target::Address { host: address(vm, port), port },
            (None, Some(name)) => Target::Node { name: name.alive.clone(), host: name.host.clone() },
            (None, None) => return Err(NoAccess::NoDistribution),
        };
        let epmd_port = distribution.epmd_port.unwrap_or(epmd::DEFAULT_PORT);
        let name = self.name(vm);
        let host = name.as_deref().and_then(|name| Some(name.split_once('@')?.1));
        let access = self.given.access(target, epmd_port, Some(&process(vm)), host);
        access.map_err(|error| NoAccess::Closed(error.into()))
    }

    /// True if a VM without a configured name listens where only the distribution would.
    fn looks_distributed(&self, vm: &Vm) -> bool {
        vm.distribution.ports.is_some() && !vm.distribution.candidates().is_empty()
    }

    /// A VM of this host as a subject.
    fn live(&self, vm: &Vm) -> Live {
        let label = self.name(vm).unwrap_or_else(|| format!("process {}", vm.identity.pid));
        Live { access: self.access(vm), vm: Some(vm.clone()), label }
    }

    /// The VM of this host that a target means.
    fn local(&self, target: &Target) -> Option<&Vm> {
        let vms = &self.discovery.vms;
        match target {
            Target::Node { name, host } => vms.iter().find(|vm| {
                let known = match self.registration(vm) {
                    Some(node) => node.name == *name,
                    None => vm.distribution.name.as_ref().is_some_and(|known| known.alive == *name),
                };
                // A name with a host must be this VM's whole name where that is known.
                let whole = vm.distribution.name.as_ref().and_then(|known| known.host.as_ref());
                known && host.as_ref().is_none_or(|host| whole.is_none_or(|known| known == host))
            }),
            Target::Address { host, port } => {
                let here =
                    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
                vms.iter().find(|vm| {
                    let listeners = vm.distribution.listeners.iter().flatten();
                    here && listeners.into_iter().any(|listener| listener.port == *port)
                })
            }
        }
    }
}

impl Subject {
    /// Finds out what is meant. Without a target: the only VM of this host.
    pub fn find(text: Option<&str>, access: &AccessArgs) -> Result<Subject> {
        if let Some(text) = text
            && text.parse::<u32>().is_err()
            && (text.contains('/') || Path::new(text).is_file())
        {
            return Ok(Subject::Recording(PathBuf::from(text)));
        }
        Ok(Subject::Live(Box::new(Live::find(text, access)?)))
    }
}

impl Live {
    /// Finds the running VM that is meant.
    pub fn find(text: Option<&str>, access: &AccessArgs) -> Result<Live> {
        let around = Surroundings::look(access)?;
        if let Some(warning) = around.given.warning() {
            terminal::complain(warning);
        }
        let Some(text) = text else { return only(&around) };
        if let Ok(pid) = text.parse::<u32>() {
            let known =
                around.discovery.vms.iter().find(|vm| vm.identity.pid == pid || vm.pid_inside == Some(pid));
            return match known {
                Some(vm) => Ok(around.live(vm)),
                None => {
                    let error = discovery::look_at(&LocalTree::default(), pid).err();
                    let reason = error.map_or_else(String::new, |error| format!(" ({error})"));
                    bail!("process {pid} is no BEAM VM{reason}: beamtune nodes lists them")
                }
            };
        }
        let target: Target = text.parse()?;
        if let Some(vm) = around.local(&target) {
            let mut live = around.live(vm);
            // The user has said how to reach it.
            if let (Ok(access), Target::Address { .. }) = (&mut live.access, &target) {
                access.target = target;
            }
            return Ok(live);
        }
        let access = around.given.access(target, own_epmd_port()?, None, None)?;
        Ok(Live { vm: None, access: Ok(access), label: text.to_owned() })
    }
}

/// The only VM of this host, or an error that lists what there is to choose from.
fn only(around: &Surroundings) -> Result<Live> {
    match around.discovery.vms.as_slice() {
        [] if around.discovery.others_hidden => {
            bail!(
                "no BEAM VM of yours runs on this host, and others' processes are hidden from you: run this as root"
            )
        }
        [] => bail!("no BEAM VM runs on this host; name one elsewhere: beamtune doctor NAME@HOST"),
        [vm] => Ok(around.live(vm)),
        vms => {
            let list: Vec<_> = vms
                .iter()
                .map(|vm| {
                    let name = around.name(vm).unwrap_or_else(|| "(no node)".to_owned());
                    format!("  {}  {name}  {}", vm.identity.pid, vm.product)
                })
                .map(|line| beamtune_report::text::clean(&line))
                .collect();
            bail!(
                "{} BEAM VMs run on this host; say which one, by name or process id:\n{}",
                vms.len(),
                list.join("\n")
            )
        }
    }
}

/// Where a VM's port is reached from here.
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

fn own_epmd_port() -> Result<u16, AttachError> {
    epmd::port(std::env::var("ERL_EPMD_PORT").ok().as_deref())
}
