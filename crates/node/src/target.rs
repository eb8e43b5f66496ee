//! Resolves the argument TARGET: a recording, a process on this host, or a node on another host.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use beamtune_attach::locate::Route;
use beamtune_attach::source::Access;
use beamtune_attach::{Network, Target};
use beamtune_host::discovery::{self, Vm};
use beamtune_host::tree::LocalTree;

use crate::Printer;
use crate::access::{AccessError, AccessOptions};
use crate::local_vms::{LocalVms, own_epmd_port, place};

/// The meaning of a TARGET argument.
pub enum ResolvedTarget {
    /// A recording.
    Recording(PathBuf),
    /// A running VM.
    Live(Box<LiveTarget>),
}

/// A running VM that is not attached to yet.
pub struct LiveTarget {
    /// Its process; `None` if it runs on another host.
    pub vm: Option<Vm>,
    /// How to attach to it, or why that is impossible.
    pub access: Result<Access, AccessError>,
    /// The node's name for messages.
    pub label: String,
    pub(crate) print: Printer,
}

impl ResolvedTarget {
    /// Resolves a target; without `text`, the only VM on this host.
    pub fn find(text: Option<&str>, access: &AccessOptions) -> Result<ResolvedTarget> {
        if let Some(text) = text
            && text.parse::<u32>().is_err()
            && (text.contains('/') || Path::new(text).is_file())
        {
            return Ok(ResolvedTarget::Recording(PathBuf::from(text)));
        }
        Ok(ResolvedTarget::Live(Box::new(LiveTarget::find(text, access)?)))
    }
}

impl LiveTarget {
    /// Finds a running VM by process id, node name or address.
    pub fn find(text: Option<&str>, access: &AccessOptions) -> Result<LiveTarget> {
        let local = LocalVms::discover(access)?;
        if let Some(warning) = local.credentials.warning() {
            (access.print)(warning);
        }
        let Some(text) = text else { return only(&local) };
        if let Ok(pid) = text.parse::<u32>() {
            return by_process_id(&local, pid);
        }
        let target: Target = text.parse()?;
        match local.matching(&target).as_slice() {
            [] => {
                let route = Route { target, epmd_port: own_epmd_port()?, network: Network::Own };
                let access = local.credentials.access(route, None, None, None)?;
                Ok(LiveTarget { vm: None, access: Ok(access), label: text.to_owned(), print: local.print })
            }
            [vm] => {
                let mut live = LiveTarget::of(&local, vm);
                // The address that the user gave takes precedence.
                if let (Ok(access), Target::Address { .. }) = (&mut live.access, &target) {
                    access.route.target = target;
                }
                Ok(live)
            }
            several => bail!(
                "{text} matches {} Erlang VMs on this host; name one by its process id:\n{}",
                several.len(),
                list(&local, several)
            ),
        }
    }

    /// Returns the target for a VM on this host.
    fn of(local: &LocalVms, vm: &Vm) -> LiveTarget {
        let label = local.name(vm).unwrap_or_else(|| format!("process {}", vm.identity.pid));
        LiveTarget { access: local.access(vm), vm: Some(vm.clone()), label, print: local.print }
    }
}

/// Finds the VM with this process id on this host. Ids inside containers are not accepted, since they are not unique.
fn by_process_id(local: &LocalVms, pid: u32) -> Result<LiveTarget> {
    let vms = &local.discovery.vms;
    if let Some(vm) = vms.iter().find(|vm| vm.identity.pid == pid) {
        return Ok(LiveTarget::of(local, vm));
    }
    let inside: Vec<_> = vms.iter().filter(|vm| vm.pid_inside == Some(pid)).collect();
    if !inside.is_empty() {
        bail!(
            "process {pid} of this host is not an Erlang VM. In a container, {pid} is the process id of:\n{}",
            list(local, &inside)
        );
    }
    match discovery::inspect(&LocalTree::default(), pid) {
        Err(error) => Err(error.into()),
        Ok(_) => bail!("process {pid} is not an Erlang VM: list the VMs with `beamtune nodes`"),
    }
}

/// Returns the only VM on this host. If there are several, the error lists them.
fn only(local: &LocalVms) -> Result<LiveTarget> {
    match local.discovery.vms.as_slice() {
        [] if local.discovery.may_be_incomplete => {
            bail!(
                "no Erlang VM of this user runs on this host; run beamtune as root to see those of other users"
            )
        }
        [] => bail!("no Erlang VM runs on this host; name one on another host: beamtune doctor NAME@HOST"),
        [vm] => Ok(LiveTarget::of(local, vm)),
        vms => bail!(
            "{} Erlang VMs run on this host; name one, by name or process id:\n{}",
            vms.len(),
            list(local, &vms.iter().collect::<Vec<_>>())
        ),
    }
}

/// Lists VMs, one line each.
fn list(local: &LocalVms, vms: &[&Vm]) -> String {
    let line = |vm: &&Vm| {
        let name = local.name(vm).unwrap_or_else(|| "(not a node)".to_owned());
        let place = place(vm).map_or_else(String::new, |place| format!("  {place}"));
        beamtune_report::text::clean(&format!("  {}  {name}{place}  {}", vm.identity.pid, vm.product))
    };
    vms.iter().map(line).collect::<Vec<_>>().join("\n")
}
