//! Finds the files of a process's control groups.

use super::{Branch, Folder, Group, Groups, MAX_LEVELS, Version};
use crate::error::HostError;
use crate::text;
use crate::tree::FileTree;

/// On a host with very many mounts (dozens per container), the file has a few megabytes.
const MOUNTINFO_BYTES: usize = 8 << 20;
/// `/proc/PID/cgroup` has one line per hierarchy, each no longer than a path.
const MEMBERSHIP_BYTES: usize = 256 * 1024;
/// The initial cgroup namespace (PROC_CGROUP_INIT_INO of include/linux/proc_ns.h).
pub(super) const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// A line of `/proc/PID/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The controllers of a v1 hierarchy; none for v2.
    pub controllers: Vec<String>,
    /// The group's path; starts with `/..` if the group is outside our namespace.
    pub path: String,
}

/// The mount of a hierarchy: a line of `/proc/PID/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// v1 or v2.
    pub version: Version,
    /// The group that is mounted.
    pub root: String,
    /// The mount point.
    pub point: String,
    /// File system options; in v1 they include the controllers.
    pub options: Vec<String>,
}

/// Parses `/proc/PID/cgroup`; invalid lines are ignored.
pub fn memberships(content: &[u8]) -> Vec<Membership> {
    let line = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let mut parts = line.splitn(3, ':');
        text::number(parts.next()?.as_bytes())?;
        let controllers = parts.next()?;
        let path = parts.next()?;
        let controllers = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        path.starts_with('/').then(|| Membership { controllers, path: path.to_owned() })
    };
    text::lines(content).filter_map(line).collect()
}

/// Parses the cgroup mounts in `/proc/PID/mountinfo`; other and invalid lines are ignored.
pub fn mounts(content: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        // There can be any number of optional fields; a field that is just a hyphen ends them.
        let mut fields = text::fields(line);
        let root = unescape(fields.nth(3)?);
        let point = unescape(fields.next()?);
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let version = match fields.next()? {
            b"cgroup" => Version::V1,
            b"cgroup2" => Version::V2,
            _ => return None,
        };
        let options = String::from_utf8_lossy(fields.nth(1)?).split(',').map(str::to_owned).collect();
        (root.starts_with('/') && point.starts_with('/')).then_some(Mount { version, root, point, options })
    };
    text::lines(content).filter_map(line).collect()
}

/// Decodes octal escapes, such as `\040` for a space.
fn unescape(field: &[u8]) -> String {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digit =
            |index: usize| after.get(index).map(|digit| digit.wrapping_sub(b'0')).filter(|digit| *digit < 8);
        match (byte, digit(0), digit(1), digit(2)) {
            (b'\\', Some(high @ 0..=3), Some(middle), Some(low)) => {
                plain.push(high * 64 + middle * 8 + low);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Returns the part of `path` below `root`: `/b` for `/a/b` and `/a`. `None` if `path` is not below `root`.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    let rest = rest.trim_end_matches('/');
    // `..` leads out of the root; no group has this name.
    let inside = rest.is_empty() || (rest.starts_with('/') && !rest.split('/').any(|name| name == ".."));
    inside.then_some(rest)
}

/// The cgroup mounts of one mount namespace.
struct View {
    root: String,
    mounts: Vec<Mount>,
    whole: bool,
}

impl View {
    fn read(tree: &impl FileTree, root: &str, process: &str) -> Option<View> {
        let content = tree.read(&format!("/proc/{process}/mountinfo"), MOUNTINFO_BYTES).ok()?;
        // In a cgroup namespace, `/` is not the root of the hierarchy. Paths are relative to our namespace, also those of other processes.
        let namespace = tree.read_link("/proc/self/ns/cgroup");
        let whole = namespace.map_or(true, |namespace| namespace == FIRST_NAMESPACE);
        Some(View { root: root.to_owned(), mounts: mounts(&content), whole })
    }

    /// Returns the groups from `path` up to the root of a mount with this version and controller.
    fn branch(
        &self,
        tree: &impl FileTree,
        version: Version,
        controller: Option<&str>,
        path: &str,
    ) -> Option<Branch> {
        let fits = |mount: &&Mount| {
            mount.version == version
                && controller.is_none_or(|name| mount.options.iter().any(|option| option == name))
        };
        self.mounts.iter().filter(fits).find_map(|mount| {
            let inside = below(path, &mount.root)?;
            let mut ends: Vec<usize> =
                inside.char_indices().filter(|(_, c)| *c == '/').map(|(index, _)| index).collect();
            // From the full path up to the empty one.
            ends.push(inside.len());
            ends.reverse();
            ends.dedup();
            ends.truncate(MAX_LEVELS);
            let outside = path.trim_end_matches('/').strip_suffix(inside)?;
            let groups = ends.iter().map(|&end| {
                let inside = inside.get(..end).unwrap_or_default();
                let path = format!("{outside}{inside}");
                Group {
                    path: if path.is_empty() { "/".to_owned() } else { path },
                    folder: Folder {
                        root: self.root.clone(),
                        path: format!("{}{inside}", mount.point.trim_end_matches('/')),
                    },
                }
            });
            let groups: Vec<Group> = groups.collect();
            // Another mount may hide this one, so it is used only if its files exist.
            let marker = match version {
                Version::V1 => "cgroup.clone_children",
                Version::V2 => "cgroup.controllers",
            };
            let seen = groups.first().is_some_and(|group| matches!(group.read(tree, marker), Ok(Some(_))));
            let reaches_root =
                self.whole && groups.last().is_some_and(|group| group.path == "/") && ends.last() == Some(&0);
            seen.then_some(Branch { version, groups, reaches_root })
        })
    }
}

pub(super) fn groups(tree: &impl FileTree, pid: u32) -> Result<Groups, HostError> {
    let memberships = memberships(&tree.read(&format!("/proc/{pid}/cgroup"), MEMBERSHIP_BYTES)?);
    let in_v1 = |controller: &str| {
        memberships.iter().find(|group| group.controllers.iter().any(|name| name == controller))
    };
    let in_v2 = memberships.iter().find(|group| group.controllers.is_empty());
    let ours = View::read(tree, "/", "self");
    // Read only if needed, because the file can be long.
    let mut its: Option<Option<View>> = None;
    let mut find = |version, controller: Option<&str>, path: &str| {
        ours.as_ref().and_then(|view| view.branch(tree, version, controller, path)).or_else(|| {
            its.get_or_insert_with(|| View::read(tree, &format!("/proc/{pid}/root"), &pid.to_string()))
                .as_ref()
                .and_then(|view| view.branch(tree, version, controller, path))
        })
    };
    let unified = in_v2.and_then(|group| find(Version::V2, None, &group.path));
    let mut find_in_v1 = |name: &str| find(Version::V1, Some(name), &in_v1(name)?.path);
    let cpuacct = find_in_v1("cpuacct");
    // A controller is in only one hierarchy: in v1 if the process has a v1 group for it.
    let mut unseen = None;
    let mut controller = |name: &str| {
        let (group, branch) = match in_v1(name) {
            Some(group) => (Some(group), find_in_v1(name)),
            None => (in_v2, unified.clone()),
        };
        if branch.is_none() {
            unseen = unseen.take().or_else(|| Some(group?.path.clone()));
        }
        branch
    };
    let (cpu, memory) = (controller("cpu"), controller("memory"));
    Ok(Groups { cpu, cpuacct, memory, unified, unseen })
}
