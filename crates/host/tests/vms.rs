//! Operating system data of real VMs of each release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use beamtune_host::HostError;
use beamtune_host::discovery::{self, Access, Isolation, Vm};
use beamtune_host::sockets::Socket;
use beamtune_host::tree::{FileTree, LocalTree, ReadAt};
use beamtune_model::memory::content;
use beamtune_model::metrics;
use beamtune_model::{Metric, Sample, TroubleKind, facts};
use common::{
    Recorder, Running, WITHOUT_LIMIT, eventually, eventually_or, exists, installed, is_root, on_each_release,
    unique_name,
};

const COOKIE: &str = "beamtune_test_cookie";
/// For each line on standard input, prints the threads of msacc with the microseconds that they spent outside the state `sleep`.
const PRINT_MSACC: &str = "
    erlang:system_flag(microstate_accounting, true),
    Us = fun(N) -> erlang:convert_time_unit(N, perf_counter, microsecond) end,
    Print = fun() ->
        [io:format(\"msacc ~p/~p ~p~n\", [T, I, Us(lists:sum(maps:values(maps:remove(sleep, C))))])
         || #{type := T, id := I, counters := C} <- erlang:statistics(microstate_accounting)],
        io:format(\"end~n\") end";

/// The isolation of a process in our namespaces.
const SHARED: Isolation =
    Isolation { pid: Some(false), net: Some(false), mount: Some(false), user: Some(false) };

fn tree() -> LocalTree {
    LocalTree::default()
}

fn look_at(pid: u32) -> Vm {
    discovery::look_at(&tree(), pid).unwrap()
}

/// Parses the printed msacc values: microseconds outside the state `sleep`, by entity.
fn msacc(vm: &Running) -> BTreeMap<String, i64> {
    let mut threads = BTreeMap::new();
    loop {
        let line = vm.line("");
        if line == "end" {
            return threads;
        }
        if let Some((entity, awake)) = line.strip_prefix("msacc ").and_then(|rest| rest.split_once(' ')) {
            threads.insert(entity.to_owned(), awake.parse().unwrap());
        }
    }
}

/// Returns the threads that have a metric in a sample: first those that the VM did not name, then those that it named.
fn threads(recorder: &Recorder, sample: &Sample, metric: &Metric) -> (BTreeSet<String>, BTreeSet<String>) {
    let threads = recorder.values(sample, metric).into_iter().map(|(entity, _)| entity);
    threads.partition(|entity| entity.starts_with("other/"))
}

#[test]
fn thread_entities_agree_with_msacc() {
    on_each_release(|otp| {
        let mut arguments =
            vec!["+A", "3", "+S", "3:2", "+SDcpu", "3:2", "+SDio", "12", "+IOt", "3", "+IOp", "2"];
        if otp.release >= 25 {
            // This adds an aux thread for each dirty allocator instance.
            arguments.extend(["+Mdai", "max"]);
        }
        let print = format!("{PRINT_MSACC}, (fun F() -> io:get_line(\"\"), Print(), F() end)()");
        let mut vm = otp.start_with_input(&arguments, &print);
        let mut recorder = Recorder::of(vm.pid());
        // A thread sets its name, and appears in msacc, only when it first runs.
        let (expect, sample) = eventually_or("the same threads by msacc and by the kernel", || {
            vm.tell("");
            let expect: BTreeSet<String> = msacc(&vm).into_keys().collect();
            let sample = recorder.sample(true);
            let (others, ours) = threads(&recorder, &sample, &metrics::THREAD_CPU);
            // The other three are the threads for signals and trace messages, and the main thread.
            match ours == expect && others.len() == 3 {
                true => Ok((expect, sample)),
                false => Err(format!("{expect:?} by msacc, {ours:?} and {others:?} by the kernel")),
            }
        });
        assert!(expect.contains("scheduler/3") && expect.contains("dirty_io_scheduler/12"), "{expect:?}");
        for metric in [&metrics::THREAD_USER, &metrics::VOLUNTARY_SWITCHES] {
            assert_eq!(threads(&recorder, &sample, metric).1, expect, "OTP {}", otp.release);
        }
    });
}

#[test]
fn thread_numbers_agree_with_msacc() {
    on_each_release(|otp| {
        // One thread of each kind works. A process is bound to scheduler 2, a large heap is garbage collected, and a file is read in
        // large parts. All other threads sleep without busy wait. The work starts only with the first line of input, because all threads
        // are busy while the VM starts.
        let work = format!(
            "{PRINT_MSACC},
            io:get_line(\"\"), Print(),
            spawn_opt(fun F() -> lists:sum(lists:seq(1, 100)), F() end, [{{scheduler, 2}}]),
            spawn(fun F() -> _ = lists:seq(1, 300000), garbage_collect(), F() end),
            spawn(fun() -> {{ok, D}} = file:open(\"/dev/zero\", [read, raw, binary]),
                           (fun F() -> {{ok, _}} = file:read(D, 20000000), F() end)() end),
            (fun F() -> io:get_line(\"\"), Print(), F() end)()"
        );
        let none = ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"];
        let mut vm =
            otp.start_with_input(&[&["+S", "4:4", "+SDcpu", "4:4", "+SDio", "4"], &none[..]].concat(), &work);
        let mut recorder = Recorder::of(vm.pid());
        // Microseconds by entity, from msacc and from the kernel, and start and end of the read.
        let mut read = || -> ([BTreeMap<String, i64>; 2], [Instant; 2]) {
            let begin = Instant::now();
            vm.tell("");
            let by_msacc = msacc(&vm);
            let sample = recorder.sample(false);
            let by_kernel = recorder.values(&sample, &metrics::THREAD_CPU).into_iter();
            let by_kernel = by_kernel.map(|(entity, ns)| (entity, ns / 1_000)).collect();
            ([by_msacc, by_kernel], [begin, Instant::now()])
        };
        let first = read();
        // Dirty work moves between threads, so the busiest thread is determined for short periods. For msacc, a runnable thread without a
        // CPU does not sleep, so only the order is compared. One thread must be far above the others of its kind. Several periods must
        // agree, since one could be a coincidence. A period must be much longer than the time between the reads of both values.
        let mut kinds =
            ["scheduler", "dirty_cpu_scheduler", "dirty_io_scheduler"].map(|kind| (kind, first.clone(), 0));
        eventually("one thread of each kind above the others by both", || {
            let (times, [begin, end]) = read();
            for (kind, before, agreed) in &mut kinds {
                let (times_before, [begin_before, end_before]) = &*before;
                let reading = (end - begin) + (*end_before - *begin_before);
                if begin - *end_before < 5 * reading {
                    continue;
                }
                let [by_msacc, by_kernel] = [0, 1].map(|by| {
                    let of_kind =
                        times[by].iter().filter(|(entity, _)| entity.split('/').next() == Some(kind));
                    let mut times: Vec<_> =
                        of_kind.map(|(entity, time)| (time - times_before[by][entity], entity)).collect();
                    times.sort();
                    let [.., (second, _), (highest, entity)] = times[..] else { panic!("{times:?}") };
                    (highest, (highest > 2 * second).then_some(entity))
                });
                if by_kernel.0 > 50_000 {
                    *before = (times.clone(), [begin, end]);
                    if let (Some(by_msacc), Some(by_kernel)) = (by_msacc.1, by_kernel.1) {
                        let is_right =
                            by_msacc == by_kernel && (*kind != "scheduler" || by_kernel == "scheduler/2");
                        *agreed += if is_right { 1 } else { -1 };
                        assert!(
                            *agreed > -3,
                            "OTP {}: msacc named {by_msacc}, the kernel {by_kernel}",
                            otp.release
                        );
                    }
                }
            }
            kinds.iter().all(|(_, _, agreed)| *agreed >= 3).then_some(())
        });
    });
}

#[test]
fn thread_cpu_times_add_up_to_that_of_the_process() {
    on_each_release(|otp| {
        let vm = otp.start(&["+S", "2:2"], "spawn(fun F() -> lists:seq(1, 1000), F() end)");
        let mut recorder = Recorder::of(vm.pid());
        // Only samples that were read quickly are used: CPU time between the two reads is included in only one of the values.
        let at_once = |recorder: &mut Recorder| {
            let (sample, span) = recorder.try_sample(false).unwrap();
            (span.end - span.begin < 10_000_000).then_some(sample)
        };
        let first = eventually("a sample that is read quickly", || at_once(&mut recorder));
        let process = |recorder: &Recorder, sample: &Sample| {
            let part = |metric| recorder.value(sample, metric, "").unwrap();
            part(&metrics::PROCESS_USER) + part(&metrics::PROCESS_SYSTEM)
        };
        let threads = |recorder: &Recorder, sample: &Sample| {
            recorder.values(sample, &metrics::THREAD_CPU).iter().map(|(_, cpu)| cpu).sum::<i64>()
        };
        let last = eventually("a second of CPU time", || {
            let sample = at_once(&mut recorder)?;
            (process(&recorder, &sample) - process(&recorder, &first) > 1_000_000_000).then_some(sample)
        });
        let by_process = process(&recorder, &last) - process(&recorder, &first);
        let by_threads = threads(&recorder, &last) - threads(&recorder, &first);
        println!("OTP {}: process {by_process} ns, threads {by_threads} ns", otp.release);
        // The CPU time of the process is in clock ticks, and each of the two values can be off by a few ticks.
        let off = (by_process - by_threads).abs();
        assert!(off < 50_000_000, "process {by_process} ns, threads {by_threads} ns");
    });
}

#[test]
fn every_vm_is_found_with_its_release_and_name() {
    on_each_release(|otp| {
        let name = unique_name();
        let node = otp.start(&["-sname", &name, "-setcookie", COOKIE], "ok");
        let plain = otp.start(&[], "ok");
        let found = discovery::discover(&tree()).unwrap().vms;
        let vm = |pid| found.iter().find(|vm| vm.identity.pid == pid).unwrap();
        let node_vm = vm(node.pid());
        let installation = &node_vm.installation;
        assert_eq!(installation.otp_release, Some(otp.release));
        assert!(
            installation.otp_version.as_ref().unwrap().starts_with(&otp.release.to_string()),
            "{installation:?}"
        );
        assert_eq!(installation.emulator_type.as_deref(), Some("opt"));
        assert_eq!(node_vm.distribution.name.as_ref().unwrap().alive, name);
        assert_eq!(node_vm.product.to_string(), "erl");
        assert_eq!(node_vm.user.as_deref(), vm(plain.pid()).user.as_deref());
        assert!(node_vm.rss_bytes.unwrap() > 10_000_000 && node_vm.threads > 10);
        assert!(node_vm.uptime_ns.unwrap() < 3_600_000_000_000);
        assert_eq!(node_vm.access, Access::Readable);
        assert_eq!(node_vm.isolation, SHARED);
        assert_eq!(node_vm.root.as_deref() == Some("/"), otp.chroot.is_none(), "{:?}", node_vm.root);
        assert!(!format!("{node_vm:?}").contains(COOKIE));
        assert!(node_vm.command_line.secret_arguments().iter().any(|argument| argument == COOKIE));
        assert_eq!(vm(plain.pid()).distribution.name, None);
        // Children of VMs, such as erl_child_setup, are not VMs.
        let child = found.iter().find(|vm| vm.parent == node.pid() || vm.parent == plain.pid());
        assert_eq!(child, None);
    });
}

/// Asks EPMD for the port of a node. See "EPMD Protocol" in the ERTS User's Guide, NAMES_REQ.
fn port_by_epmd(name: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", 4369)).ok()?;
    stream.write_all(&[0, 1, 110]).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer[4..]).into_owned();
    text.lines().find_map(|line| line.strip_prefix(&format!("name {name} at port "))?.parse().ok())
}

#[test]
fn the_distribution_port_is_found_without_epmd() {
    on_each_release(|otp| {
        let name = unique_name();
        let node = otp.start(&["-sname", &name, "-setcookie", COOKIE], "ok");
        let port = eventually("EPMD's answer", || port_by_epmd(&name));
        assert_eq!(look_at(node.pid()).distribution.candidates(), [port]);
        // If the VM listens on other ports, too, the distribution port is among the candidates.
        let other = unique_name();
        // The socket remains open as long as the process that opened it lives.
        let listen = "{ok, _} = gen_tcp:listen(0, []), io:format(\"listens~n\"), timer:sleep(infinity)";
        let busy = otp.start(&["-sname", &other, "-setcookie", COOKIE], listen);
        busy.line("listens");
        let port = eventually("EPMD's answer", || port_by_epmd(&other));
        let candidates = look_at(busy.pid()).distribution.candidates();
        assert!(candidates.len() == 2 && candidates.contains(&port), "{candidates:?} {port}");
        // A VM without distribution does not listen.
        assert!(look_at(otp.start(&[], "ok").pid()).distribution.candidates().is_empty());
    });
}

#[test]
fn a_recording_of_a_vm_starts_with_its_facts() {
    on_each_release(|otp| {
        let vm = otp.start(&["-sname", &unique_name(), "-setcookie", COOKIE, "+sbwt", "none"], "ok");
        let mut recorder = Recorder::of(vm.pid());
        let sample = recorder.sample(true);
        let fact =
            |key: &str| sample.facts.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
        assert_eq!(fact(facts::OTP_RELEASE), Some(otp.release.to_string().as_str()));
        assert_eq!(fact(facts::OS_PID), Some(vm.pid().to_string().as_str()));
        assert_eq!(fact(facts::LIBC), Some("glibc"));
        for key in [
            facts::HOST_NAME,
            facts::KERNEL_VERSION,
            facts::HOST_CPUS,
            facts::CPUS_ALLOWED,
            facts::NOFILE_SOFT,
        ] {
            assert!(fact(key).is_some_and(|value| !value.is_empty()), "{key}");
        }
        let command_line = fact(facts::COMMAND_LINE).unwrap();
        assert!(
            command_line.contains(r#""-sbwt","none""#) && !command_line.contains(COOKIE),
            "{command_line}"
        );
        assert!(recorder.value(&sample, &metrics::PSS, "").unwrap() > 1_000_000);
        assert!(recorder.value(&sample, &metrics::OPEN_FDS, "").unwrap() > 3);
        assert!(sample.incarnation.unwrap().boot.contains("ticks after boot"));
    });
}

#[test]
fn an_ended_vm_is_gone() {
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    let mut vm = otp.start(&[], "ok");
    let mut recorder = Recorder::of(vm.pid());
    recorder.sample(true);
    vm.stop();
    let trouble = recorder.try_sample(false).unwrap_err();
    assert_eq!(
        (trouble.kind, trouble.reason),
        (TroubleKind::Gone, format!("process {} has ended", vm.pid()))
    );
    let again = otp.start(&[], "ok");
    recorder.source.follow(again.pid()).unwrap();
    let sample = recorder.sample(false);
    assert_eq!(sample.incarnation.unwrap().os_pid, Some(again.pid()));
}

#[test]
fn a_vm_in_its_own_namespaces_is_found() {
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    if !is_root() {
        return;
    }
    let name = unique_name();
    let mut command = Command::new("unshare");
    // A mount namespace needs its own /proc. The VM ends with unshare.
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "erl", "-noinput"]);
    command.args(["-eval", "io:format(\"up~n\")", "-extra", &name]);
    let outer = Running::start(command);
    outer.line("up");
    let found = discovery::discover(&tree()).unwrap().vms;
    let vm = found.iter().find(|vm| vm.command_line.extra() == [name.as_str()]).unwrap();
    assert_eq!(vm.parent, outer.pid());
    assert_eq!(
        (vm.pid_inside, vm.isolation),
        (Some(1), Isolation { pid: Some(true), net: Some(true), mount: Some(true), user: Some(false) })
    );
    assert_eq!(vm.installation.otp_release, Some(otp.release));
    assert!(vm.installation.otp_version.is_some(), "no version found below {:?}", vm.root);
    assert_eq!(vm.root, Some(format!("/proc/{}/root", vm.identity.pid)));
}

#[test]
fn rabbitmq_is_recognized_although_its_command_line_has_no_node_name() {
    let script = "/usr/sbin/rabbitmq-server";
    let home = tempfile::tempdir().unwrap();
    let server = std::fs::read_dir("/usr/lib/rabbitmq/lib").ok().and_then(|mut entries| entries.next()?.ok());
    let Some(server) = server.filter(|_| exists(script)) else {
        return println!("skipped, because RabbitMQ is not installed (apt-get install rabbitmq-server)");
    };
    let name = unique_name();
    let mut command = Command::new(server.path().join("sbin/rabbitmq-server"));
    // Debian's wrapper script would change the user. With RABBITMQ_ALLOW_INPUT, the script execs the VM in its own process.
    command
        .env("HOME", home.path())
        .env("RABBITMQ_NODENAME", format!("{name}@localhost"))
        .env("RABBITMQ_ALLOW_INPUT", "1");
    command.env("RABBITMQ_MNESIA_BASE", home.path()).env("RABBITMQ_LOG_BASE", home.path());
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", home.path().join("plugins")).env("RABBITMQ_NODE_PORT", "0");
    let broker = Running::start(command);
    let vm = eventually("RabbitMQ's VM", || discovery::look_at(&tree(), broker.pid()).ok());
    let version = server.file_name().to_string_lossy().replace("rabbitmq_server-", "");
    assert_eq!(vm.product.to_string(), format!("RabbitMQ {version}"));
    assert_eq!(vm.distribution.name.unwrap().full(), Some(format!("{name}@localhost")));
    // Its memory can be explained even while it starts.
    let mut recorder = Recorder::of(broker.pid());
    recorder.source.set_memory_budget(WITHOUT_LIMIT);
    // Memory that is mapped or unmapped during a read is unknown in this read.
    eventually("60 MB of memory, nearly all explained", || {
        let sample = recorder.sample(true);
        let resident = recorder.values(&sample, &metrics::CONTENT_RESIDENT);
        let unknown = recorder.value(&sample, &metrics::CONTENT_RESIDENT, content::UNKNOWN)?;
        let all = resident.iter().map(|(_, bytes)| bytes).sum::<i64>();
        (all > 60 << 20 && unknown <= all * 3 / 100).then_some(())
    });
}

#[test]
fn mix_and_iex_are_recognized() {
    on_each_release(|otp| {
        let runs = |program: &str, arguments: &[&str], expect: &str| {
            let mut command = otp.command(program);
            command.args(arguments);
            let running = Running::start(command);
            let vm = eventually(expect, || discovery::look_at(&tree(), running.pid()).ok());
            assert_eq!(vm.product.to_string(), expect, "OTP {}: {:?}", otp.release, vm.command_line);
        };
        if otp.command("elixir").arg("--version").output().is_ok_and(|output| output.status.success()) {
            runs("elixir", &["-e", "Process.sleep(:infinity)"], "elixir");
            runs("iex", &[], "iex");
            runs("mix", &["run", "--no-mix-exs", "-e", "Process.sleep(:infinity)"], "mix run");
        } else {
            println!("skipped, because OTP {} has no Elixir (make otp)", otp.release);
        }
        runs("erl", &[], "erl shell");
    });
}

/// The files of this host, with a list of the paths that were read. Each file takes some system calls, which are nearly the whole cost of
/// sampling a host.
#[derive(Default)]
struct Counted {
    tree: LocalTree,
    paths: Rc<RefCell<Vec<String>>>,
}

impl Counted {
    fn note(&self, path: &str) {
        self.paths.borrow_mut().push(path.to_owned());
    }
}

impl FileTree for Counted {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        self.note(path);
        self.tree.read_start(path, max_bytes, into)
    }

    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError> {
        self.note(dir);
        self.tree.read_start_below(dir, path, max_bytes, into)
    }

    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError> {
        self.note(path);
        self.tree.list(path, max)
    }

    fn count(&self, path: &str, max: usize) -> Result<u64, HostError> {
        self.note(path);
        self.tree.count(path, max)
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        self.note(path);
        self.tree.read_link(path)
    }

    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        self.note(path);
        self.tree.open(path)
    }

    fn listening(&self, pid: u32) -> Option<Result<Vec<Socket>, HostError>> {
        self.tree.listening(pid)
    }
}

/// Counts the paths that belong to a process.
fn of_process(paths: &[String], pid: u32) -> usize {
    let folder = format!("/proc/{pid}/");
    paths.iter().filter(|path| path.starts_with(&folder)).count()
}

#[test]
fn discovery_reads_some_files_of_vms_and_few_of_other_processes() {
    /// The actual number is 39, including one for each open file.
    const MAX_FILES_OF_A_VM: usize = 80;
    const MAX_FILES_OF_ANOTHER: usize = 5;
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    let vms: Vec<Running> =
        (0..5).map(|_| otp.start(&["-sname", &unique_name(), "-setcookie", COOKIE], "ok")).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo up; read line"]);
    let shell = Running::start(shell);
    shell.line("up");
    let tree = Counted::default();
    let found = discovery::discover(&tree).unwrap().vms;
    let paths = tree.paths.borrow();
    for vm in &vms {
        assert!(found.iter().any(|found| found.identity.pid == vm.pid()));
        let files = of_process(&paths, vm.pid());
        assert!((1..=MAX_FILES_OF_A_VM).contains(&files), "{files} files of a VM: {paths:#?}");
    }
    let files = of_process(&paths, shell.pid());
    assert!((1..=MAX_FILES_OF_ANOTHER).contains(&files), "{files} files of a shell: {paths:#?}");
}

#[test]
fn a_sample_reads_a_fixed_number_of_files_per_thread() {
    /// The files are stat, schedstat and status.
    const MAX_FILES_PER_THREAD: usize = 3;
    /// The actual number is 22.
    const MAX_OTHER_FILES: usize = 40;
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    let files = |arguments: &[&str]| {
        let vm = otp.start(arguments, "ok");
        let tree = Counted::default();
        let paths = Rc::clone(&tree.paths);
        let mut recorder = Recorder::with(tree, vm.pid());
        recorder.sample(true);
        paths.borrow_mut().clear();
        let sample = recorder.sample(false);
        let threads = recorder.values(&sample, &metrics::THREAD_CPU).len();
        let of_threads = format!("/proc/{}/task/", vm.pid());
        let (of_threads, rest): (Vec<_>, Vec<_>) =
            paths.take().into_iter().partition(|path| path.starts_with(&of_threads));
        println!("{threads} threads: {} files of them, {} others", of_threads.len(), rest.len());
        assert!(of_threads.len() <= threads * MAX_FILES_PER_THREAD, "{of_threads:#?}");
        assert!(rest.len() <= MAX_OTHER_FILES, "{rest:#?}");
        threads
    };
    let few = files(&["+S", "2:2", "+SDcpu", "2:2", "+SDio", "10"]);
    let many = files(&["+S", "64:2", "+SDcpu", "64:2"]);
    assert!(many > few + 100, "{many} and {few}");
}
