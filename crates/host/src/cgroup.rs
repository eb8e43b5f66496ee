//! Control groups: the CPU quota, throttling and memory limit of a process, in v1, v2 and where both are
//! mounted at once.
//!
//! A process is in one group of each hierarchy, and every group on the way from there to the root can have a
//! limit of its own; the tightest one counts. OTP reads the process's own group only (erl_misc_utils.c,
//! `read_cpu_quota`), so both are kept: where they differ, the VM started more schedulers than it may run.
//!
//! `/proc/PID/cgroup` names the groups. Where their files are is said by the mounts, and those differ by
//! mount namespace: first ours are tried, then the process's own, below `/proc/PID/root` (we may be in a container
//! beside it, and see its group only there). See cgroups(7), cgroup_namespaces(7), and the kernel's
//! Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst and scheduler/sched-bwc.rst.

use beamtune_model::Nanos;

use crate::error::HostError;
use crate::process::SMALL_FILE_BYTES;
use crate::text;
use crate::tree::FileTree;

mod continued;
mod locate;

pub(crate) use continued::Continued;
pub use locate::{Membership, Mount, memberships, mounts};

/// Levels between a group and the root that are looked at; Kubernetes makes about six.
const MAX_LEVELS: usize = 32;
/// v1 writes "no limit" as the largest number of pages that it can count; no machine has so much.
const NO_MEMORY_LIMIT: i64 = 1 << 60;

/// Which kind of hierarchy a controller belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One for all.
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

/// One group, and where its files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its path in the hierarchy, as far as it can be seen: `/docker/0123`.
    pub path: String,
    folder: Folder,
}

/// A folder below the tree's root, or below that of a process in another mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    root: String,
    path: String,
}

/// The groups of a process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// v1 or v2.
    pub version: Version,
    /// The group that the process is in, then its parent and so on; never empty.
    pub groups: Vec<Group>,
    /// True if the last of them is the root of the hierarchy; false if what is above cannot be seen from here.
    pub reaches_root: bool,
}

/// The groups of a process that matter here; `None` where there is no such controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// Those that limit its CPU time.
    pub cpu: Option<Branch>,
    /// Those that count its CPU time, where they are not the same (v1's `cpuacct`).
    pub cpuacct: Option<Branch>,
    /// Those that limit its memory.
    pub memory: Option<Branch>,
    /// Those of v2, which tell of pressure also where v1 does all else.
    pub unified: Option<Branch>,
    /// A group that limits its CPU time or memory, or could, and whose files were not found: whether there is a limit
    /// is not known.
    pub unseen: Option<String>,
}

/// What a group says of CPU time. `None` where it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuGroup {
    /// The group.
    pub path: String,
    /// Its own quota in thousandths of a core; `None` also where there is none.
    pub quota_permille: Option<i64>,
    /// Enforcement periods in which it ran.
    pub periods: Option<i64>,
    /// Of them, those in which it was throttled.
    pub throttled_periods: Option<i64>,
    /// For how long its CPUs' queues were held back, added up over the CPUs.
    pub throttled_ns: Option<Nanos>,
    /// `cpu.shares` (v1, default 1024) or `cpu.weight` (v2, default 100).
    pub weight: Option<i64>,
    /// CPU time of all processes in it.
    pub usage_ns: Option<Nanos>,
}

/// What limits the CPU time of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuLimits {
    /// The group that it is in: all that OTP itself looks at.
    pub own: CpuGroup,
    /// The group with the tightest quota; its own one where there is no quota.
    pub tightest: CpuGroup,
}

/// What limits the memory of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The group with the tightest limit; the process's own one where there is none.
    pub path: String,
    /// The limit; `None` where there is none.
    pub limit_bytes: Option<i64>,
    /// What is charged to that group; `None` for the root of v2, which does not say.
    pub used_bytes: Option<i64>,
}

impl Groups {
    /// Finds the groups of a process.
    pub fn of(tree: &impl FileTree, pid: u32) -> Result<Self, HostError> {
        locate::groups(tree, pid)
    }

    /// Reads the quotas on the way to the root and the counters of the group whose quota is the tightest.
    pub fn cpu_limits(&self, tree: &impl FileTree) -> Result<Option<CpuLimits>, HostError> {
        let Some(branch) = &self.cpu else { return Ok(None) };
        let mut tightest: Option<(i64, usize)> = None;
        for (level, group) in branch.groups.iter().enumerate() {
            if let Some(quota) = quota(tree, branch.version, group)?
                && tightest.is_none_or(|(least, _)| quota < least)
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

    /// In v1 another controller counts the time, usually mounted at the same place. Where the process is in
    /// another group there, that group's time says nothing of this one's.
    fn usage_v1(&self, tree: &impl FileTree, path: &str) -> Result<Option<Nanos>, HostError> {
        let groups = self.cpuacct.as_ref().map(|branch| branch.groups.as_slice()).unwrap_or_default();
        match groups.iter().find(|group| group.path == path) {
            Some(group) => group.number(tree, "cpuacct.usage"),
            None => Ok(None),
        }
    }

    /// Reads the memory limits on the way to the root.
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
                && tightest.is_none_or(|(least, _)| limit < least)
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

    /// Reads one of `cpu.pressure`, `memory.pressure`, `io.pressure` of the process's group in v2. The root's is the
    /// whole host's, which is read elsewhere, so it is `None` here.
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
    /// One of its files; `None` where it has none of that name, because the controller is off here.
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

    /// A file that holds one number; `None` where it is missing, or holds no number (`max`).
    fn number(&self, tree: &impl FileTree, file: &str) -> Result<Option<i64>, HostError> {
        Ok(self.read(tree, file)?.and_then(|content| text::reading(content.trim_ascii())))
    }
}

/// The quota of one group, in thousandths of a core.
fn quota(tree: &impl FileTree, version: Version, group: &Group) -> Result<Option<i64>, HostError> {
    let (quota, period) = match version {
        Version::V1 => {
            // -1 is no quota, and no number here.
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
