//! Facts about a VM and its host, from operating system data, for the first sample of a recording.

use beamtune_model::facts;

use crate::cgroup::Groups;
use crate::discovery::Vm;
use crate::distribution::{NameSource, NodeName};
use crate::machine::Machine;
use crate::process::{self, SMALL_FILE_BYTES, Status};
use crate::tree::FileTree;

/// The name of the dynamic loader is within the first page of an executable.
const ELF_HEAD_BYTES: usize = 4096;

/// Returns the facts about the host.
pub(crate) fn of_machine(machine: Machine) -> Vec<(&'static str, String)> {
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    present([
        (facts::HOST_NAME, machine.name),
        (facts::KERNEL_VERSION, machine.kernel),
        (facts::CPU_MODEL, machine.cpu_model),
        (facts::MACHINE, machine.model),
        (facts::HOST_CPUS, number(machine.cpus)),
        // A list of strings can always be serialized.
        (facts::NUMA_NODES, machine.memory_nodes.and_then(|nodes| serde_json::to_string(&nodes).ok())),
        (facts::HOST_MEMORY, number(machine.memory_bytes)),
        (facts::HUGE_PAGES, machine.huge_pages),
        (facts::CLOCKSOURCE, machine.clock_source),
    ])
}

/// Returns the facts about a process, which need not be a VM.
pub(crate) fn of_process(tree: &impl FileTree, pid: u32, status: &Status) -> Vec<(&'static str, String)> {
    let limits = tree.read(&format!("/proc/{pid}/limits"), SMALL_FILE_BYTES).unwrap_or_default();
    let (soft, hard) = process::open_files_limit(&limits).unzip();
    let own_pid = status.pids.last().copied().unwrap_or(pid);
    let mut head = Vec::new();
    let libc = tree
        .read_start(&format!("/proc/{pid}/exe"), ELF_HEAD_BYTES, &mut head)
        .ok()
        .and_then(|()| libc(&head));
    present([
        // The same number as the VM itself reports.
        (facts::OS_PID, Some(own_pid.to_string())),
        (facts::HOST_PID, (own_pid != pid).then(|| pid.to_string())),
        (facts::NOFILE_SOFT, soft),
        (facts::NOFILE_HARD, hard),
        (facts::LIBC, libc.map(str::to_owned)),
    ])
}

/// Returns the facts about a VM. If the VM itself reports a fact, its value takes precedence.
pub(crate) fn of_vm(vm: &Vm) -> Vec<(&'static str, String)> {
    let installation = &vm.installation;
    // A map of strings can always be serialized.
    let json = |value: serde_json::Result<String>| value.ok();
    let environment = vm.environment.shown();
    // A product's default name is a guess, not a fact.
    let name = vm.distribution.name.as_ref().filter(|name| name.source != NameSource::Default);
    present([
        (facts::NODE_NAME, name.and_then(NodeName::full)),
        (facts::OTP_RELEASE, installation.otp_release.map(|release| release.to_string())),
        (facts::OTP_VERSION, installation.otp_version.clone()),
        (facts::ERTS_VERSION, installation.erts_version.clone()),
        (facts::EMU_TYPE, installation.emulator_type.clone()),
        (facts::PRODUCT, Some(vm.product.to_string())),
        (facts::COMMAND_LINE, json(serde_json::to_string(&vm.command_line.redacted()))),
        (facts::ENVIRONMENT, json(serde_json::to_string(&environment)).filter(|_| !environment.is_empty())),
    ])
}

/// Returns the facts that can change while a process runs.
pub(crate) fn of_limits(
    tree: &impl FileTree,
    status: &Status,
    groups: &Groups,
) -> Vec<(&'static str, String)> {
    let branch = groups.cpu.as_ref();
    let limits = groups.cpu_limits(tree).ok().flatten();
    let (tightest, own) = limits.map(|limits| (limits.tightest.path, limits.own.path)).unzip();
    let reaches_root = branch.map(|branch| branch.reaches_root.to_string());
    present([
        (facts::CPUS_ALLOWED, status.cpus_allowed.clone()),
        (facts::CGROUP_VERSION, branch.map(|branch| branch.version.text().to_owned())),
        (facts::CGROUP_PATH, tightest),
        (facts::CGROUP_OWN_PATH, own),
        (facts::CGROUP_REACHES_ROOT, reaches_root),
    ])
}

fn present<const N: usize>(facts: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    facts.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// Identifies the C library by the dynamic loader that is named in an executable.
fn libc(head: &[u8]) -> Option<&'static str> {
    let names: [(&[u8], _); 2] = [(b"/ld-musl-", "musl"), (b"/ld-linux", "glibc")];
    let has = |name: &[u8]| head.windows(name.len()).any(|window| window == name);
    // On 64-bit POWER and S/390 the loader is called ld64.
    names.into_iter().chain([(&b"/ld64.so"[..], "glibc")]).find(|(name, _)| has(name)).map(|(_, libc)| libc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_identified_by_the_loader() {
        let check = |head: &[u8], expect| assert_eq!(libc(head), expect);
        check(b"\x7fELF\0\0/lib64/ld-linux-x86-64.so.2\0", Some("glibc"));
        check(b"\x7fELF\0\0/lib/ld-linux-aarch64.so.1\0", Some("glibc"));
        check(b"\x7fELF\0\0/lib/ld-musl-x86_64.so.1\0", Some("musl"));
        check(b"\x7fELF\0\0/lib/ld64.so.2\0", Some("glibc"));
        check(b"\x7fELF\0\0static", None);
        check(b"", None);
    }
}
