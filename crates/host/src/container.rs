//! Identifies the container of a process by the names of its control groups: container runtimes name groups after containers. The names can
//! be forged, so they are used for display only.
//!
//! Forms of the names: Docker `/docker/ID` and `docker-ID.scope`; containerd `cri-containerd-ID.scope`, CRI-O `crio-ID.scope`
//! and, below Kubernetes' `kubepods`, only the id; Podman `libpod-ID.scope` and `libpod-ID`; LXC `/lxc/NAME` and
//! `lxc.payload.NAME`; systemd-nspawn `systemd-nspawn@NAME.service` and `machine-NAME.scope`.

use std::fmt;

use crate::cgroup::Membership;
use crate::text;

/// Prefixes of ids in group names.
const ID_PREFIXES: &[(&str, &str)] =
    &[("docker-", "docker"), ("cri-containerd-", "containerd"), ("crio-", "cri-o"), ("libpod-", "podman")];
/// Prefixes of container names in group names.
const NAME_PREFIXES: &[(&str, &str)] =
    &[("lxc.payload.", "lxc"), ("systemd-nspawn@", "nspawn"), ("machine-", "nspawn")];
/// Length of an id, which is a hash in hexadecimal.
const ID_LENGTH: usize = 64;
/// Number of digits of an id that `docker ps` shows.
const SHORT_ID_LENGTH: usize = 12;

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its runtime: `docker`, `podman`, `containerd`, `cri-o`, `kubernetes`, `lxc`, `nspawn`; `container` if the name of the group
    /// does not contain the runtime.
    pub kind: &'static str,
    /// Its id (64 hexadecimal digits) or its name.
    pub id: String,
}

impl Container {
    /// Returns the container of a process in these groups; the innermost one if containers are nested.
    pub fn of(memberships: &[Membership]) -> Option<Self> {
        memberships.iter().find_map(|group| {
            let names: Vec<&str> = group.path.split('/').collect();
            (0..names.len()).rev().find_map(|level| Container::of_group(names.get(..=level)?))
        })
    }

    /// Returns the container of one group, given the names on its path: its own name is the last, after those of its parents.
    fn of_group(names: &[&str]) -> Option<Self> {
        let (name, above) = names.split_last()?;
        let name = name.strip_suffix(".scope").or(name.strip_suffix(".service")).unwrap_or(name);
        let container = |kind, id: &str| Some(Container { kind, id: text::printable(id) });
        if is_id(name) {
            return match above.last() {
                Some(&"docker") => container("docker", name),
                _ if above.iter().any(|name| name.starts_with("kubepods")) => container("kubernetes", name),
                _ => container("container", name),
            };
        }
        let after_prefix = |(prefix, kind): &(&str, &'static str)| Some((name.strip_prefix(prefix)?, *kind));
        if let Some((id, kind)) = ID_PREFIXES.iter().find_map(after_prefix).filter(|(id, _)| is_id(id)) {
            return container(kind, id);
        }
        match NAME_PREFIXES.iter().find_map(after_prefix) {
            Some((name, kind)) if !name.is_empty() => container(kind, name),
            None if above.last() == Some(&"lxc") && !name.is_empty() => container("lxc", name),
            _ => None,
        }
    }
}

impl fmt::Display for Container {
    /// `docker 0123456789ab`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.id.get(..SHORT_ID_LENGTH).filter(|_| is_id(&self.id)).unwrap_or(&self.id);
        write!(f, "{} {short}", self.kind)
    }
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cgroup::memberships;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn groups_of_each_runtime_are_recognized() {
        let check = |path: &str, expect: Option<&str>| {
            let path = path.replace("ID", ID);
            let found = Container::of(&memberships(format!("0::{path}\n").as_bytes()));
            assert_eq!(found.map(|found| found.to_string()).as_deref(), expect, "{path}");
        };
        check("/docker/ID", Some("docker 0123456789ab"));
        check("/system.slice/docker-ID.scope", Some("docker 0123456789ab"));
        // A subgroup that the container itself created.
        check("/system.slice/docker-ID.scope/init.scope", Some("docker 0123456789ab"));
        check("/kubepods/burstable/pod8a1c/ID", Some("kubernetes 0123456789ab"));
        check(
            "/kubepods.slice/kubepods-pod8a1c.slice/cri-containerd-ID.scope",
            Some("containerd 0123456789ab"),
        );
        check("/kubepods.slice/crio-ID.scope", Some("cri-o 0123456789ab"));
        check("/machine.slice/libpod-ID.scope/container", Some("podman 0123456789ab"));
        check("/libpod_parent/libpod-ID", Some("podman 0123456789ab"));
        check("/ecs/4711/ID", Some("container 0123456789ab"));
        // The path of another container, as seen from a container with its own cgroup namespace.
        check("/../ID", Some("container 0123456789ab"));
        check("/lxc/web", Some("lxc web"));
        check("/lxc.payload.web/system.slice/app.service", Some("lxc web"));
        check("/machine.slice/systemd-nspawn@web.service/payload", Some("nspawn web"));
        check("/machine.slice/machine-web.scope", Some("nspawn web"));
        check("/", None);
        check("/system.slice/rabbitmq-server.service", None);
        check("/user.slice/user-1000.slice/session-2.scope", None);
        check("/docker/short", None);
        check("/system.slice/docker-short.scope", None);
    }

    #[test]
    fn any_v1_hierarchy_may_show_the_container() {
        let lines = format!("9:name=systemd:/\n4:memory:/docker/{ID}\n1:cpu:/\n0::/\n");
        let found = Container::of(&memberships(lines.as_bytes())).unwrap();
        assert_eq!((found.kind, found.id.as_str()), ("docker", ID));
    }

    proptest! {
        #[test]
        fn arbitrary_paths_do_not_panic(path in "\\PC{0,80}") {
            let found = Container::of(&[Membership { controllers: Vec::new(), path }]);
            prop_assert!(found.is_none_or(|found| !found.to_string().chars().any(char::is_control)));
        }
    }
}
