//! Control groups: CPU quota, throttling and memory limit of a process, with v1, v2, or both mounted.
//!
//! A process is in one group of each hierarchy, and every group up to the root can have its own limit; the tightest one applies. OTP reads
//! only the process's own group (erl_misc_utils.c, `read_cpu_quota`), so the limits of this group are recorded, too. If they differ, the VM
//! starts more schedulers than its quota can run.
//!
//! `/proc/PID/cgroup` contains the paths of the groups, and mount tables contain the folders of their files. Mounts differ by namespace:
//! our own mounts are tried first, then those of the process, below `/proc/PID/root`. If beamtune runs in a container beside the process,
//! the group is visible only there. See cgroups(7), cgroup_namespaces(7), and the kernel's Documentation/admin-guide/cgroup-v2.rst,
//! cgroup-v1/memory.rst and scheduler/sched-bwc.rst.

use beamtune_model::Nanos;

use crate::error::HostError;
use crate::process::SMALL_FILE_BYTES;
use crate::text;
use crate::tree::FileTree;

mod continuation;
mod locate;

pub(crate) use continuation::Continuation;
pub use locate::{Membership, Mount, memberships, mounts};

/// Maximum number of levels between a group and the root; Kubernetes has about six.
const MAX_LEVELS: usize = 32;
/// v1 represents "no limit" as the largest possible number of pages. No host has as much memory as this value.
const NO_MEMORY_LIMIT: i64 = 1 << 60;

/// The version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

impl Version {
    /// `1` or `2`.
    pub fn text(self) -> &'static str {
        match self {
            Version::V1 => "1",
            Version::V2 => "2",
        }
    }
}

/// A group, and the folder with its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The visible part of its path in the hierarchy: `/docker/0123`.
    pub path: String,
    folder: Folder,
}

/// A folder below the tree's root, or below the root of a process in another mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    root: String,
    path: String,
}

/// The groups of a process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The version.
    pub version: Version,
    /// The process's own group, then its parent and so on; never empty.
    pub groups: Vec<Group>,
    /// Whether the last group is the root of the hierarchy; false if its parents are not visible.
    pub reaches_root: bool,
}

/// The relevant groups of a process; `None` if a controller is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// Groups that limit its CPU time.
    pub cpu: Option<Branch>,
    /// Groups that count its CPU time, in v1 (`cpuacct`).
    pub cpuacct: Option<Branch>,
    /// Groups that limit its memory.
    pub memory: Option<Branch>,
    /// v2 groups, which provide pressure even if all controllers are in v1.
    pub unified: Option<Branch>,
    /// A group that may limit its CPU time or memory, but whose files were not found: whether there is a limit is unknown.
    pub unseen: Option<String>,
}

/// CPU values of a group; `None` for those that it does not provide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuGroup {
    /// The group.
    pub path: String,
    /// Its own quota in thousandths of a core; `None` if it has no quota.
    pub quota_permille: Option<i64>,
    /// Number of enforcement periods in which it ran.
    pub periods: Option<i64>,
    /// Number of these periods in which it was throttled.
    pub throttled_periods: Option<i64>,
    /// Throttled time, summed over CPUs.
    pub throttled_ns: Option<Nanos>,
    /// `cpu.shares` (v1, default 1024) or `cpu.weight` (v2, default 100).
    pub weight: Option<i64>,
    /// CPU time of all processes in it.
    pub usage_ns: Option<Nanos>,
}

/// CPU limits of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuLimits {
    /// Its own group: the only one that OTP reads.
    pub own: CpuGroup,
    /// The group with the tightest quota; its own group if no group has a quota.
    pub tightest: CpuGroup,
}

/// Memory limit of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The group with the tightest limit; its own group if no group has a limit.
    pub path: String,
    /// The limit; `None` if absent.
    pub limit_bytes: Option<i64>,
    /// Memory charged to this group; `None` for the root group of v2, which does not provide it.
    pub used_bytes: Option<i64>,
}

impl Groups {
    /// Finds the groups of a process.
    pub fn of(tree: &impl FileTree, pid: u32) -> Result<Self, HostError> {
        locate::groups(tree, pid)
    }

    /// Reads the quotas up to the root, and the counters of the group with the tightest quota.
    pub fn cpu_limits(&self, tree: &impl FileTree) -> Result<Option<CpuLimits>, HostError> {
        let Some(branch) = &self.cpu else { return Ok(None) };
        let mut tightest: Option<(i64, usize)> = None;
        for (level, group) in branch.groups.iter().enumerate() {
            if let Some(quota) = quota(tree, branch.version, group)?
                && tightest.is_none_or(|(lowest, _)| quota < lowest)
            {
                tightest = Some((quota, level));
            }
        }
        let level = tightest.map_or(0, |(_, level)| level);
        let read = |group: &Group| self.cpu_group(tree, branch.version, group);
        let own = match branch.groups.first() {
            Some(group) => read(group)?,
            None => return Ok(None),
        };
        let tightest = match branch.groups.get(level) {
            Some(group) if level > 0 => read(group)?,
            _ => own.clone(),
        };
        Ok(Some(CpuLimits { own, tightest }))
    }

    fn cpu_group(
        &self,
        tree: &impl FileTree,
        version: Version,
        group: &Group,
    ) -> Result<CpuGroup, HostError> {
        let stat = group.read(tree, "cpu.stat")?.unwrap_or_default();
        let counter = |name: &str| {
            text::lines(&stat)
                .find_map(|line| text::reading(line.strip_prefix(name.as_bytes())?.trim_ascii()))
        };
        let microseconds = |name| counter(name)?.checked_mul(1_000);
        let (throttled_ns, usage_ns, weight) = match version {
            Version::V1 => (
                counter("throttled_time "),
                self.usage_v1(tree, &group.path)?,
                group.number(tree, "cpu.shares")?,
            ),
            Version::V2 => (
                microseconds("throttled_usec "),
                microseconds("usage_usec "),
                group.number(tree, "cpu.weight")?,
            ),
        };
        Ok(CpuGroup {
            path: group.path.clone(),
            quota_permille: quota(tree, version, group)?,
            periods: counter("nr_periods "),
            throttled_periods: counter("nr_throttled "),
            throttled_ns,
            weight,
            usage_ns,
        })
    }

    /// Reads the CPU time of a v1 group. It is counted by another controller, which is usually mounted together with `cpu`. `None` if the
    /// process is in a different group of that controller, whose CPU time would differ.
    fn usage_v1(&self, tree: &impl FileTree, path: &str) -> Result<Option<Nanos>, HostError> {
        let groups = self.cpuacct.as_ref().map(|branch| branch.groups.as_slice()).unwrap_or_default();
        match groups.iter().find(|group| group.path == path) {
            Some(group) => group.number(tree, "cpuacct.usage"),
            None => Ok(None),
        }
    }

    /// Reads the memory limits up to the root.
    pub fn memory_limits(&self, tree: &impl FileTree) -> Result<Option<MemoryLimits>, HostError> {
        let Some(branch) = &self.memory else { return Ok(None) };
        let (limit_file, used_file) = match branch.version {
            Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Version::V2 => ("memory.max", "memory.current"),
        };
        let mut tightest: Option<(i64, &Group)> = None;
        for group in &branch.groups {
            let limit = group.number(tree, limit_file)?.filter(|limit| *limit < NO_MEMORY_LIMIT);
            if let Some(limit) = limit
                && tightest.is_none_or(|(lowest, _)| limit < lowest)
            {
                tightest = Some((limit, group));
            }
        }
        let Some(group) = tightest.map(|(_, group)| group).or(branch.groups.first()) else { return Ok(None) };
        Ok(Some(MemoryLimits {
            path: group.path.clone(),
            limit_bytes: tightest.map(|(limit, _)| limit),
            used_bytes: group.number(tree, used_file)?,
        }))
    }

    /// Reads `cpu.pressure`, `memory.pressure` or `io.pressure` of the process's v2 group. `None` for the root group: its pressure is that
    /// of the host, which is read from `/proc/pressure`.
    pub fn pressure(&self, tree: &impl FileTree, file: &str) -> Result<Option<Vec<u8>>, HostError> {
        match &self.unified {
            Some(Branch { groups, reaches_root, .. }) if groups.len() > 1 || !reaches_root => {
                groups.first().map_or(Ok(None), |group| group.read(tree, file))
            }
            _ => Ok(None),
        }
    }
}

impl Group {
    /// Reads one of the group's files; `None` if the file does not exist, because the controller is off.
    fn read(&self, tree: &impl FileTree, file: &str) -> Result<Option<Vec<u8>>, HostError> {
        let mut content = Vec::new();
        let path = format!("{}/{file}", self.folder.path.trim_end_matches('/'));
        let read = match self.folder.root.as_str() {
            "/" => tree.read_start(&path, SMALL_FILE_BYTES, &mut content),
            root => tree.read_start_below(root, &path, SMALL_FILE_BYTES, &mut content),
        };
        match read {
            Ok(()) => Ok(Some(content)),
            Err(HostError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a file that contains one number; `None` if the file is missing, or contains no number (`max`).
    fn number(&self, tree: &impl FileTree, file: &str) -> Result<Option<i64>, HostError> {
        Ok(self.read(tree, file)?.and_then(|content| text::reading(content.trim_ascii())))
    }
}

/// Reads the quota of one group, in thousandths of a core.
fn quota(tree: &impl FileTree, version: Version, group: &Group) -> Result<Option<i64>, HostError> {
    let (quota, period) = match version {
        Version::V1 => {
            // "no quota" is -1, which does not parse as a number.
            (group.number(tree, "cpu.cfs_quota_us")?, group.number(tree, "cpu.cfs_period_us")?)
        }
        Version::V2 => {
            let content = group.read(tree, "cpu.max")?.unwrap_or_default();
            let mut fields = text::fields(content.trim_ascii()).map(text::reading);
            (fields.next().flatten(), fields.next().flatten())
        }
    };
    let permille = |quota: i64, period: i64| quota.checked_mul(1_000)?.checked_div(period);
    Ok(quota.zip(period).and_then(|(quota, period)| permille(quota, period)))
}

#[cfg(test)]
mod tests;
