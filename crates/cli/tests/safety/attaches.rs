//! Tests that nothing grows on a node when clients attach repeatedly, or many at the same time.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;

use crate::common::{TIMEOUT, all_otps, folder, run};
use crate::figures::{add_figure, count, short, spread};
use crate::node::{Counts, Node, NodeOptions, attach, kind, visit};

/// Number of names that beamtune uses on a node. Each is an atom there.
const NAME_COUNT: i64 = 8;

/// Atoms that the VM creates for its first report of a long garbage collection or schedule (erlang:system_monitor/2), which may happen
/// on a busy host.
const EVENT_ATOMS: [&str; 14] = [
    "long_gc",
    "long_schedule",
    "timeout",
    "in",
    "out",
    "heap_block_size",
    "old_heap_block_size",
    "mbuf_size",
    "stack_size",
    "old_heap_size",
    "bin_vheap_size",
    "bin_vheap_block_size",
    "bin_old_vheap_size",
    "bin_old_vheap_block_size",
];

/// The VM forgets a disconnected node when another one connects, but only after a minute by default. With this flag, it does so after a
/// second, so that its memory can be compared.
const FORGET_AFTER_1_S: &[&str] = &["+zdntgc", "1"];

/// Returns the node's counts after everything temporary has ended.
fn settled(node: &mut Node) -> Counts {
    std::thread::sleep(Duration::from_millis(1500));
    visit(&node.access()).expect("attached");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let gone = node.counts().connections == 0;
        // The counts are not read at the same moment, and the process of a connection ends slightly after the connection.
        let counts = node.counts();
        if gone && counts.exact() == node.counts().exact() {
            // The heap of the calling process varies, so the minimum is used.
            let min = (0..20).map(|_| node.counts().memory_bytes).min().unwrap_or(counts.memory_bytes);
            return Counts { memory_bytes: min, ..counts };
        }
        assert!(Instant::now() < deadline, "{counts:?}");
    }
}

/// Asserts that all atoms after the first `since` are beamtune's names or those of the VM's own events.
#[track_caller]
fn assert_only_expected_atoms(node: &mut Node, since: i64) {
    let (ours, others): (Vec<String>, Vec<String>) =
        node.atoms_since(since).into_iter().partition(|atom| atom.starts_with("beamtune_"));
    let of = node.otp.release;
    assert!((ours.len() as i64) < NAME_COUNT, "OTP {of}: {ours:?}");
    assert!(others.iter().all(|atom| EVENT_ATOMS.contains(&atom.as_str())), "OTP {of}: {others:?}");
}

#[test]
fn repeated_attaching_does_not_grow_the_node() {
    for otp in all_otps() {
        let turns = count(if otp.release == 25 { 1000 } else { 300 }, 40);
        let mut node =
            Node::start_with(&otp, &NodeOptions { args: FORGET_AFTER_1_S, ..NodeOptions::default() });
        let switches = node.switches();
        let modules = node.ask("erlang:loaded().");
        // The first calls create atoms, which remain.
        let atoms = node.counts().atoms;
        node.atoms_since(atoms);
        node.settled_footprint();
        let fresh = node.counts();
        let access = node.access();
        let first = settled(&mut node);
        let loaded: Vec<_> = {
            let now = node.ask("erlang:loaded().");
            let words =
                |text: &str| text.trim_matches(['[', ']']).split(',').map(str::to_owned).collect::<Vec<_>>();
            let before = words(&modules);
            words(&now).into_iter().filter(|module| !before.contains(module)).collect()
        };
        for _ in 0..turns / 2 {
            visit(&access).expect("attached");
        }
        let middle = settled(&mut node);
        let begin = Instant::now();
        for _ in 0..turns / 2 {
            visit(&access).expect("attached");
        }
        let each = begin.elapsed() / (turns as u32 / 2);
        let last = settled(&mut node);
        assert_only_expected_atoms(&mut node, first.atoms);

        let case = "attaching repeatedly";
        let of = otp.release;
        add_figure(case, "attached, sampled, detached", of, format!("{turns} times, {} each", short(each)));
        add_figure(case, "atoms added by the first two", of, first.atoms - fresh.atoms);
        add_figure(
            case,
            "OTP modules loaded by the first",
            of,
            if loaded.is_empty() { "none".to_owned() } else { loaded.join(", ") },
        );
        add_figure(case, "atoms added by the others", of, last.atoms - first.atoms);
        let kb = |from: Counts, to: Counts| {
            format!("{:+.1} kB", (to.memory_bytes - from.memory_bytes) as f64 / 1000.0)
        };
        add_figure(case, "change of memory in the second half", of, kb(middle, last));
        assert_eq!(last.exact(), first.exact(), "OTP {of}");
        assert_eq!(
            first.exact(),
            Counts { modules: first.modules, known_modules: first.known_modules, ..fresh }.exact()
        );
        assert_eq!(first.modules - fresh.modules, loaded.len() as i64);
        // In `make safety`, memory grew by 200 bytes per turn, which is less than its normal fluctuation.
        assert!(last.memory_bytes - middle.memory_bytes < 100_000, "OTP {of}: {middle:?} {last:?}");
        assert_eq!(node.switches(), switches, "OTP {of}");
        assert!(!node.has_agent());
        node.assert_silent();
    }
}

#[test]
fn node_is_unchanged_after_each_record_command() {
    for otp in all_otps() {
        let turns = count(50, 3);
        let mut node = Node::start(&otp);
        let folder = folder();
        let record = |node: &Node, turn: usize| {
            let mut command = node.beamtune("record");
            command
                .args(["--for", "300ms", "--every", "100ms", "-o"])
                .arg(folder.path().join(format!("{turn}.btr")));
            run(&mut command)
        };
        let output = record(&node, 0);
        assert_eq!(output.status, Some(0), "{}", output.stderr);
        let before = node.settled_footprint();
        let atoms = node.counts().atoms;
        let mut times = Vec::new();
        for turn in 1..=turns {
            let begin = Instant::now();
            let output = record(&node, turn);
            times.push(begin.elapsed());
            assert_eq!(output.status, Some(0), "{}", output.stderr);
            // When the command ends, everything is undone, except that the connection may still be closing.
            node.clean_again(&before, Instant::now());
        }
        let more = node.counts().atoms - atoms;
        assert_only_expected_atoms(&mut node, atoms);
        node.assert_silent();
        let case = "attaching repeatedly";
        add_figure(case, "`record --for 300ms`", otp.release, format!("{turns} times, {}", spread(times)));
        add_figure(case, "atoms added by these after the first", otp.release, more);
    }
}

#[test]
fn hundred_simultaneous_clients_are_accepted_or_refused() {
    for otp in all_otps() {
        let clients = count(100, 20);
        let mut node = Node::visited(&otp, &NodeOptions::default());
        // With many clients, a node once started its resolver; what looked up a name is unknown (docs/safety.md). So start it first.
        node.ask("inet_gethost_native:gethostbyname(\"localhost\").");
        let access = node.access();
        let before = node.settled_footprint();
        let atoms = node.counts().atoms;
        let (begin, gate, decided) = (Instant::now(), Barrier::new(clients), Barrier::new(clients));
        let outcomes: Vec<(Duration, Result<(), AttachError>)> = std::thread::scope(|scope| {
            let attach_once = || {
                gate.wait();
                let attached = attach(&access);
                let took = begin.elapsed();
                // All clients try to attach before the first one detaches.
                decided.wait();
                let left = attached.and_then(|session| session.leave(Instant::now() + TIMEOUT));
                (took, left)
            };
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(attach_once)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        node.clean_again(&before, Instant::now());
        let of = otp.release;
        let mut kinds = BTreeMap::<String, usize>::new();
        let mut example = String::new();
        for (_, outcome) in &outcomes {
            let kind = outcome.as_ref().err().map_or("attached".to_owned(), kind);
            *kinds.entry(kind).or_default() += 1;
            if let Err(error) = outcome {
                example = error.to_string();
            }
        }
        let attached = kinds.remove("attached").unwrap_or_default();
        assert!(attached >= 8, "OTP {of}: {attached} of {clients}: {kinds:?}");
        assert_eq!(
            kinds.keys().filter(|kind| *kind != "NamesTaken").count(),
            0,
            "OTP {of}: {kinds:?}: {example}"
        );
        let case = "many clients at once";
        add_figure(case, "clients at the same moment", of, clients);
        add_figure(case, "attached and detached", of, attached);
        add_figure(case, "refused until others leave", of, clients - attached);
        let decided: Vec<_> = outcomes.iter().map(|(took, _)| *took).collect();
        let slowest = decided.iter().max().copied().unwrap_or_default();
        assert!(slowest < count(Duration::from_secs(20), Duration::MAX), "OTP {of}: {slowest:?}");
        add_figure(case, "accepted or refused after", of, spread(decided));
        let more = node.counts().atoms - atoms;
        assert_only_expected_atoms(&mut node, atoms);
        add_figure(case, "atoms added", of, more);
        node.assert_silent();
        // Afterwards, clients are accepted again.
        visit(&access).expect("attached");
    }
}
