use proptest::prelude::*;

use super::locate::FIRST_NAMESPACE;
use super::*;
use crate::fake::FakeHost;

/// The mounts of a host that has only v2.
const V2_MOUNTS: &str = "\
    22 1 0:21 / /proc rw shared:13 - proc proc rw\n\
    30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
/// The mounts of a host with v1, as in Debian 10.
const V1_MOUNTS: &str = "\
    25 18 0:22 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755\n\
    26 25 0:23 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n\
    31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n\
    32 25 0:29 / /sys/fs/cgroup/memory rw shared:16 - cgroup cgroup rw,memory\n";

fn host(mounts: &str, cgroup: &str) -> FakeHost {
    let host = FakeHost::new();
    host.file("/proc/self/mountinfo", mounts);
    host.file("/proc/7/cgroup", cgroup);
    host.link("/proc/self/ns/cgroup", FIRST_NAMESPACE);
    host
}

/// Creates a v2 group.
fn v2(host: &FakeHost, folder: &str, files: &[(&str, &str)]) {
    host.file(&format!("{folder}/cgroup.controllers"), "cpu memory\n");
    for (file, content) in files {
        host.file(&format!("{folder}/{file}"), content);
    }
}

/// Creates a v1 group.
fn v1(host: &FakeHost, folder: &str, files: &[(&str, &str)]) {
    host.file(&format!("{folder}/cgroup.clone_children"), "0\n");
    for (file, content) in files {
        host.file(&format!("{folder}/{file}"), content);
    }
}

fn groups(host: &FakeHost) -> Groups {
    Groups::of(&host.tree(), 7).unwrap()
}

fn cpu(host: &FakeHost) -> CpuLimits {
    groups(host).cpu_limits(&host.tree()).unwrap().unwrap()
}

fn memory(host: &FakeHost) -> MemoryLimits {
    groups(host).memory_limits(&host.tree()).unwrap().unwrap()
}

fn paths(branch: &Option<Branch>) -> Vec<&str> {
    branch.iter().flat_map(|branch| &branch.groups).map(|group| group.path.as_str()).collect()
}

const V2_STAT: &str = "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\nnr_periods 100\nnr_throttled 40\n\
                       throttled_usec 2500000\nnr_bursts 0\nburst_usec 0\n";

#[test]
fn v2_provides_quota_throttling_weight_and_usage() {
    let host = host(V2_MOUNTS, "0::/system.slice/rabbitmq.service\n");
    v2(&host, "/sys/fs/cgroup", &[("cpu.stat", "usage_usec 9\n")]);
    v2(&host, "/sys/fs/cgroup/system.slice", &[("cpu.max", "max 100000\n"), ("cpu.stat", "usage_usec 8\n")]);
    v2(
        &host,
        "/sys/fs/cgroup/system.slice/rabbitmq.service",
        &[("cpu.max", "150000 100000\n"), ("cpu.stat", V2_STAT), ("cpu.weight", "100\n")],
    );
    let expect = CpuGroup {
        path: "/system.slice/rabbitmq.service".to_owned(),
        quota_permille: Some(1_500),
        periods: Some(100),
        throttled_periods: Some(40),
        throttled_ns: Some(2_500_000_000),
        weight: Some(100),
        usage_ns: Some(5_000_000_000),
    };
    assert_eq!(cpu(&host), CpuLimits { own: expect.clone(), tightest: expect });
    let branch = groups(&host).cpu.unwrap();
    assert_eq!((branch.version, branch.reaches_root), (Version::V2, true));
    assert_eq!(paths(&Some(branch)), ["/system.slice/rabbitmq.service", "/system.slice", "/"]);
}

#[test]
fn tighter_quota_of_a_parent_applies_and_the_own_quota_is_kept() {
    let host = host(V2_MOUNTS, "0::/pod/app\n");
    v2(&host, "/sys/fs/cgroup", &[]);
    v2(&host, "/sys/fs/cgroup/pod", &[("cpu.max", "50000 100000\n"), ("cpu.stat", V2_STAT)]);
    v2(&host, "/sys/fs/cgroup/pod/app", &[("cpu.max", "400000 100000\n"), ("cpu.stat", "nr_periods 7\n")]);
    let limits = cpu(&host);
    assert_eq!(
        (limits.own.path.as_str(), limits.own.quota_permille, limits.own.periods),
        ("/pod/app", Some(4_000), Some(7))
    );
    assert_eq!((limits.tightest.path.as_str(), limits.tightest.quota_permille), ("/pod", Some(500)));
    assert_eq!(limits.tightest.throttled_periods, Some(40));
}

#[test]
fn a_missing_quota_is_none_rather_than_zero() {
    let host = host(V2_MOUNTS, "0::/app\n");
    v2(&host, "/sys/fs/cgroup", &[]);
    v2(
        &host,
        "/sys/fs/cgroup/app",
        &[("cpu.max", "max 100000\n"), ("cpu.stat", "usage_usec 1\n"), ("cpu.weight", "39\n")],
    );
    let limits = cpu(&host);
    assert_eq!(
        (limits.tightest.quota_permille, limits.tightest.periods, limits.tightest.weight),
        (None, None, Some(39))
    );
    assert_eq!(limits.tightest.path, "/app");
}

#[test]
fn the_cpu_controller_may_be_off_in_the_processs_own_group() {
    let host = host(V2_MOUNTS, "0::/user.slice/session.scope\n");
    v2(&host, "/sys/fs/cgroup", &[]);
    v2(&host, "/sys/fs/cgroup/user.slice", &[("cpu.max", "200000 100000\n"), ("cpu.stat", V2_STAT)]);
    v2(&host, "/sys/fs/cgroup/user.slice/session.scope", &[("cpu.stat", "usage_usec 4\n")]);
    let limits = cpu(&host);
    assert_eq!((limits.own.quota_permille, limits.tightest.quota_permille), (None, Some(2_000)));
}

#[test]
fn v1_provides_quota_throttling_weight_and_usage() {
    let host = host(
        V1_MOUNTS,
        "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n0::/system.slice\n",
    );
    v1(
        &host,
        "/sys/fs/cgroup/cpu,cpuacct",
        &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")],
    );
    v1(
        &host,
        "/sys/fs/cgroup/cpu,cpuacct/docker",
        &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")],
    );
    v1(
        &host,
        "/sys/fs/cgroup/cpu,cpuacct/docker/ab",
        &[
            ("cpu.cfs_quota_us", "25000\n"),
            ("cpu.cfs_period_us", "50000\n"),
            ("cpu.shares", "512\n"),
            ("cpu.stat", "nr_periods 11\nnr_throttled 5\nthrottled_time 123456789\n"),
            ("cpuacct.usage", "987654321\n"),
        ],
    );
    let expect = CpuGroup {
        path: "/docker/ab".to_owned(),
        quota_permille: Some(500),
        periods: Some(11),
        throttled_periods: Some(5),
        throttled_ns: Some(123_456_789),
        weight: Some(512),
        usage_ns: Some(987_654_321),
    };
    assert_eq!(cpu(&host).tightest, expect);
    assert_eq!(groups(&host).cpu.unwrap().version, Version::V1);
}

#[test]
fn cpu_time_of_another_group_is_not_used() {
    let mounts =
        "1 1 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu\n2 1 0:2 / /cg/acct rw - cgroup cgroup rw,cpuacct\n";
    let host = host(mounts, "2:cpuacct:/\n1:cpu:/app\n");
    v1(&host, "/cg/cpu", &[]);
    v1(&host, "/cg/cpu/app", &[("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n")]);
    v1(&host, "/cg/acct", &[("cpuacct.usage", "987654321\n")]);
    assert_eq!(cpu(&host).tightest.usage_ns, None);
    assert_eq!(cpu(&host).tightest.quota_permille, Some(500));
}

#[test]
fn tightest_memory_limit_applies() {
    let host = host(V2_MOUNTS, "0::/pod/app\n");
    v2(&host, "/sys/fs/cgroup", &[]);
    v2(&host, "/sys/fs/cgroup/pod", &[("memory.max", "1000000\n"), ("memory.current", "900000\n")]);
    v2(&host, "/sys/fs/cgroup/pod/app", &[("memory.max", "max\n"), ("memory.current", "800000\n")]);
    let expect =
        MemoryLimits { path: "/pod".to_owned(), limit_bytes: Some(1_000_000), used_bytes: Some(900_000) };
    assert_eq!(memory(&host), expect);
}

#[test]
fn the_largest_value_in_v1_is_not_a_memory_limit() {
    let host = host(V1_MOUNTS, "4:memory:/app\n3:cpu,cpuacct:/app\n");
    v1(&host, "/sys/fs/cgroup/memory", &[("memory.limit_in_bytes", "9223372036854771712\n")]);
    let folder = "/sys/fs/cgroup/memory/app";
    v1(
        &host,
        folder,
        &[("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "4096\n")],
    );
    let expect = MemoryLimits { path: "/app".to_owned(), limit_bytes: None, used_bytes: Some(4_096) };
    assert_eq!(memory(&host), expect);
}

#[test]
fn parents_are_not_visible_in_a_cgroup_namespace() {
    // Inside a container, the group is `/` of the container's namespace, and the mount does not contain its parents.
    let host = host(V2_MOUNTS, "0::/\n");
    host.link("/proc/self/ns/cgroup", "cgroup:[4026532477]");
    v2(&host, "/sys/fs/cgroup", &[("cpu.max", "50000 100000\n"), ("cpu.stat", V2_STAT)]);
    assert_eq!(cpu(&host).tightest.quota_permille, Some(500));
    assert!(!groups(&host).cpu.unwrap().reaches_root);
}

#[test]
fn without_a_namespace_the_mount_root_is_the_containers_group() {
    let mounts = "9 8 0:9 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
    let host = host(mounts, "3:cpu:/docker/ab/sub\n");
    v1(&host, "/sys/fs/cgroup/cpu", &[("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n")]);
    v1(&host, "/sys/fs/cgroup/cpu/sub", &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]);
    let branch = groups(&host).cpu;
    assert_eq!(paths(&branch), ["/docker/ab/sub", "/docker/ab"]);
    assert!(!branch.unwrap().reaches_root);
    assert_eq!(cpu(&host).tightest.quota_permille, Some(500));
}

#[test]
fn group_of_another_container_is_found_through_its_mounts() {
    // beamtune is in a container, too, and its own mounts contain only its own group.
    let host = host("5 4 0:9 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/../target\n");
    v2(&host, "/sys/fs/cgroup", &[("cpu.max", "max 100000\n")]);
    host.file("/proc/7/mountinfo", "6 4 0:9 /../target /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    v2(&host, "/proc/7/root/sys/fs/cgroup", &[("cpu.max", "70000 100000\n"), ("cpu.stat", V2_STAT)]);
    let limits = cpu(&host);
    assert_eq!((limits.own.path.as_str(), limits.own.quota_permille), ("/../target", Some(700)));
    assert!(!groups(&host).cpu.unwrap().reaches_root);
}

#[test]
fn hidden_mounts_and_mounts_of_other_groups_are_skipped() {
    let mounts = "1 1 0:1 /other /cg/a rw - cgroup2 x rw\n2 1 0:1 / /cg/hidden rw - cgroup2 x rw\n3 1 0:1 / /cg/b rw - cgroup2 x rw\n";
    let host = host(mounts, "0::/app\n");
    v2(&host, "/cg/b/app", &[("cpu.max", "70000 100000\n")]);
    v2(&host, "/cg/b", &[]);
    assert_eq!(cpu(&host).own.quota_permille, Some(700));
}

#[test]
fn a_group_without_visible_files_is_reported() {
    let unmounted = host("", "3:cpu:/docker/ab\n4:memory:/docker/cd\n");
    assert_eq!((groups(&unmounted).cpu, groups(&unmounted).unseen), (None, Some("/docker/ab".to_owned())));
    let unmounted = host("", "0::/app\n");
    assert_eq!(groups(&unmounted).unseen.as_deref(), Some("/app"));
}

#[test]
fn without_control_groups_there_are_no_limits() {
    let host = host("", "");
    assert_eq!(groups(&host), Groups::default());
    assert_eq!(groups(&host).cpu_limits(&host.tree()).unwrap(), None);
    assert_eq!(groups(&host).memory_limits(&host.tree()).unwrap(), None);
}

#[test]
fn pressure_of_the_root_group_is_not_read() {
    let inner = host(V2_MOUNTS, "0::/app\n");
    v2(&inner, "/sys/fs/cgroup", &[("cpu.pressure", "root\n")]);
    v2(&inner, "/sys/fs/cgroup/app", &[("cpu.pressure", "own\n")]);
    assert_eq!(groups(&inner).pressure(&inner.tree(), "cpu.pressure").unwrap(), Some(b"own\n".to_vec()));
    let root = host(V2_MOUNTS, "0::/\n");
    v2(&root, "/sys/fs/cgroup", &[("cpu.pressure", "root\n")]);
    assert_eq!(groups(&root).pressure(&root.tree(), "cpu.pressure").unwrap(), None);
}

#[test]
fn invalid_numbers_are_ignored() {
    let host = host(V2_MOUNTS, "0::/app\n");
    v2(&host, "/sys/fs/cgroup", &[("cpu.max", "\n")]);
    v2(
        &host,
        "/sys/fs/cgroup/app",
        &[("cpu.max", "50000 0\n"), ("cpu.stat", "nr_periods x\nnr_throttled\n")],
    );
    let own = cpu(&host).own;
    assert_eq!((own.quota_permille, own.periods, own.throttled_periods), (None, None, None));
    host.file("/sys/fs/cgroup/app/cpu.max", "9223372036854775807 1\n");
    assert_eq!(cpu(&host).own.quota_permille, None);
}

#[test]
fn invalid_membership_lines_are_ignored() {
    let read = memberships(b"0::/a:b\n12:cpu,cpuacct:/x\nx:cpu:/y\n3:cpu\n4:memory:relative\n\n");
    let expect = [
        Membership { controllers: vec![], path: "/a:b".to_owned() },
        Membership { controllers: vec!["cpu".to_owned(), "cpuacct".to_owned()], path: "/x".to_owned() },
    ];
    assert_eq!(read, expect);
}

#[test]
fn mounts_are_parsed_with_and_without_optional_fields() {
    let check = |line: &str, expect: Option<(&str, &str)>| {
        let read = mounts(line.as_bytes());
        let read = read.first().map(|mount| (mount.root.as_str(), mount.point.as_str()));
        assert_eq!(read, expect, "{line}");
    };
    check("32 31 0:29 / /cg rw,relatime - cgroup cgroup rw,cpu", Some(("/", "/cg")));
    check("32 31 0:29 /a-b /c\\040g rw shared:1 master:2 - cgroup2 none rw", Some(("/a-b", "/c g")));
    check("32 31 0:29 / /cg rw - ext4 /dev/sda rw", None);
    check("32 31 0:29 / /cg rw - cgroup", None);
    check("32 31 0:29 / relative rw - cgroup cgroup rw", None);
    check("- - - - - - -", None);
    check("", None);
}

proptest! {
    // Fewer cases than usual, because each creates a dozen files.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = memberships(&content);
        let _ = mounts(&content);
        let host = host(V2_MOUNTS, "0::/app\n");
        v2(&host, "/sys/fs/cgroup", &[]);
        v2(&host, "/sys/fs/cgroup/app", &[]);
        for file in ["cpu.max", "cpu.stat", "memory.max"] {
            host.file(&format!("/sys/fs/cgroup/app/{file}"), &content);
        }
        cpu(&host);
        memory(&host);
        host.file("/proc/7/cgroup", &content);
        let _ = groups(&host);
    }
}
