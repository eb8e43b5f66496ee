//! Tests explicit items on real nodes of each release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use beamtune_attach::agent::SessionOptions;
use beamtune_attach::explicit::{
    CarrierWalk, Collect, ExplicitItem, ExplicitKind, LOCK_CATEGORIES, Locks, ProcessSelection,
};
use beamtune_attach::source::{Access, NodeSource};
use beamtune_model::{AllocationRow, CarrierRow, Group, LockRow, Sample, TroubleKind};
use common::recorder::{Recorder, access};
use common::{Otp, PATIENCE, TestNode, evaluate, eventually, on_each_lcnt, on_each_release};

/// Starts processes that each create `each` binaries of 400 bytes and keep `tenths` tenths of them.
fn fragment(node: &TestNode, processes: u32, each: u32, tenths: u32) {
    let expression = format!(
        "Self = self(), \
         Make = fun() -> lists:map(fun erlang:list_to_binary/1, lists:duplicate({each}, lists:duplicate(400, 0))) end, \
         Hold = fun() -> \
             Kept = case {tenths} of 10 -> Make(); _ -> [B || B <- Make(), erlang:phash2(make_ref(), 10) < {tenths}] end, \
             erlang:garbage_collect(), Self ! {{held, self()}}, \
             receive stop -> Kept end \
         end, \
         Pids = [spawn(Hold) || _ <- lists:seq(1, {processes})], \
         [receive {{held, P}} -> ok end || P <- Pids], \
         length(Pids)"
    );
    let made = evaluate(&mut node.connect(), &expression);
    assert_eq!(made.root().as_u64().unwrap(), u64::from(processes));
}

fn request(recorder: &mut Recorder, items: Vec<ExplicitItem>) -> Sample {
    recorder.source.request_once(items);
    recorder.sample(true, PATIENCE).unwrap()
}

/// Requests an item repeatedly until the answer is complete: on a busy machine, a scheduler may answer late.
fn request_complete(recorder: &mut Recorder, what: &ExplicitKind) -> Sample {
    let mut answered = None;
    eventually("an answer in time", || {
        let sample = request(recorder, vec![ExplicitItem::new(what.clone())]);
        let mut skipped = sample
            .carriers
            .iter()
            .map(|row| &row.skipped)
            .chain(sample.allocations.iter().map(|row| &row.skipped));
        let is_late = skipped.any(|why| why.as_deref() == Some("no_answer"))
            || sample.gaps.iter().any(|gap| gap.reason.contains("a_scheduler_does_not_answer"));
        answered = Some(sample);
        !is_late
    });
    answered.unwrap()
}

fn bytes<'a>(rows: impl IntoIterator<Item = &'a CarrierRow>) -> i64 {
    rows.into_iter().map(|row| row.bytes).sum()
}

/// Returns the total size of each allocator's carriers according to the VM's counters, in bytes. Allocators without carriers are
/// omitted.
fn counted_sizes(recorder: &Recorder, sample: &Sample) -> BTreeMap<String, i64> {
    let is_size =
        |name: &str| ["mbcs_carriers_size", "pool_carriers_size", "sbcs_carriers_size"].contains(&name);
    let mut sizes = BTreeMap::new();
    for (id, value) in &sample.readings {
        let series = recorder.table.get(*id).unwrap();
        if series.group == Group::Allocator && is_size(&series.name) && *value > 0 {
            let allocator = series.entity.split('/').next().unwrap();
            *sizes.entry(allocator.to_owned()).or_default() += value;
        }
    }
    sizes
}

fn walked_sizes(rows: &[CarrierRow]) -> BTreeMap<String, i64> {
    let mut sizes = BTreeMap::new();
    for row in rows {
        *sizes.entry(row.allocator.clone()).or_default() += row.bytes;
    }
    sizes
}

/// Repeats a walk until the result for each allocator has agreed once with the VM's counters. Carriers are created and destroyed
/// while the agent works, even between two equal readings of the counters, so a single disagreement proves nothing.
fn walk_that_matches_the_count(
    recorder: &mut Recorder,
    mut walk: impl FnMut(&mut Recorder) -> Sample,
) -> Sample {
    let mut matched = BTreeSet::new();
    let mut found = None;
    eventually("a walk that agrees with the VM's count", || {
        let sample = walk(recorder);
        let counted = recorder.sample(true, PATIENCE).unwrap();
        let (walked, counted) = (walked_sizes(&sample.carriers), counted_sizes(recorder, &counted));
        matched.extend(
            walked
                .iter()
                .filter(|(name, size)| counted.get(*name) == Some(size))
                .map(|(name, _)| name.clone()),
        );
        let is_complete = walked.keys().chain(counted.keys()).all(|allocator| matched.contains(allocator));
        if !is_complete {
            println!("walked {walked:?}\ncounted {counted:?}");
        }
        found = Some(sample);
        is_complete
    });
    found.unwrap()
}

#[test]
fn carriers_are_reported_once_and_match_the_vms_count() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 40, 3_000, 3);
        let mut recorder = Recorder::attach(&node.name);
        let plain = recorder.sample(true, PATIENCE).unwrap();
        assert!(plain.carriers.is_empty(), "not requested");
        let all = ExplicitKind::Carriers(CarrierWalk::default());
        let sample = walk_that_matches_the_count(&mut recorder, |recorder| request_complete(recorder, &all));
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let walked: Vec<_> = sample.carriers.iter().filter(|row| row.skipped.is_none()).collect();
        assert!(bytes(walked.iter().copied()) > bytes(&sample.carriers) / 4, "{walked:?}");
        let t = sample.carriers[0].t;
        for row in &sample.carriers {
            assert_eq!(row.t, t);
            assert!(row.carriers > 0 && row.allocator.ends_with("_alloc"), "{row:?}");
        }
        for row in walked {
            let (log2, tenths) = (row.size_log2.unwrap(), row.used_tenths.unwrap());
            let mean = row.bytes / row.carriers;
            assert!(mean >> log2 == 1 && (0..=10).contains(&tenths), "{row:?}");
            let used: i64 = row.blocks.iter().map(|blocks| blocks.bytes).sum();
            assert!(used * 10 >= row.bytes * tenths && used * 10 <= row.bytes * (tenths + 1), "{row:?}");
            assert!(row.free.is_sorted_by_key(|size| size.from), "{row:?}");
        }
        let again = recorder.sample(true, PATIENCE).unwrap();
        assert!(again.carriers.is_empty(), "requested once only");
    });
}

#[test]
fn cost_of_a_carrier_walk_is_estimated() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 20, 6_000, 10);
        let mut recorder = Recorder::attach(&node.name);
        let walk = CarrierWalk { include_pools: true, ..CarrierWalk::default() };
        // On a busy machine, the allocator instance used for calibration may answer late.
        let mut cost = recorder.source.estimate_walk(&walk, PATIENCE).unwrap();
        eventually("a measurement in time", || {
            let is_measured = cost.calibrated_on.is_some();
            if !is_measured {
                cost = recorder.source.estimate_walk(&walk, PATIENCE).unwrap();
            }
            is_measured
        });
        println!("{cost:?}");
        assert!(cost.blocks > 30_000 && cost.bytes > 10_000_000 && cost.instances > 10, "{cost:?}");
        assert!(
            cost.duration > Duration::ZERO
                && cost.max_hold > Duration::ZERO
                && cost.max_hold <= cost.duration,
            "{cost:?}"
        );
        assert!(cost.skipped.is_empty() && cost.calibrated_on.is_some(), "{cost:?}");
        // The next sample is answered as usual.
        let some = CarrierWalk { allocators: vec!["binary_alloc".to_owned()], include_pools: true };
        let sample = request(&mut recorder, vec![ExplicitItem::new(ExplicitKind::Carriers(some.clone()))]);
        assert!(sample.carriers.iter().all(|row| row.allocator == "binary_alloc"), "{:?}", sample.carriers);
        let of_some = recorder.source.estimate_walk(&some, PATIENCE).unwrap();
        assert!(of_some.bytes < cost.bytes && of_some.bytes > 0, "{of_some:?} of {cost:?}");
    });
}

#[test]
fn carrier_walk_ends_at_its_limit_and_reports_skipped_carriers() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 100, 4_000, 10);
        let mut recorder = Recorder::attach(&node.name);
        let walk = CarrierWalk { include_pools: true, ..CarrierWalk::default() };
        let short = ExplicitItem { kind: ExplicitKind::Carriers(walk), limit: Duration::from_millis(50) };
        let sample =
            walk_that_matches_the_count(&mut recorder, |recorder| request(recorder, vec![short.clone()]));
        let skipped: Vec<_> = sample.carriers.iter().filter(|row| row.skipped.is_some()).collect();
        assert!(skipped.iter().any(|row| row.skipped.as_deref() == Some("limit")), "{:?}", sample.carriers);
    });
}

#[test]
fn allocations_of_binaries_are_reported() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 10, 3_000, 3);
        let mut recorder = Recorder::attach(&node.name);
        let walk = CarrierWalk { include_pools: true, ..CarrierWalk::default() };
        let sample = request_complete(&mut recorder, &ExplicitKind::Allocations { walk, top: 5 });
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let rows: Vec<_> = sample.allocations.iter().filter(|row| row.skipped.is_none()).collect();
        assert!((1..=5).contains(&rows.len()), "{:?}", sample.allocations);
        // OTP 23 uses another type for binaries created by BIFs.
        let is_binary = |row: &&&AllocationRow| {
            row.origin == "system" && ["binary", "drv_binary"].contains(&row.kind.as_str())
        };
        let binaries: Vec<_> = rows.iter().filter(is_binary).collect();
        assert!(binaries.iter().map(|row| row.blocks).sum::<i64>() > 5_000, "{binaries:?}");
        assert!(binaries.iter().map(|row| row.bytes).sum::<i64>() > 1_000_000, "{binaries:?}");
        for row in rows {
            assert_eq!(row.sizes.iter().map(|size| size.count).sum::<i64>(), row.blocks, "{row:?}");
        }
    });
}

#[test]
fn code_is_reported_by_application() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        let sample = request_complete(&mut recorder, &ExplicitKind::CodeMemory { top: 50 });
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let of =
            |name: &str| sample.code.iter().find(|row| row.application.as_deref() == Some(name)).unwrap();
        for application in ["kernel", "stdlib", "erts"] {
            let row = of(application);
            assert!(row.modules > 5 && row.bytes > 50_000, "{row:?}");
        }
        let value = |name| recorder.value(&sample, Group::Code, "", name).unwrap();
        assert_eq!(value("size"), sample.code.iter().map(|row| row.bytes).sum::<i64>());
        assert_eq!(value("modules"), sample.code.iter().map(|row| row.modules).sum::<i64>());
        assert!(value("persistent_terms") > 0 && value("persistent_terms_size") > 0);
        let all = recorder.value(&sample, Group::Memory, "", "code").unwrap();
        assert!(value("size") > all / 2 && value("size") < 2 * all, "{} of {all}", value("size"));
    });
}

/// Starts idle processes with small heaps. Each has a binary of its own and a reference to a shared binary, and `elements` list
/// elements of garbage. Returns their pids.
fn holders(node: &TestNode, processes: u32, elements: u32) -> Vec<String> {
    let expression = format!(
        "Self = self(), Shared = binary:copy(<<1>>, 1000000), \
         Hold = fun() -> \
             Own = binary:copy(<<2>>, 100000), _ = lists:seq(1, {elements}), \
             Self ! {{held, self()}}, receive stop -> {{Own, Shared}} end \
         end, \
         Pids = [spawn(Hold) || _ <- lists:seq(1, {processes})], \
         [receive {{held, P}} -> ok end || P <- Pids], \
         [list_to_binary(pid_to_list(P)) || P <- Pids]"
    );
    let made = evaluate(&mut node.connect(), &expression);
    let pids = made.root().list().unwrap().map(|pid| pid.as_str().unwrap().to_owned());
    pids.collect()
}

#[test]
fn binary_holders_are_found_and_shared_binaries_are_counted_once() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        let pids = holders(&node, 8, 10);
        let mut recorder = Recorder::attach(&node.name);
        let sample = request(
            &mut recorder,
            vec![ExplicitItem::new(ExplicitKind::Holders { pids: Vec::new(), top: 20 })],
        );
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        for pid in &pids {
            let row = sample
                .holders
                .iter()
                .find(|row| &row.pid == pid)
                .unwrap_or_else(|| panic!("{pid}: {:?}", sample.holders));
            assert_eq!((row.skipped.as_deref(), row.bytes >= 1_100_000), (None, true), "{row:?}");
            assert!((100_000..1_000_000).contains(&row.alone_bytes) && row.heap_bytes < 200_000, "{row:?}");
        }
        let together = recorder.value(&sample, Group::Processes, "", "held_binaries_size").unwrap();
        let each: i64 = sample.holders.iter().map(|row| row.bytes).sum();
        assert!(together >= 1_800_000 && together <= each - 6_000_000, "{together} of {each}");
        let named = ExplicitKind::Holders { pids: pids[..3].to_vec(), top: 1 };
        let sample = request(&mut recorder, vec![ExplicitItem::new(named)]);
        assert_eq!(sample.holders.iter().map(|row| row.pid.clone()).collect::<Vec<_>>(), pids[..3]);
    });
}

#[test]
fn named_or_sampled_processes_are_garbage_collected() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        let pids = holders(&node, 300, 5_000);
        let mut recorder = Recorder::attach(&node.name);
        // Other tests run at the same time, so the latency limit is high.
        let calm = |whom| Collect { latency_limit: Duration::from_secs(60), ..Collect::new(whom) };
        let named = Collect { top: 5, ..calm(ProcessSelection::Named(pids[..20].to_vec())) };
        let sample = request(&mut recorder, vec![ExplicitItem::new(ExplicitKind::Collect(named))]);
        let [row] = &sample.collections[..] else { panic!("{:?}", sample.gaps) };
        assert_eq!(
            (row.selection.as_str(), row.stopped.as_str(), row.processes),
            ("named", "done", 20),
            "{row:?}"
        );
        assert_eq!((row.collected, sample.collected.len()), (20, 5), "{row:?}");
        assert!(
            row.heap_after < row.heap_before
                && row.largest == 20
                && row.longest > 0
                && row.memory_binary_after.is_some(),
            "{row:?}"
        );
        for process in &sample.collected {
            assert!(pids[..20].contains(&process.pid) && process.freed() > 0, "{process:?}");
        }
        let some = calm(ProcessSelection::Sample { permille: 500, max_processes: 10_000 });
        let sample = request(&mut recorder, vec![ExplicitItem::new(ExplicitKind::Collect(some))]);
        let [row] = &sample.collections[..] else { panic!("{:?}", sample.gaps) };
        assert!(row.processes > 300 && (row.chosen - row.processes / 2).abs() < row.processes / 4, "{row:?}");
        assert!(row.collected > 50 && row.largest == row.chosen / 4 && row.rest_bytes > 0, "{row:?}");
        assert!(row.random > 25 && row.chance_heap_kib_squares > 0, "{row:?}");
    });
}

#[test]
fn item_may_take_longer_than_the_lease() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        let pids = holders(&node, 30, 1_000);
        let mut recorder = Recorder::attach(&node.name);
        let lease = Duration::from_secs(4);
        let terms = SessionOptions { lease, ..SessionOptions::default() };
        recorder.source =
            NodeSource::attach(Access { session_options: terms, ..access(&node.name) }).unwrap();
        let slow = Collect {
            batch: 1,
            pause: Duration::from_millis(200),
            latency_limit: Duration::from_secs(60),
            ..Collect::new(ProcessSelection::Named(pids))
        };
        let begin = Instant::now();
        // The recorder's time limit applies only to the other items.
        recorder.source.request_once(vec![ExplicitItem::new(ExplicitKind::Collect(slow))]);
        let sample = recorder.sample(true, lease).unwrap();
        assert!(begin.elapsed() > lease, "{:?}", begin.elapsed());
        assert_eq!(sample.collections.first().map(|row| row.collected), Some(30), "{:?}", sample.gaps);
        // The other items are read first.
        let vm = recorder.last_span.unwrap();
        assert!(vm.end - vm.begin < lease.as_nanos() as i64 && sample.collections[0].t > vm.end, "{vm:?}");
    });
}

#[test]
fn emulator_without_lock_counting_is_left_unchanged() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        let locks = Locks::new(Duration::from_millis(100));
        let cost = recorder.source.estimate_locks(&locks, PATIENCE).unwrap();
        assert_eq!((cost.refused.as_deref(), cost.locks), (Some("not_lcnt"), 0), "{cost:?}");
        let sample = request(&mut recorder, vec![ExplicitItem::new(ExplicitKind::Locks(locks))]);
        assert!(sample.lock_sessions.is_empty() && sample.locks.is_empty());
        let [gap] = &sample.gaps[..] else { panic!("{:?}", sample.gaps) };
        assert_eq!((gap.source.as_str(), gap.kind), ("vm.locks", TroubleKind::Unsupported), "{gap:?}");
    });
}

#[test]
fn contended_locks_are_reported_with_table_and_owner() {
    on_each_lcnt(|otp: &Otp| {
        let node = otp.start();
        // Eight processes constantly update four counters in one table.
        let expression = "Self = self(), \
             spawn(fun() -> \
                 register(the_counter, self()), \
                 ets:new(contended, [named_table, public]), \
                 Count = fun Count() -> ets:update_counter(contended, erlang:unique_integer() rem 4, 1, {0, 0}), Count() end, \
                 [spawn_link(Count) || _ <- lists:seq(1, 8)], \
                 Self ! up, receive stop -> ok end \
             end), \
             receive up -> ok end";
        evaluate(&mut node.connect(), expression);
        let mut recorder = Recorder::attach(&node.name);
        let locks = Locks::new(Duration::from_secs(1));
        let cost = recorder.source.estimate_locks(&locks, PATIENCE).unwrap();
        assert!(cost.refused.is_none() && cost.locks > 300 && cost.bytes < cost.reserved_bytes, "{cost:?}");
        let few = Locks { top: 5, ..locks };
        let sample = request(&mut recorder, vec![ExplicitItem::new(ExplicitKind::Locks(few))]);
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let [session] = &sample.lock_sessions[..] else { panic!("{:?}", sample.lock_sessions) };
        assert!(session.remark.is_empty() && session.single_locks <= 5 && session.locks > 300, "{session:?}");
        assert!((1_000_000_000..30_000_000_000).contains(&session.length), "{session:?}");
        assert!(session.reductions > Some(10_000) && session.cost_bytes > Some(50_000), "{session:?}");
        assert!(sample.locks.iter().all(|row| row.t == session.t), "{:?}", sample.locks);
        let sum = |rows: &[&LockRow], of: fn(&LockRow) -> i64| rows.iter().map(|row| of(row)).sum::<i64>();
        let table: Vec<_> = sample
            .locks
            .iter()
            .filter(|row| row.class == "db_tab" && row.id.as_deref() == Some("contended"))
            .collect();
        assert!(
            table.iter().all(|row| row.entity.as_deref() == Some("contended of the_counter")),
            "{table:?}"
        );
        assert!(sum(&table, |row| row.tries) > 1_000 && sum(&table, |row| row.waits) > 0, "{table:?}");
        let class: Vec<_> =
            sample.locks.iter().filter(|row| row.class == "db_tab" && row.id.is_none()).collect();
        for of in [|row: &LockRow| row.tries, |row: &LockRow| row.collisions, |row: &LockRow| row.wait_time] {
            assert!(sum(&class, of) >= sum(&table, of), "{class:?} {table:?}");
        }
        for row in &sample.locks {
            assert!(row.histogram.len() <= 30 && row.histogram.iter().sum::<i64>() == row.waits, "{row:?}");
        }
        let all = Locks {
            categories: LOCK_CATEGORIES.map(str::to_owned).to_vec(),
            ..Locks::new(Duration::from_millis(200))
        };
        let sample = request(&mut recorder, vec![ExplicitItem::new(ExplicitKind::Locks(all))]);
        assert!(sample.locks.iter().any(|row| row.class == "proc_main"), "{:?}", sample.gaps);
        assert_eq!(sample.lock_sessions[0].categories, LOCK_CATEGORIES);
    });
}
