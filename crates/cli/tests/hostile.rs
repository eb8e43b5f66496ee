//! The binary against nodes, EPMDs and processes that send malicious data: it ends in time, needs little memory, and prints no terminal
//! control characters. Everything that was recorded is then shown with all commands.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "these are tests"
)]

mod common;

#[path = "../../attach/tests/hostile/answers.rs"]
mod answers;
#[path = "../../attach/tests/hostile/peer.rs"]
mod peer;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use answers::{each, huge, usual_answer};
use beamtune_attach::etf::{Pid, Value};
use beamtune_model::text::is_hidden;
use common::group::ControlGroup;
use common::{Output, Process, beamtune, copy_program, folder, run_for, text, unique};
use peer::{Cut, NAME, Server, send, serve_agent, shake_hands};

/// Time limit of a run on a busy host: recording takes two seconds, one attempt to connect up to 20 s.
const LIMIT: Duration = Duration::from_secs(90);

/// Memory limit of a run: two messages of the maximum size, and the parsed form of one.
const MAX_MEMORY_KB: u64 = 400 << 10;

/// Part of a name: clears the screen in two ways, sets the window title, and changes the text direction.
const NASTY: &str = "x\u{1b}[2J\u{9b}2J\u{1b}]0;t\u{7}\r\n\u{202e}\u{200f}\u{2066}<b>\"'&";

/// Starts a node whose agent sends this answer.
fn agent(answer: impl FnMut(&Pid, u64, &[String]) -> Vec<u8> + Send + 'static) -> Server {
    let mut answer = answer;
    Server::start(move |stream| {
        let mut stream = Cut::never(stream);
        // The client may close the connection at any time.
        let _ =
            shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| serve_agent(&mut stream, &mut answer));
    })
}

/// Starts a node whose agent sends the usual answer, with every value changed.
fn changed(mut change: impl FnMut(u64, Value<'static>) -> Value<'static> + Send + 'static) -> Server {
    agent(move |to, seq, items| {
        usual_answer(to, seq, items, |_, value| each(value, &mut |part| change(seq, part)))
    })
}

/// Runs a command, and checks memory, output and exit status, which are limited in every run.
fn run_checked(command: &mut Command) -> Output {
    let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let sampler = std::thread::spawn({
        let (stop, peak) = (Arc::clone(&stop), Arc::clone(&peak));
        move || {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(peak_of_children_kb(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    });
    let start = Instant::now();
    let output = run_for(command, LIMIT);
    let taken = start.elapsed();
    stop.store(true, Ordering::Relaxed);
    sampler.join().unwrap();
    let peak = peak.load(Ordering::Relaxed);
    let arguments: Vec<_> = command.get_args().collect();
    eprintln!("{arguments:?}: {taken:?}, {} MB", peak >> 10);
    assert!(peak < MAX_MEMORY_KB, "{peak} kB: {command:?}");
    for text in [&output.stdout, &output.stderr] {
        let hidden = text.chars().find(|&c| c != '\n' && is_hidden(c));
        assert_eq!(hidden, None, "{command:?}: {text:?}");
        assert!(!text.contains("panicked"), "{text}");
    }
    assert!(matches!(output.status, Some(0..=2)), "{:?}: {}", output.status, output.stderr);
    output
}

/// Returns the maximum memory of the beamtune processes that this process has started, including those of other tests.
fn peak_of_children_kb() -> u64 {
    let mut max = 0;
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace() {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            // Until its exec, a child process is a copy of this process.
            if status.starts_with("Name:\tbeamtune\n") {
                let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kb = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
                max = max.max(kb.unwrap_or(0));
            }
        }
    }
    max
}

fn doctor(port: u16) -> Command {
    let mut command = beamtune();
    command
        .args(["doctor", &format!("127.0.0.1:{port}"), "--for", "2s"])
        .env("BEAMTUNE_COOKIE", peer::COOKIE);
    command
}

/// Diagnoses the running node, then shows the recording with all commands. Returns the output of `doctor`.
fn judge(node: Server) -> Output {
    let folder = folder();
    let file = folder.path().join("r.btr");
    let output = run_checked(doctor(node.port).arg("-vv").arg("-o").arg(&file));
    drop(node);
    show_all(&file);
    output
}

fn show_all(file: &Path) {
    if !file.exists() {
        return;
    }
    let name = text(file);
    for view in ["summary", "msacc", "alloc", "flags", "processes", "ets", "schedulers", "host"] {
        run_checked(beamtune().args(["show", &name, "--view", view]));
    }
    run_checked(beamtune().args(["diagnose", &name]));
    run_checked(beamtune().args(["diagnose", &name, "--json"])).json();
    run_checked(beamtune().args(["diff", &name, &name]));
    let redacted = file.with_extension("redacted");
    run_checked(beamtune().args(["redact", &name, "-o", &text(&redacted)]));
    run_checked(beamtune().args(["diagnose", &text(&redacted)]));
}

#[test]
fn synthetic_node_is_accepted_as_a_node() {
    let output = judge(agent(|to, seq, items| usual_answer(to, seq, items, |_, value| value)));
    assert!(
        output.stdout.starts_with("n@h.i · RabbitMQ 3.10.8 · OTP 25 · 2 schedulers"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains("49,000"), "{}", output.stdout);
    assert!(!output.stdout.contains("malformed"), "{}", output.stdout);
}

#[test]
fn names_cannot_control_the_terminal() {
    let output = judge(changed(|_, value| match value {
        Value::Binary(text) => Value::binary([&text[..], NASTY.as_bytes()].concat()),
        Value::Atom(name) if matches!(&*name, "emulator" | "gc" | "scheduler" | "aux") => {
            Value::atom(format!("{name}{NASTY}"))
        }
        other => other,
    }));
    assert!(output.stdout.contains("\\u{1b}[2J"), "{}", output.stdout);
}

#[test]
fn error_texts_of_the_agent_cannot_control_the_terminal() {
    // A system monitor that another process owns, and an item that failed with an error text.
    let frame = |to: &Pid, seq: u64, items: &[String]| {
        usual_answer(to, seq, items, |name, value| match name {
            "events" => Value::Map(vec![
                (Value::atom("how"), Value::atom("taken")),
                (Value::atom("owner"), Value::binary(NASTY.as_bytes())),
            ]),
            "memory" => Value::Map(vec![(Value::atom(NASTY), Value::binary(NASTY.as_bytes()))]),
            _ => value,
        })
    };
    let output = judge(agent(frame));
    assert!(output.stdout.contains("already uses"), "{}", output.stdout);
}

#[test]
fn absurd_numbers_are_recorded_or_become_gaps() {
    for numbers in [
        |_: u64, _: i128| Value::Integer(i128::from(i64::MAX)),
        |_, _| Value::Integer(i128::from(i64::MIN)),
        |_, _| Value::Integer(-1),
        |_, _| Value::Integer(0),
        |_, _| Value::Integer(1 << 63),
        |_, _| Value::Integer(10_i128.pow(30)),
        |_, _| huge(),
        |_, _| Value::Float(1e308),
        // Decreasing, and with large differences.
        |seq, number| Value::Integer(number - i128::from(seq) * 1_000_000_000_000),
        |seq, number| {
            if seq % 2 == 0 { Value::Integer(i128::from(i64::MAX)) } else { Value::Integer(number) }
        },
        |seq, _| Value::Integer(if seq % 2 == 0 { i128::from(i64::MIN) } else { i128::from(i64::MAX) }),
    ] {
        judge(changed(move |seq, value| match value {
            Value::Integer(number) => numbers(seq, number),
            other => other,
        }));
    }
}

#[test]
fn empty_values_and_values_of_another_type_become_gaps() {
    for instead in [
        |value| matches!(value, Value::List(_)).then(|| Value::list([])),
        |value| matches!(value, Value::Tuple(_)).then(|| Value::tuple([])),
        |value| matches!(value, Value::Map(_)).then(|| Value::Map(vec![])),
        |value| matches!(value, Value::Binary(_)).then(|| Value::binary(b"\xFF".as_slice())),
        |value| matches!(value, Value::Binary(_)).then(|| Value::binary(vec![b'x'; 100_000])),
        |value| matches!(value, Value::Integer(_)).then(|| Value::atom("undefined")),
        |value: &Value<'static>| matches!(value, Value::List(_)).then(|| Value::atom("undefined")),
    ] as [fn(&Value<'static>) -> Option<Value<'static>>; 7]
    {
        judge(changed(move |_, value| instead(&value).unwrap_or(value)));
    }
}

#[test]
fn node_with_endless_new_names_does_not_exhaust_memory() {
    let mut next = 0;
    let output = judge(agent(move |to, seq, items| {
        usual_answer(to, seq, items, |name, value| match name {
            "msacc" => {
                let states = (0..2_000).map(|state| Value::atom(format!("state{state}"))).collect();
                let threads = (0..200).map(|_| {
                    next += 1;
                    let counters = (0..2_000).map(|_| Value::from(5i64)).collect();
                    Value::tuple([Value::atom("aux"), Value::from(i64::from(next)), Value::List(counters)])
                });
                Value::Map(vec![
                    (Value::atom("states"), Value::List(states)),
                    (Value::atom("threads"), Value::List(threads.collect())),
                ])
            }
            _ => value,
        })
    }));
    assert!(output.stdout.contains("more than 250000 series"), "{}", output.stdout);
}

/// True if a value contains a list that was made long.
fn holds_thousands(value: &Value<'static>) -> bool {
    match value {
        Value::List(elements) => elements.len() >= 1_000 || elements.iter().any(holds_thousands),
        Value::Tuple(elements) => elements.iter().any(holds_thousands),
        _ => false,
    }
}

#[test]
fn endless_lists_are_truncated() {
    judge(changed(|_, value| match value {
        // Each list gets thousands of elements, except lists that contain such a list.
        Value::List(elements) if !elements.is_empty() && elements.len() < 10 => {
            let small = elements.iter().all(|element| !matches!(element, Value::Tuple(_)));
            let count = if elements.iter().any(holds_thousands) {
                3
            } else if small {
                30
            } else {
                20_000
            };
            Value::List(elements.into_iter().cycle().take(count).collect())
        }
        other => other,
    }));
}

#[test]
fn recordings_of_flooding_and_silent_nodes_end_in_time() {
    let flood = |frames: fn(&Pid) -> Vec<u8>| {
        Server::start(move |stream| {
            let mut writer = stream.try_clone().unwrap();
            let mut stream = Cut::never(stream);
            let _ = shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| {
                serve_agent(&mut stream, |to, _, _| {
                    let frames = frames(to);
                    while !frames.is_empty() && writer.write_all(&frames).is_ok() {}
                    Vec::new()
                })
            });
        })
    };
    let silence = |_: &Pid| Vec::new();
    let ticks = |_: &Pid| vec![0; 1 << 16];
    let news = |to: &Pid| {
        let news = Value::tuple([Value::atom("beamtune"), Value::atom("news")]);
        send(to, &news.to_bytes().unwrap()).repeat(500)
    };
    let million =
        |to: &Pid| send(to, &[&[131, b'l', 0, 15, 0x42, 0x40][..], &vec![b'j'; 1_000_001]].concat());
    // A peer that only writes reads no requests.
    for (frames, why) in [
        (silence as fn(&Pid) -> Vec<u8>, &["did not answer"][..]),
        (ticks, &["accepted no data", "did not answer"]),
        (news, &["accepted no data", "did not answer"]),
        (million, &["malformed answer"]),
    ] {
        let node = flood(frames);
        let json = run_checked(doctor(node.port).arg("--json")).json();
        let seconds = json["period"]["seconds"].as_f64();
        assert!(seconds.is_some_and(|seconds| seconds <= 2.0), "{json:#}");
        // There is no sample of the VM, but a gap with the reason.
        assert_eq!(json["period"]["vm_samples"], 0, "{json:#}");
        let mut gaps = json["gaps"].as_array().into_iter().flatten();
        let has_reason = gaps.any(|gap| {
            let reason = gap["reason"].as_str().filter(|_| gap["source"] == "vm");
            reason.is_some_and(|reason| why.iter().any(|why| reason.contains(why)))
        });
        assert!(has_reason, "no {why:?} in {json:#}");
    }
}

#[test]
fn name_in_the_handshake_cannot_control_the_terminal() {
    for name in [format!("{NASTY}@h"), "\u{9b}2J@h".to_owned(), "x".repeat(60_000)] {
        let node = Server::start(move |mut stream| {
            let _ = shake_hands(&mut stream, name.as_bytes());
        });
        let output = run_checked(&mut doctor(node.port));
        output.assert_refused(&["the invalid node name"]);
        assert!(output.stderr.len() < 2_000, "{}", output.stderr);
    }
}

#[test]
fn malformed_answers_of_epmd_are_reported_and_limited() {
    let epmd = |answer: Vec<u8>, ends: bool| {
        Server::start(move |mut stream| {
            let mut request = [0; 64];
            let _ = std::io::Read::read(&mut stream, &mut request);
            while stream.write_all(&answer).is_ok() && !ends {}
        })
    };
    let names = |lines: &str| [b"\0\0\x11\x11", lines.as_bytes()].concat();
    let many: String = (0..20_000).map(|n| format!("name node{n} at port {}\n", 1 + n % 60_000)).collect();
    let no_epmd = "is not EPMD (the answer has an unknown tag): set ERL_EPMD_PORT";
    for (answer, ends, message) in [
        (vec![119; 4096], false, "has no node \"n\""),
        (vec![b'x'; 4096], false, no_epmd),
        (names(&"name a at port 1\n".repeat(200)), false, no_epmd),
        (names(&format!("name {NASTY} at port 1\n")), true, no_epmd),
        (names("name a at port 70000\nname b at port -1\n"), true, no_epmd),
        (names(&many), true, no_epmd),
        (vec![119, 0, 0, 0, 77, 0, 0, 6, 0, 5], true, "is not EPMD (the port is 0)"),
        (vec![119, 1], true, "has no node \"n\""),
    ] {
        let server = epmd(answer, ends);
        let run = |args: &[&str]| {
            let mut command = beamtune();
            command.args(args).env("ERL_EPMD_PORT", server.port.to_string());
            run_checked(command.env("BEAMTUNE_COOKIE", "x"))
        };
        let output = run(&["doctor", "n@127.0.0.1", "--for", "1s"]);
        output.assert_refused(&[message]);
        assert!(output.stderr.len() < 10_000, "{} bytes", output.stderr.len());
        // The answer matches no node on this host; all nodes are still listed.
        let output = run(&["nodes", "--json"]);
        assert_eq!((output.status, &*output.stderr), (Some(0), ""));
        assert!(output.json().is_array(), "{}", output.stdout);
    }
}

/// Starts a process that looks like a VM in /proc: the program has the right name, and its arguments have the format of erlexec.
fn fake_vm(folder: &Path, name: &str, epmd_port: u16) -> Process {
    let program = folder.join("beam.smp");
    if !program.exists() {
        copy_program("/bin/cat", &program);
    }
    let mut command = Command::new(&program);
    // For cat, all arguments are files that do not exist, except the last, which is standard input.
    command
        .args(["--", "-root", &format!("/x{NASTY}"), "-progname", "erl", "--", "-home", NASTY, "--"])
        .args(["-name", name, "-setcookie", NASTY, "-kernel", NASTY, NASTY, "-extra", "-"])
        .env("ERL_EPMD_PORT", epmd_port.to_string())
        .env("RABBITMQ_NODENAME", NASTY)
        .env("RELEASE_NAME", NASTY)
        .env("RELEASE_VSN", NASTY)
        .arg0(format!("/usr/lib/erlang/erts-13{NASTY}/bin/beam.smp"))
        .stderr(Stdio::null());
    let mut process =
        Process { child: command.stdin(Stdio::piped()).spawn().expect("cat"), lines: None, seen: vec![] };
    assert!(process.child.try_wait().expect("wait").is_none());
    process
}

#[test]
fn names_of_processes_cannot_control_the_terminal() {
    let folder = folder();
    let process = fake_vm(folder.path(), &format!("a{NASTY}@h"), 4369);
    let pid = process.pid().to_string();
    let output = run_checked(beamtune().arg("nodes"));
    assert!(output.stdout.contains(&pid), "{}", output.stdout);
    let rows = run_checked(beamtune().args(["nodes", "--json"])).json();
    assert!(rows.as_array().unwrap().iter().any(|row| row["pid"] == process.pid()), "{rows}");
    for command in [vec!["doctor", &pid, "--for", "1s"], vec!["doctor", &pid, "--for", "1s", "--host-only"]] {
        run_checked(beamtune().args(&command));
        run_checked(beamtune().args(&command).arg("--json"));
    }
    let file = folder.path().join("h.btr");
    run_checked(beamtune().args(["record", &pid, "--for", "1s", "--host-only", "-o", &text(&file)]));
    show_all(&file);
}

#[test]
fn silent_epmds_are_queried_in_parallel() {
    let folder = folder();
    let (connected, max_connected) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let silent = |_| {
        let (connected, max_connected) = (Arc::clone(&connected), Arc::clone(&max_connected));
        Server::start(move |stream| {
            max_connected.fetch_max(connected.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            peer::wait_for_end(stream);
            connected.fetch_sub(1, Ordering::SeqCst);
        })
    };
    let epmds: Vec<_> = (0..20).map(silent).collect();
    let vms: Vec<_> = epmds.iter().map(|epmd| fake_vm(folder.path(), "a@h", epmd.port)).collect();
    let rows = run_checked(beamtune().args(["nodes", "--json"])).json();
    // Each EPMD has a timeout of two seconds. If they were queried one after the other, at most two connections would overlap.
    let max_connected = max_connected.load(Ordering::SeqCst);
    assert!(max_connected > 5, "{max_connected} queried at once");
    let is_listed = |vm: &Process| rows.as_array().unwrap().iter().any(|row| row["pid"] == vm.pid());
    assert!(vms.iter().all(is_listed), "{rows}");
}

#[test]
fn epmds_are_queried_one_by_one_if_no_thread_can_be_started() {
    let Some(group) = ControlGroup::new(&unique("hostile")) else { return };
    group.limit(1);
    let folder = folder();
    let epmds: Vec<_> = (0..6).map(|_| Server::start(peer::wait_for_end)).collect();
    let vms: Vec<_> = epmds.iter().map(|epmd| fake_vm(folder.path(), "a@h", epmd.port)).collect();
    let output = run_checked(&mut group.command(beamtune().args(["nodes", "--json"])));
    // Each takes two seconds; those that were not queried in time are reported.
    assert!(output.stderr.contains(" EPMDs on this host were not queried"), "{}", output.stderr);
    let rows = output.json();
    let is_listed = |vm: &Process| rows.as_array().unwrap().iter().any(|row| row["pid"] == vm.pid());
    assert!(vms.iter().all(is_listed), "{rows}");
}

#[test]
fn name_of_a_file_cannot_control_the_terminal() {
    let folder = folder();
    let file = folder.path().join(NASTY.replace('/', ""));
    fs::write(&file, b"no recording").unwrap();
    for command in ["diagnose", "show", "doctor"] {
        run_checked(beamtune().arg(command).arg(&file)).assert_refused(&["\\u{1b}[2J"]);
    }
}
