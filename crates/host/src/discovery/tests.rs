use proptest::prelude::*;

use super::*;
use crate::distribution::NameSource;
use crate::fake::FakeHost;

const RABBIT: &[&str] = &[
    "/usr/lib/erlang/erts-13.1.5/bin/beam.smp",
    "-W",
    "w",
    "--",
    "-root",
    "/usr/lib/erlang",
    "-bindir",
    "/usr/lib/erlang/erts-13.1.5/bin",
    "-progname",
    "erl",
    "--",
    "-home",
    "/var/lib/rabbitmq",
    "--",
    "-pa",
    "",
    "-noshell",
    "-noinput",
    "-s",
    "rabbit",
    "boot",
    "-boot",
    "start_sasl",
];

/// The isolation of a process in our namespaces.
const SHARED: Isolation =
    Isolation { pid: Some(false), net: Some(false), mount: Some(false), user: Some(false) };
/// The namespaces of a fake process.
const NAMESPACES: [&str; 5] = ["pid", "net", "mnt", "uts", "user"];

fn list(words: &[&str]) -> Vec<u8> {
    words.iter().flat_map(|word| word.bytes().chain([0])).collect()
}

/// A host that has been up for 1,000 s, with its first process.
fn host() -> FakeHost {
    let host = FakeHost::new();
    host.file("/proc/uptime", "1000.50 1990.00\n").file("/proc/sys/kernel/hostname", "web-1\n");
    host.file(
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nrabbitmq:x:112:120::/var/lib/rabbitmq:/sbin/nologin\n",
    );
    process(&host, 1, "init", &["/sbin/init"], 0);
    for kind in NAMESPACES {
        host.link(&format!("/proc/self/ns/{kind}"), &format!("{kind}:[1]"));
    }
    host
}

/// Creates the world-readable files of a process.
fn process(host: &FakeHost, pid: u32, comm: &str, arguments: &[&str], uid: u32) {
    host.file(&format!("/proc/{pid}/stat"), FakeHost::stat(pid, comm, 300, 200, 50_000));
    host.file(&format!("/proc/{pid}/cmdline"), list(arguments));
    host.file(
        &format!("/proc/{pid}/status"),
        format!(
            "Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}\nVmRSS:\t100 kB\nThreads:\t21\n"
        ),
    );
}

/// Creates the files of a process that only its user and root may read.
fn readable(host: &FakeHost, pid: u32, executable: &str, environment: &[&str]) {
    host.link(&format!("/proc/{pid}/exe"), executable).link(&format!("/proc/{pid}/cwd"), "/srv");
    host.link(&format!("/proc/{pid}/root"), "/").file(&format!("/proc/{pid}/environ"), list(environment));
    for kind in NAMESPACES {
        host.link(&format!("/proc/{pid}/ns/{kind}"), &format!("{kind}:[1]"));
    }
}

#[test]
fn a_broker_is_found_with_all_details() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 112);
    readable(
        &host,
        700,
        RABBIT[0],
        &[
            "HOME=/var/lib/rabbitmq",
            "RABBITMQ_NODENAME=hare",
            "ERL_LIBS=/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/plugins",
        ],
    );
    host.file("/usr/lib/erlang/releases/25/OTP_VERSION", "25.2.3\n");
    host.link("/proc/700/fd/9", "socket:[77]");
    host.file("/proc/700/net/tcp", "sl\n0: 00000000:D978 00000000:0000 0A 0:0 0:0 0 112 0 77 1 0\n");
    let discovery = discover(&host.tree()).unwrap();
    assert!(!discovery.may_be_incomplete);
    let [vm] = discovery.vms.as_slice() else { panic!("{discovery:?}") };
    assert_eq!(vm.identity, Identity { pid: 700, start_ticks: 50_000 });
    assert_eq!(
        (vm.uid, vm.user.as_deref(), vm.user_home.as_deref()),
        (Some(112), Some("rabbitmq"), Some("/var/lib/rabbitmq"))
    );
    // The VM was started 500 s after the host, and has used 5 s of CPU time.
    assert_eq!(
        (vm.uptime_ns, vm.cpu_ns, vm.rss_bytes),
        (Some(500_500_000_000), 5_000_000_000, Some(102_400))
    );
    assert!((vm.cores().unwrap() - 0.00999).abs() < 1e-5);
    assert_eq!(vm.product.to_string(), "RabbitMQ 3.10.8");
    assert_eq!(vm.installation.otp_version.as_deref(), Some("25.2.3"));
    let name = vm.distribution.name.as_ref().unwrap();
    assert_eq!(
        (name.to_string(), name.source),
        ("hare@web-1".to_owned(), NameSource::Environment("RABBITMQ_NODENAME"))
    );
    assert_eq!(vm.distribution.possible_ports(), [55_672]);
    assert_eq!(vm.access, Access::Readable);
    assert_eq!(vm.isolation, SHARED);
    assert_eq!(
        (vm.root.as_deref(), vm.pid_inside, vm.working_folder.as_deref()),
        (Some("/"), None, Some("/srv"))
    );
}

#[test]
fn a_vm_of_another_user_is_described_by_its_world_readable_files() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 112);
    // Tests may run as root, which may read everything, so the tree refuses access.
    host.file("/usr/lib/erlang/releases/25/OTP_VERSION", "25.2.3\n");
    let vm = inspect(&Refusing(host.tree()), 700).unwrap();
    let Access::Refused(reason) = &vm.access else { panic!("{vm:?}") };
    assert_eq!(reason, "not allowed to read /proc/700/environ: run beamtune as root or as user rabbitmq");
    assert_eq!((vm.executable, vm.distribution.listeners, vm.isolation.net), (None, None, None));
    assert_eq!(vm.product.to_string(), "RabbitMQ");
    assert_eq!(vm.installation.otp_version.as_deref(), Some("25.2.3"));
    assert_eq!(vm.distribution.name.unwrap().to_string(), "rabbit@web-1");
}

/// A tree that refuses access to the files that other users may not read.
struct Refusing<T>(T);

impl<T: FileTree> Refusing<T> {
    fn check(&self, path: &str) -> Result<(), HostError> {
        let private = ["/environ", "/exe", "/cwd", "/root", "/fd", "/ns/"];
        let hidden = path.starts_with("/proc/66/");
        if hidden || path.starts_with("/proc/7") && private.iter().any(|part| path.contains(part)) {
            let error = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
            return Err(HostError::from_io(path, error));
        }
        Ok(())
    }
}

impl<T: FileTree> FileTree for Refusing<T> {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        self.check(path)?;
        self.0.read_start(path, max_bytes, into)
    }

    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError> {
        self.check(dir)?;
        self.0.read_start_below(dir, path, max_bytes, into)
    }

    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError> {
        self.check(path)?;
        self.0.list(path, max)
    }

    fn count(&self, path: &str, max: usize) -> Result<u64, HostError> {
        self.check(path)?;
        self.0.count(path, max)
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        self.check(path)?;
        self.0.read_link(path)
    }
}

#[test]
fn other_programs_are_not_mistaken_for_vms() {
    let host = host();
    let check = |pid: u32, runs: &str| {
        let error = inspect(&host.tree(), pid).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("process {pid} ({runs:?}) is not an Erlang VM: list the VMs with `beamtune nodes`")
        );
    };
    process(&host, 10, "erl_child_setup", &["erl_child_setup", "20000"], 0);
    process(&host, 11, "epmd", &["/usr/bin/epmd", "-daemon"], 0);
    process(&host, 12, "heart", &["heart", "-pid", "700", "-root", "/", "-progname", "erl"], 0);
    process(&host, 13, "inet_gethost", &["inet_gethost", "4"], 0);
    process(&host, 14, "beam.smp", &["beam.smp", "--help"], 0);
    process(&host, 15, "beam.smp", &[], 0);
    process(&host, 16, "python3", RABBIT, 0);
    for (pid, runs) in [
        (10, "erl_child_setup"),
        (11, "epmd"),
        (12, "heart"),
        (13, "inet_gethost"),
        (14, "beam.smp"),
        (15, "beam.smp"),
        (16, "python3"),
        (1, "init"),
    ] {
        readable(&host, pid, &format!("/usr/bin/{runs}"), &[]);
        check(pid, runs);
    }
    assert_eq!(discover(&host.tree()).unwrap().vms, []);
}

#[test]
fn a_vm_with_another_short_name_is_recognized_by_its_executable() {
    let host = host();
    process(&host, 700, "my broker", RABBIT, 112);
    readable(&host, 700, "/usr/lib/erlang/erts-13.1.5/bin/beam.lcnt.smp (deleted)", &[]);
    let vm = inspect(&host.tree(), 700).unwrap();
    assert_eq!(vm.installation.emulator_type.as_deref(), Some("lcnt"));
}

#[test]
fn ended_and_ending_processes_are_omitted() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 112);
    let stat = FakeHost::stat(700, "beam.smp", 1, 1, 50_000).replace(") S", ") Z");
    host.file("/proc/700/stat", stat);
    assert_eq!(inspect(&host.tree(), 700).unwrap_err().to_string(), "process 700 has ended");
    assert_eq!(inspect(&host.tree(), 701).unwrap_err().to_string(), "process 701 has ended");
    // This process ends between two reads.
    process(&host, 702, "beam.smp", RABBIT, 112);
    readable(&host, 702, RABBIT[0], &[]);
    host.remove("/proc/702/cmdline");
    assert_eq!(discover(&host.tree()).unwrap().vms, []);
}

#[test]
fn a_container_is_recognized_and_its_own_files_are_read() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 999);
    readable(&host, 700, RABBIT[0], &["RABBITMQ_NODENAME=hare"]);
    host.file("/proc/700/status", "Uid:\t999\t999\t999\t999\nNSpid:\t700\t17\n");
    for kind in NAMESPACES {
        host.link(&format!("/proc/700/ns/{kind}"), &format!("{kind}:[2]"));
    }
    host.link("/proc/700/root", host.path("/box").to_str().unwrap());
    host.file("/box/usr/lib/erlang/releases/25/OTP_VERSION", "25.3\n");
    host.file("/usr/lib/erlang/releases/25/OTP_VERSION", "25.9 of the host\n");
    let vm = inspect(&host.tree(), 700).unwrap();
    assert_eq!(
        vm.isolation,
        Isolation { pid: Some(true), net: Some(true), mount: Some(true), user: Some(true) }
    );
    assert_eq!((vm.pid_inside, vm.root.as_deref()), (Some(17), Some("/proc/700/root")));
    assert_eq!((vm.network, vm.own_pid()), (Some(2), 17));
    assert_eq!((vm.uid, vm.user), (Some(999), None));
    assert_eq!(vm.installation.otp_version.as_deref(), Some("25.3"));
    // The container has its own host name.
    assert_eq!(vm.distribution.name.unwrap().to_string(), "hare@?");
    let name = || inspect(&host.tree(), 700).unwrap().distribution.name.unwrap().to_string();
    host.file("/box/etc/hostname", "f00d\n").file("/etc/hostname", "web-1\n");
    assert_eq!(name(), "hare@f00d");
    host.file("/proc/700/environ", list(&["RABBITMQ_NODENAME=hare", "HOSTNAME=beef"]));
    assert_eq!(name(), "hare@beef");
}

#[test]
fn the_id_of_a_container_is_found_in_its_control_groups() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 112);
    readable(&host, 700, RABBIT[0], &[]);
    assert_eq!(inspect(&host.tree(), 700).unwrap().container, None);
    let id = "0123456789abcdef".repeat(4);
    host.file("/proc/700/cgroup", format!("0::/system.slice/docker-{id}.scope\n"));
    assert_eq!(inspect(&host.tree(), 700).unwrap().container, Some(Container { kind: "docker", id }));
}

#[test]
fn a_working_folder_is_relative_to_the_process_root() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 112);
    readable(&host, 700, RABBIT[0], &[]);
    let check = |root: &str, folder: &str, expect: &str| {
        host.link("/proc/700/root", root).link("/proc/700/cwd", folder);
        assert_eq!(inspect(&host.tree(), 700).unwrap().working_folder.as_deref(), Some(expect), "{root}");
    };
    check("/", "/srv/app", "/srv/app");
    check("/", "/", "/");
    // After a chroot, both paths are relative to the old root.
    check("/box", "/box/srv/app", "/srv/app");
    check("/box", "/box", "/");
    // A folder that was opened before the chroot is outside the new root.
    check("/box", "/boxes", "/boxes");
}

/// Creates the VM of a container: node `hare`, process 1 in the container.
fn contained(host: &FakeHost, pid: u32, start_ticks: i64, container: char) {
    process(host, pid, "beam.smp", RABBIT, 112);
    readable(host, pid, RABBIT[0], &["RABBITMQ_NODENAME=hare", "HOSTNAME=box"]);
    host.link(&format!("/proc/{pid}/ns/uts"), "uts:[2]");
    host.file(&format!("/proc/{pid}/stat"), FakeHost::stat(pid, "beam.smp", 300, 200, start_ticks));
    host.file(&format!("/proc/{pid}/status"), format!("Uid:\t0\t0\t0\t0\nNSpid:\t{pid}\t1\n"));
    let id = container.to_string().repeat(64);
    host.file(&format!("/proc/{pid}/cgroup"), format!("0::/docker/{id}\n"));
}

#[test]
fn the_successor_after_a_restart_is_found() {
    let host = host();
    let tree = host.tree();
    // The host has been up for 1,000 s.
    contained(&host, 700, 20_000, 'a');
    contained(&host, 701, 30_000, 'b');
    let before = inspect(&tree, 700).unwrap();
    host.remove("/proc/700");
    const GONE_NS: Nanos = 100_000_000_000;
    let found = |own_pid| successor(&tree, &before, GONE_NS, own_pid);
    // The other VM was started before the first one ended.
    assert_eq!(found(None).unwrap_err().to_string(), "process 700 has ended");
    contained(&host, 702, 95_000, 'c');
    assert_eq!(found(None).unwrap().identity.pid, 702);
    assert_eq!(found(Some(1)).unwrap().identity.pid, 702);
    assert!(matches!(found(Some(702)), Err(HostError::Ended { pid: 700 })));
    contained(&host, 703, 96_000, 'd');
    let error = found(None).unwrap_err().to_string();
    assert_eq!(
        error,
        "process 700 has ended, and any of 702, 703 may be its successor: name one by its process id"
    );
    // The same container is preferred.
    contained(&host, 704, 97_000, 'a');
    assert_eq!(found(None).unwrap().identity.pid, 704);
    // A VM with another name is not a successor.
    host.remove("/proc/702");
    host.remove("/proc/704");
    host.file("/proc/703/environ", list(&["RABBITMQ_NODENAME=rabbit", "HOSTNAME=box"]));
    assert!(found(None).is_err());
}

#[test]
fn successor_of_a_vm_with_a_twin_must_be_in_its_container() {
    let host = host();
    let tree = host.tree();
    contained(&host, 700, 20_000, 'a');
    let alone = discover(&tree).unwrap().vms;
    contained(&host, 701, 30_000, 'b');
    let both = discover(&tree).unwrap().vms;
    let before = inspect(&tree, 700).unwrap();
    assert!(!has_twin(&before, &alone) && has_twin(&before, &both));
    // A VM with another name is not a twin.
    host.file("/proc/701/environ", list(&["RABBITMQ_NODENAME=rabbit", "HOSTNAME=box"]));
    assert!(!has_twin(&before, &discover(&tree).unwrap().vms));

    host.remove("/proc/700");
    host.remove("/proc/701");
    let found = || successor_in_same_container(&tree, &before, 100_000_000_000);
    contained(&host, 702, 95_000, 'b');
    assert_eq!(found().unwrap_err().to_string(), "process 700 has ended");
    contained(&host, 703, 96_000, 'a');
    assert_eq!(found().unwrap().identity.pid, 703);
    contained(&host, 704, 97_000, 'a');
    assert!(matches!(found(), Err(HostError::SeveralSuccessors { pid: 700, .. })));
    // If the containers are unknown, so is the successor.
    for pid in [703, 704] {
        host.remove(&format!("/proc/{pid}/cgroup"));
    }
    let unknown = Vm { container: None, ..before.clone() };
    let found = successor_in_same_container(&tree, &unknown, 100_000_000_000);
    assert!(matches!(found, Err(HostError::Ended { pid: 700 })));
}

#[test]
fn hidden_processes_are_reported() {
    let host = host();
    process(&host, 700, "beam.smp", RABBIT, 112);
    assert!(!discover(&Refusing(host.tree())).unwrap().may_be_incomplete);
    // hidepid=1: only the process ids are visible.
    process(&host, 66, "beam.smp", RABBIT, 112);
    assert!(discover(&Refusing(host.tree())).unwrap().may_be_incomplete);
    // hidepid=2: not even the process ids are visible.
    host.remove("/proc/66");
    host.remove("/proc/1");
    assert!(discover(&host.tree()).unwrap().may_be_incomplete);
}

#[test]
fn without_proc_discovery_fails() {
    let host = FakeHost::new();
    assert_eq!(discover(&host.tree()).unwrap_err().to_string(), "/proc does not exist");
}

proptest! {
    // Fewer cases than usual, because each creates a dozen files.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_files_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200), file in 0..6_usize) {
        let host = host();
        process(&host, 700, "beam.smp", RABBIT, 112);
        readable(&host, 700, RABBIT[0], &["RABBITMQ_NODENAME=hare"]);
        let name = ["/proc/700/stat", "/proc/700/status", "/proc/700/cmdline", "/proc/700/environ", "/proc/uptime", "/etc/passwd"];
        host.file(name[file], &content);
        if let Ok(vm) = inspect(&host.tree(), 700) {
            let shown = format!("{} {:?} {:?}", vm.product, vm.distribution.name, vm.cores());
            prop_assert!(!shown.contains('\x1b'));
        }
    }
}
