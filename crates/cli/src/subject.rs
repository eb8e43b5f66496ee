//! TARGET: from what the user wrote to a node to attach to, a process to look at, or a recording to read.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use beamtune_attach::locate::Route;
use beamtune_attach::source::Access;
use beamtune_attach::{Network, Target};
use beamtune_host::discovery::{self, Vm};
use beamtune_host::tree::LocalTree;

use crate::access::AccessArgs;
use crate::surroundings::{Surroundings, own_epmd_port, place};
use crate::terminal;

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
            return by_process_id(&around, pid);
        }
        let target: Target = text.parse()?;
        match around.local(&target).as_slice() {
            [] => {
                let route = Route { target, epmd_port: own_epmd_port()?, network: Network::Ours };
                let access = around.given.access(route, None, None, None)?;
                Ok(Live { vm: None, access: Ok(access), label: text.to_owned() })
            }
            [vm] => {
                let mut live = Live::of(&around, vm);
                // The user has said how to reach it.
                if let (Ok(access), Target::Address { .. }) = (&mut live.access, &target) {
                    access.route.target = target;
                }
                Ok(live)
            }
            several => bail!(
                "{} BEAM VMs on this host can be meant by {text}; say which one, by process id:\n{}",
                several.len(),
                listed(&around, several)
            ),
        }
    }

    /// A VM of this host.
    fn of(around: &Surroundings, vm: &Vm) -> Live {
        let label = around.name(vm).unwrap_or_else(|| format!("process {}", vm.identity.pid));
        Live { access: around.access(vm), vm: Some(vm.clone()), label }
    }
}

/// The VM with this process id here. What its id is in a container of its own is no answer: every container can have that
/// one.
fn by_process_id(around: &Surroundings, pid: u32) -> Result<Live> {
    let vms = &around.discovery.vms;
    if let Some(vm) = vms.iter().find(|vm| vm.identity.pid == pid) {
        return Ok(Live::of(around, vm));
    }
    let inside: Vec<_> = vms.iter().filter(|vm| vm.pid_inside == Some(pid)).collect();
    if !inside.is_empty() {
        bail!(
            "process {pid} of this host is no BEAM VM, but in a container of its own that is the process id of:\n{}",
            listed(around, &inside)
        );
    }
    let error = discovery::look_at(&LocalTree::default(), pid).err();
    let reason = error.map_or_else(String::new, |error| format!(" ({error})"));
    bail!("process {pid} is no BEAM VM{reason}: beamtune nodes lists them")
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
        [vm] => Ok(Live::of(around, vm)),
        vms => bail!(
            "{} BEAM VMs run on this host; say which one, by name or process id:\n{}",
            vms.len(),
            listed(around, &vms.iter().collect::<Vec<_>>())
        ),
    }
}

/// A line for each VM.
fn listed(around: &Surroundings, vms: &[&Vm]) -> String {
    let line = |vm: &&Vm| {
        let name = around.name(vm).unwrap_or_else(|| "(no node)".to_owned());
        let place = place(vm).map_or_else(String::new, |place| format!("  {place}"));
        beamtune_report::text::clean(&format!("  {}  {name}{place}  {}", vm.identity.pid, vm.product))
    };
    vms.iter().map(line).collect::<Vec<_>>().join("\n")
}
