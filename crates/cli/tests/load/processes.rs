//! Loads by several processes, and loads that are interrupted.

use std::process::Command;
use std::sync::atomic::Ordering;

use beamtune_model::load::LoadResult;

use crate::common::{Process, beamtune, folder, run, wait_until};
use crate::servers::{Server, http};
use crate::{clean, load, step, wait_for_result};

/// A load with more connections than one process has file descriptors.
fn load_by_several(server: &Server, length: &str) -> Command {
    let own = beamtune();
    let mut command = Command::new("prlimit");
    command.arg("--nofile=150:150").arg(own.get_program());
    let url = format!("http://{}/", server.address);
    let options = ["--rate", "200", "--even", "--connections", "200", "--for", length, "--json"];
    command.arg("load").arg(url).args(options);
    command
}

/// The child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        // After the name in brackets come the state and the parent (proc_pid_stat(5)).
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

#[test]
fn several_processes_share_a_load_that_needs_more_descriptors_than_one_has() {
    let server = http(|| {});
    let result = clean(&mut load_by_several(&server, "2s"));
    assert_eq!((result.generator.processes, step(&result, "GET /").done), (3, 400));
    assert_eq!(step(&result, "connect").done, 200);
    assert!(result.seconds.iter().any(|second| second.connected == Some(200)), "{:?}", result.seconds);
}

#[test]
fn no_process_remains_if_the_first_one_is_killed() {
    let server = http(|| {});
    let folder = folder();
    let stderr = folder.path().join("stderr");
    let file = std::fs::File::create(&stderr).expect("a file");
    let mut leader = Process::start(load_by_several(&server, "60s").stderr(file));
    wait_until("requests come", || server.received.load(Ordering::Relaxed) > 50);
    let workers = children(leader.pid());
    assert_eq!(workers.len(), 3, "{workers:?}");
    leader.signal("KILL");
    leader.wait();
    let is_gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    wait_until("the others end", || workers.iter().all(is_gone));
    let output = std::fs::read_to_string(&stderr).expect("read");
    assert!(!output.contains("cannot report"), "{output}");
}

#[test]
fn killed_process_ends_the_load_with_a_message() {
    let server = http(|| {});
    let mut command = load_by_several(&server, "60s");
    let mut leader = Process::start(command.stderr(std::process::Stdio::piped()));
    wait_until("requests come", || server.received.load(Ordering::Relaxed) > 50);
    let workers = children(leader.pid());
    let killed = run(Command::new("kill").args(["-s", "KILL", &workers[0].to_string()]));
    assert_eq!(killed.status, Some(0));
    assert_eq!(leader.wait().code(), Some(2));
    let mut words = String::new();
    let mut errors = leader.child.stderr.take().expect("a pipe");
    std::io::Read::read_to_string(&mut errors, &mut words).expect("read");
    assert!(words.contains("a process of the load ended too early"), "{words}");
}

/// Interrupts a load and returns its result.
fn interrupted(mut command: Command, server: &Server) -> LoadResult {
    let process = Process::start(&mut command);
    wait_until("requests come", || server.received.load(Ordering::Relaxed) > 50);
    process.signal("INT");
    wait_for_result(process)
}

#[test]
fn ctrl_c_gives_the_result_so_far() {
    let one = http(|| {});
    let url = format!("http://{}/", one.address);
    let alone = load(&[&url, "--rate", "200", "--connections", "20", "--for", "60s"]);
    let several = http(|| {});
    for (command, server) in [(alone, &one), (load_by_several(&several, "60s"), &several)] {
        let result = interrupted(command, server);
        let done = step(&result, "GET /").done;
        assert!(result.is_interrupted && result.length_s == 60.0, "{result:?}");
        assert!((40..5_000).contains(&done) && result.errors() == 0, "{done}");
    }
}

#[test]
fn result_is_written_to_a_file_and_shown() {
    let (server, folder) = (http(|| {}), folder());
    let file = folder.path().join("result.json");
    let url = format!("http://{}/", server.address);
    let options = ["--rate", "100", "--even", "--connections", "5", "--for", "1s", "--output"];
    let output = run(beamtune().args(["load", &url]).args(options).arg(&file));
    assert!(output.stdout.contains("100 done, 0 errors"), "{}", output.stdout);
    let result: LoadResult =
        serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("a result");
    assert_eq!(result.done(), 100);
}

#[test]
fn seconds_in_which_one_process_was_frozen_are_attributed_to_the_generator() {
    let server = http(|| {});
    let process = Process::start(&mut load_by_several(&server, "4s"));
    wait_until("requests come", || server.received.load(Ordering::Relaxed) > 100);
    let workers = children(process.pid());
    let signal = |name: &str| {
        let output = run(Command::new("kill").args(["-s", name, &workers[0].to_string()]));
        assert_eq!(output.status, Some(0));
    };
    signal("STOP");
    // The length of the freeze is what is tested.
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal("CONT");
    let result = wait_for_result(process);
    assert_eq!((step(&result, "GET /").done, result.errors()), (800, 0));
    let bounds: Vec<_> = result.seconds.iter().filter_map(|second| second.bound.as_deref()).collect();
    assert!(bounds.iter().any(|words| words.contains("did not run for")), "{bounds:?}");
}
