//! Attaching again and again, and by many at once: nothing grows.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;

use crate::common::{PATIENCE, all_otps, folder, run};
use crate::figures::{count, short, spread, tell};
use crate::node::{Counts, How, Node, attach, kind, visit};

/// So many names beamtune has on a node, of which each is an atom there.
const NAMES: i64 = 8;

/// What the VM makes atoms of when it tells of a long collection or slice for the first time (erlang:system_monitor/2): on a busy
/// machine any may be long.
const WORDS_OF_EVENTS: [&str; 14] = [
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

/// The VM forgets who was connected a minute after; here after a second, so that its memory can be compared. It does so
/// when the next one comes.
const FORGETS_SOON: &[&str] = &["+zdntgc", "1"];

/// The node's counts when all that goes by itself has gone.
fn settled(node: &mut Node) -> Counts {
    std::thread::sleep(Duration::from_millis(1500));
    visit(&node.access()).expect("attached");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let gone = node.counts().connections == 0;
        // Not all of a reading is of the same instant, and a connection's process ends a little after it.
        let counts = node.counts();
        if gone && counts.exact() == node.counts().exact() {
            // The heap of the process that asks comes and goes.
            let least = (0..20).map(|_| node.counts().memory_bytes).min().unwrap_or(counts.memory_bytes);
            return Counts { memory_bytes: least, ..counts };
        }
        assert!(Instant::now() < deadline, "{counts:?}");
    }
}

/// That since there were so many atoms, the node has made none but of our names, and of the words of its own events.
#[track_caller]
fn assert_no_more_than_names(node: &mut Node, since: i64) {
    let (ours, others): (Vec<String>, Vec<String>) =
        node.atoms_since(since).into_iter().partition(|atom| atom.starts_with("beamtune_"));
    let of = node.otp.release;
    assert!((ours.len() as i64) < NAMES, "OTP {of}: {ours:?}");
    assert!(others.iter().all(|atom| WORDS_OF_EVENTS.contains(&atom.as_str())), "OTP {of}: {others:?}");
}

#[test]
fn however_often_a_node_is_attached_to_it_does_not_grow() {
    for otp in all_otps() {
        let turns = count(if otp.release == 25 { 1000 } else { 300 }, 40);
        let mut node = Node::start_so(&otp, &How { args: FORGETS_SOON, ..How::default() });
        let switches = node.switches();
        let modules = node.ask("erlang:loaded().");
        // What asking for them makes is there from now on.
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
        assert_no_more_than_names(&mut node, first.atoms);

        let case = "attaching again and again";
        let of = otp.release;
        tell(case, "attached and left, with a sample", of, format!("{turns} times, {} each", short(each)));
        tell(case, "atoms that the first two add", of, first.atoms - fresh.atoms);
        tell(
            case,
            "of OTP's own modules, loaded by the first",
            of,
            if loaded.is_empty() { "none".to_owned() } else { loaded.join(", ") },
        );
        tell(case, "atoms that the others add", of, last.atoms - first.atoms);
        let kb = |from: Counts, to: Counts| {
            format!("{:+.1} kB", (to.memory_bytes - from.memory_bytes) as f64 / 1000.0)
        };
        tell(case, "memory, second half", of, kb(middle, last));
        assert_eq!(last.exact(), first.exact(), "OTP {of}");
        assert_eq!(
            first.exact(),
            Counts { modules: first.modules, known_modules: first.known_modules, ..fresh }.exact()
        );
        assert_eq!(first.modules - fresh.modules, loaded.len() as i64);
        // 200 bytes of each in `make safety`; the VM's own memory goes up and down by less.
        assert!(last.memory_bytes - middle.memory_bytes < 100_000, "OTP {of}: {middle:?} {last:?}");
        assert_eq!(node.switches(), switches, "OTP {of}");
        assert!(!node.has_agent());
        node.assert_silent();
    }
}

#[test]
fn the_whole_command_leaves_a_node_as_it_was_each_time() {
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
        let said = record(&node, 0);
        assert_eq!(said.status, Some(0), "{}", said.stderr);
        let before = node.settled_footprint();
        let atoms = node.counts().atoms;
        let mut times = Vec::new();
        for turn in 1..=turns {
            let begin = Instant::now();
            let said = record(&node, turn);
            times.push(begin.elapsed());
            assert_eq!(said.status, Some(0), "{}", said.stderr);
            // It has waited until all is undone, but for the end of the connection itself.
            node.clean_again(&before, Instant::now());
        }
        let more = node.counts().atoms - atoms;
        assert_no_more_than_names(&mut node, atoms);
        node.assert_silent();
        let case = "attaching again and again";
        tell(
            case,
            "whole commands (`record --for 300ms`)",
            otp.release,
            format!("{turns} times, {}", spread(times)),
        );
        tell(case, "atoms that they add after the first", otp.release, more);
    }
}

#[test]
fn a_hundred_at_once_are_let_in_or_told_to_wait() {
    for otp in all_otps() {
        let many = count(100, 20);
        let mut node = Node::visited(&otp, &How::default());
        // In a crowd a node was seen to start its resolver; who on it looks a name up is not known (docs/safety.md).
        node.ask("inet_gethost_native:gethostbyname(\"localhost\").");
        let access = node.access();
        let before = node.settled_footprint();
        let atoms = node.counts().atoms;
        let (begin, gate, decided) = (Instant::now(), Barrier::new(many), Barrier::new(many));
        let outcomes: Vec<(Duration, Result<(), AttachError>)> = std::thread::scope(|scope| {
            let come = || {
                gate.wait();
                let attached = attach(&access);
                let took = begin.elapsed();
                // All come while those that were let in are there.
                decided.wait();
                let left = attached.and_then(|session| session.leave(Instant::now() + PATIENCE));
                (took, left)
            };
            let threads: Vec<_> = (0..many).map(|_| scope.spawn(come)).collect();
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
        let welcome = kinds.remove("attached").unwrap_or_default();
        assert!(welcome >= 8, "OTP {of}: {welcome} of {many}: {kinds:?}");
        assert_eq!(
            kinds.keys().filter(|kind| *kind != "NamesTaken").count(),
            0,
            "OTP {of}: {kinds:?}: {example}"
        );
        let case = "many at once";
        tell(case, "came at the same instant", of, many);
        tell(case, "attached and left", of, welcome);
        tell(case, "told to wait for others to leave", of, many - welcome);
        let decided: Vec<_> = outcomes.iter().map(|(took, _)| *took).collect();
        let slowest = decided.iter().max().copied().unwrap_or_default();
        assert!(slowest < count(Duration::from_secs(20), Duration::MAX), "OTP {of}: {slowest:?}");
        tell(case, "let in or told after", of, spread(decided));
        let more = node.counts().atoms - atoms;
        assert_no_more_than_names(&mut node, atoms);
        tell(case, "atoms added", of, more);
        node.assert_silent();
        // Afterwards everybody is welcome again.
        visit(&access).expect("attached");
    }
}
