//! The binary against nodes, EPMDs and processes that lie: it ends in time, takes little memory, and shows nothing that
//! commands a terminal. Whatever was recorded is shown in all ways afterwards.
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
use common::group::Group;
use common::{Running, Said, beamtune, copy_program, folder, run_for, text, unique};
use peer::{Cut, NAME, Server, send, serve_agent, shake_hands};

/// What no run may take longer than, on a busy machine: two seconds are recorded, and one attempt to connect takes 20.
const LIMIT: Duration = Duration::from_secs(90);

/// What it may take of memory: two messages of the largest size, with the tape of one.
const MOST_MEMORY_KB: u64 = 400 << 10;

/// Text of a name: it clears the screen in both ways, sets the title of the window, and turns the direction of writing.
const NASTY: &str = "x\u{1b}[2J\u{9b}2J\u{1b}]0;t\u{7}\r\n\u{202e}\u{200f}\u{2066}<b>\"'&";

/// A node with an agent that answers so.
fn agent(answer: impl FnMut(&Pid, u64, &[String]) -> Vec<u8> + Send + 'static) -> Server {
    let mut answer = answer;
    Server::start(move |stream| {
        let mut stream = Cut::never(stream);
        // The client ends the connection as it likes.
        let _ =
            shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| serve_agent(&mut stream, &mut answer));
    })
}

/// The usual answer, with every value of it changed.
fn changed(mut change: impl FnMut(u64, Value<'static>) -> Value<'static> + Send + 'static) -> Server {
    agent(move |to, seq, items| {
        usual_answer(to, seq, items, |_, value| each(value, &mut |part| change(seq, part)))
    })
}

/// Runs a command; checks what holds for all of them.
fn watched(command: &mut Command) -> Said {
    let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watcher = std::thread::spawn({
        let (stop, peak) = (Arc::clone(&stop), Arc::clone(&peak));
        move || {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(peak_of_children_kb(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    });
    let start = Instant::now();
    let said = run_for(command, LIMIT);
    let taken = start.elapsed();
    stop.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    let peak = peak.load(Ordering::Relaxed);
    let arguments: Vec<_> = command.get_args().collect();
    eprintln!("{arguments:?}: {taken:?}, {} MB", peak >> 10);
    assert!(peak < MOST_MEMORY_KB, "{peak} kB: {command:?}");
    for output in [&said.stdout, &said.stderr] {
        let hidden = output.chars().find(|&c| c != '\n' && is_hidden(c));
        assert_eq!(hidden, None, "{command:?}: {output:?}");
        assert!(!output.contains("panicked"), "{output}");
    }
    assert!(matches!(said.status, Some(0..=2)), "{:?}: {}", said.status, said.stderr);
    said
}

/// The most memory that a running beamtune of this process has taken; those of other tests count too.
fn peak_of_children_kb() -> u64 {
    let mut most = 0;
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace() {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            // Before its exec, a child is a copy of us.
            if status.starts_with("Name:\tbeamtune\n") {
                let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kb = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
                most = most.max(kb.unwrap_or(0));
            }
        }
    }
    most
}

fn doctor(port: u16) -> Command {
    let mut command = beamtune();
    command
        .args(["doctor", &format!("127.0.0.1:{port}"), "--for", "2s"])
        .env("BEAMTUNE_COOKIE", peer::COOKIE);
    command
}

/// Judges the node live, and then shows the recording of it in all ways. Yields what `doctor` said.
fn judge(node: Server) -> Said {
    let folder = folder();
    let file = folder.path().join("r.btr");
    let said = watched(doctor(node.port).arg("-o").arg(&file));
    drop(node);
    show_all(&file);
    said
}

fn show_all(file: &Path) {
    if !file.exists() {
        return;
    }
    let name = text(file);
    for view in ["summary", "msacc", "alloc", "flags", "processes", "ets", "schedulers", "host"] {
        watched(beamtune().args(["show", &name, "--view", view]));
    }
    watched(beamtune().args(["diagnose", &name]));
    watched(beamtune().args(["diagnose", &name, "--json"])).json();
    watched(beamtune().args(["diff", &name, &name]));
    let redacted = file.with_extension("redacted");
    watched(beamtune().args(["redact", &name, "-o", &text(&redacted)]));
    watched(beamtune().args(["diagnose", &text(&redacted)]));
}

#[test]
fn the_made_up_node_is_a_node_to_beamtune() {
    let said = judge(agent(|to, seq, items| usual_answer(to, seq, items, |_, value| value)));
    assert!(said.stdout.starts_with("n@h.i · RabbitMQ 3.10.8 · OTP 25 (jit)\n"), "{}", said.stdout);
    assert!(said.stdout.contains("49,000"), "{}", said.stdout);
    assert!(!said.stdout.contains("malformed answer"), "{}", said.stdout);
}

#[test]
fn names_of_all_kinds_command_no_terminal() {
    let said = judge(changed(|_, value| match value {
        Value::Binary(text) => Value::binary([&text[..], NASTY.as_bytes()].concat()),
        Value::Atom(name) if matches!(&*name, "emulator" | "gc" | "scheduler" | "aux") => {
            Value::atom(format!("{name}{NASTY}"))
        }
        other => other,
    }));
    assert!(said.stdout.contains("\\u{1b}[2J"), "{}", said.stdout);
}

#[test]
fn error_texts_of_the_agent_command_no_terminal() {
    // An item that failed with a text, one that hung on a process, a monitor that is somebody's.
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
    let said = judge(agent(frame));
    assert!(said.stdout.contains("belongs to"), "{}", said.stdout);
}

#[test]
fn numbers_beyond_all_reason_are_gaps_or_numbers() {
    for numbers in [
        |_: u64, _: i128| Value::Integer(i128::from(i64::MAX)),
        |_, _| Value::Integer(i128::from(i64::MIN)),
        |_, _| Value::Integer(-1),
        |_, _| Value::Integer(0),
        |_, _| Value::Integer(1 << 63),
        |_, _| Value::Integer(10_i128.pow(30)),
        |_, _| huge(),
        |_, _| Value::Float(1e308),
        // Backwards, and far from one to the next.
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
fn what_is_empty_or_of_another_kind_is_a_gap() {
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
fn a_node_that_makes_up_names_without_end_does_not_fill_the_memory() {
    let mut next = 0;
    let said = judge(agent(move |to, seq, items| {
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
    assert!(said.stdout.contains("more than 250000 series"), "{}", said.stdout);
}

/// Whether a list that has been made long is within.
fn holds_thousands(value: &Value<'static>) -> bool {
    match value {
        Value::List(elements) => elements.len() >= 1_000 || elements.iter().any(holds_thousands),
        Value::Tuple(elements) => elements.iter().any(holds_thousands),
        _ => false,
    }
}

#[test]
fn lists_without_end_are_cut() {
    judge(changed(|_, value| match value {
        // Each list by the thousands, but not those in one another.
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
fn floods_ticks_and_silence_end_with_the_time_that_was_asked_for() {
    let flood = |frames: fn(&Pid) -> Vec<u8>| {
        Server::start(move |stream| {
            let mut spray = stream.try_clone().unwrap();
            let mut stream = Cut::never(stream);
            let _ = shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| {
                serve_agent(&mut stream, |to, _, _| {
                    let frames = frames(to);
                    while !frames.is_empty() && spray.write_all(&frames).is_ok() {}
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
    // Who only writes reads nothing.
    for (frames, why) in [
        (silence as fn(&Pid) -> Vec<u8>, &["did not answer"][..]),
        (ticks, &["accepted no data", "did not answer"]),
        (news, &["accepted no data", "did not answer"]),
        (million, &["malformed answer"]),
    ] {
        let node = flood(frames);
        let json = watched(doctor(node.port).arg("--json")).json();
        let seconds = json["period"]["seconds"].as_f64();
        assert!(seconds.is_some_and(|seconds| seconds <= 2.0), "{json:#}");
        // Nothing was learnt of the VM, and why is said.
        assert_eq!(json["period"]["vm_samples"], 0, "{json:#}");
        let mut gaps = json["gaps"].as_array().into_iter().flatten();
        let is_told = gaps.any(|gap| {
            let reason = gap["reason"].as_str().filter(|_| gap["source"] == "vm");
            reason.is_some_and(|reason| why.iter().any(|why| reason.contains(why)))
        });
        assert!(is_told, "no {why:?} in {json:#}");
    }
}

#[test]
fn a_name_in_the_handshake_commands_no_terminal() {
    for name in [format!("{NASTY}@h"), "\u{9b}2J@h".to_owned(), "x".repeat(60_000)] {
        let node = Server::start(move |mut stream| {
            let _ = shake_hands(&mut stream, name.as_bytes());
        });
        let said = watched(&mut doctor(node.port));
        said.assert_refused(&["the invalid node name"]);
        assert!(said.stderr.len() < 2_000, "{}", said.stderr);
    }
}

#[test]
fn an_epmd_that_lies_is_told_and_held_within_bounds() {
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
    for (answer, ends, told) in [
        (vec![119; 4096], false, "knows no node \"n\""),
        (vec![b'x'; 4096], false, no_epmd),
        (names(&"name a at port 1\n".repeat(200)), false, no_epmd),
        (names(&format!("name {NASTY} at port 1\n")), true, no_epmd),
        (names("name a at port 70000\nname b at port -1\n"), true, no_epmd),
        (names(&many), true, no_epmd),
        (vec![119, 0, 0, 0, 77, 0, 0, 6, 0, 5], true, "is not EPMD (the port is 0)"),
        (vec![119, 1], true, "knows no node \"n\""),
    ] {
        let server = epmd(answer, ends);
        let asking = |args: &[&str]| {
            let mut command = beamtune();
            command.args(args).env("ERL_EPMD_PORT", server.port.to_string());
            watched(command.env("BEAMTUNE_COOKIE", "x"))
        };
        let said = asking(&["doctor", "n@127.0.0.1", "--for", "1s"]);
        said.assert_refused(&[told]);
        assert!(said.stderr.len() < 10_000, "{} bytes", said.stderr.len());
        // It is nobody's: what runs here is listed all the same.
        let said = asking(&["nodes", "--json"]);
        assert_eq!((said.status, &*said.stderr), (Some(0), ""));
        assert!(said.json().is_array(), "{}", said.stdout);
    }
}

/// Something that looks like a VM to whoever looks into /proc: a program of the right name with arguments of erlexec's form.
fn pretender(folder: &Path, name: &str, epmd_port: u16) -> Running {
    let program = folder.join("beam.smp");
    if !program.exists() {
        copy_program("/bin/cat", &program);
    }
    let mut command = Command::new(&program);
    // To cat, all of it is files that are not there, but for the last: it waits for its input.
    command
        .args(["--", "-root", &format!("/x{NASTY}"), "-progname", "erl", "--", "-home", NASTY, "--"])
        .args(["-name", name, "-setcookie", NASTY, "-kernel", NASTY, NASTY, "-extra", "-"])
        .env("ERL_EPMD_PORT", epmd_port.to_string())
        .env("RABBITMQ_NODENAME", NASTY)
        .env("RELEASE_NAME", NASTY)
        .env("RELEASE_VSN", NASTY)
        .arg0(format!("/usr/lib/erlang/erts-13{NASTY}/bin/beam.smp"))
        .stderr(Stdio::null());
    let mut running =
        Running { child: command.stdin(Stdio::piped()).spawn().expect("cat"), lines: None, seen: vec![] };
    assert!(running.child.try_wait().expect("wait").is_none());
    running
}

#[test]
fn processes_that_name_themselves_command_no_terminal() {
    let folder = folder();
    let running = pretender(folder.path(), &format!("a{NASTY}@h"), 4369);
    let pid = running.pid().to_string();
    let said = watched(beamtune().arg("nodes"));
    assert!(said.stdout.contains(&pid), "{}", said.stdout);
    let rows = watched(beamtune().args(["nodes", "--json"])).json();
    assert!(rows.as_array().unwrap().iter().any(|row| row["pid"] == running.pid()), "{rows}");
    for command in [vec!["doctor", &pid, "--for", "1s"], vec!["doctor", &pid, "--for", "1s", "--host-only"]] {
        watched(beamtune().args(&command));
        watched(beamtune().args(&command).arg("--json"));
    }
    let file = folder.path().join("h.btr");
    watched(beamtune().args(["record", &pid, "--for", "1s", "--host-only", "-o", &text(&file)]));
    show_all(&file);
}

#[test]
fn many_epmds_that_do_not_answer_are_not_all_waited_for() {
    let folder = folder();
    let (asked, most_at_once) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let silent = |_| {
        let (asked, most_at_once) = (Arc::clone(&asked), Arc::clone(&most_at_once));
        Server::start(move |stream| {
            most_at_once.fetch_max(asked.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            peer::wait_for_end(stream);
            asked.fetch_sub(1, Ordering::SeqCst);
        })
    };
    let epmds: Vec<_> = (0..20).map(silent).collect();
    let vms: Vec<_> = epmds.iter().map(|epmd| pretender(folder.path(), "a@h", epmd.port)).collect();
    let rows = watched(beamtune().args(["nodes", "--json"])).json();
    // Each is waited for two seconds: one after the other, two would meet at most.
    let most_at_once = most_at_once.load(Ordering::SeqCst);
    assert!(most_at_once > 5, "{most_at_once} were asked at once");
    let is_listed = |vm: &Running| rows.as_array().unwrap().iter().any(|row| row["pid"] == vm.pid());
    assert!(vms.iter().all(is_listed), "{rows}");
}

#[test]
fn where_threads_are_short_epmds_are_asked_one_after_the_other() {
    let Some(group) = Group::new(&unique("hostile")) else { return };
    group.limit(1);
    let folder = folder();
    let epmds: Vec<_> = (0..6).map(|_| Server::start(peer::wait_for_end)).collect();
    let vms: Vec<_> = epmds.iter().map(|epmd| pretender(folder.path(), "a@h", epmd.port)).collect();
    let said = watched(&mut group.command(beamtune().args(["nodes", "--json"])));
    // Each takes two seconds; those that there was no time for are told.
    assert!(said.stderr.contains(" EPMDs on this host were not asked for their nodes"), "{}", said.stderr);
    let rows = said.json();
    let is_listed = |vm: &Running| rows.as_array().unwrap().iter().any(|row| row["pid"] == vm.pid());
    assert!(vms.iter().all(is_listed), "{rows}");
}

#[test]
fn a_file_that_names_itself_commands_no_terminal() {
    let folder = folder();
    let file = folder.path().join(NASTY.replace('/', ""));
    fs::write(&file, b"no recording").unwrap();
    for command in ["diagnose", "show", "doctor"] {
        watched(beamtune().arg(command).arg(&file)).assert_refused(&["\\u{1b}[2J"]);
    }
}
