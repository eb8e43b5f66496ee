//! Items that are read only when somebody asks for them by name, from real nodes of each release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod common;

use std::time::{Duration, Instant};

use beamtune_attach::explicit::{Explicit, Walk, What};
use beamtune_model::{AllocationRow, CarrierRow, Group, Sample};
use common::recorder::Recorder;
use common::{Otp, PATIENCE, TestNode, evaluate, on_each_release};

/// Processes that have had so many binaries of 400 bytes, and keep some tenths of them.
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

fn asked(recorder: &mut Recorder, items: Vec<Explicit>) -> Sample {
    recorder.source.ask_once(items);
    recorder.sample(true, PATIENCE).unwrap()
}

fn bytes<'a>(rows: impl IntoIterator<Item = &'a CarrierRow>) -> i64 {
    rows.into_iter().map(|row| row.bytes).sum()
}

/// What the VM counts of all its carriers, in bytes.
fn counted(recorder: &Recorder, sample: &Sample) -> i64 {
    let is_size =
        |name: &str| ["mbcs_carriers_size", "pool_carriers_size", "sbcs_carriers_size"].contains(&name);
    let readings = sample.readings.iter().map(|(id, value)| (recorder.table.get(*id).unwrap(), value));
    readings
        .filter(|(series, _)| series.group == Group::Allocator && is_size(&series.name))
        .map(|(_, value)| value)
        .sum()
}

#[test]
fn carriers_are_told_once_and_are_all_that_the_vm_counts() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 40, 3_000, 3);
        let mut recorder = Recorder::attach(&node.name);
        let plain = recorder.sample(true, PATIENCE).unwrap();
        assert!(plain.carriers.is_empty(), "nobody has asked");
        let sample = asked(&mut recorder, vec![Explicit::new(What::Carriers(Walk::default()))]);
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let (told, counted) = (bytes(&sample.carriers), counted(&recorder, &sample));
        assert!((told - counted).abs() < counted / 5, "{told} of {counted} bytes");
        let walked: Vec<_> = sample.carriers.iter().filter(|row| row.skipped.is_none()).collect();
        assert!(bytes(walked.iter().copied()) > counted / 4, "{walked:?}");
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
        assert!(again.carriers.is_empty(), "it was asked once");
    });
}

#[test]
fn what_a_walk_costs_is_known_before() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 20, 6_000, 10);
        let mut recorder = Recorder::attach(&node.name);
        let walk = Walk { pools: true, ..Walk::default() };
        let cost = recorder.source.estimate_walk(&walk, PATIENCE).unwrap();
        println!("{cost:?}");
        assert!(cost.blocks > 30_000 && cost.bytes > 10_000_000 && cost.instances > 10, "{cost:?}");
        assert!(
            cost.takes > Duration::ZERO && cost.holds > Duration::ZERO && cost.holds <= cost.takes,
            "{cost:?}"
        );
        assert!(cost.skipped.is_empty() && cost.measured_by.is_some(), "{cost:?}");
        // The next sample is answered as any other.
        let some = Walk { allocators: vec!["binary_alloc".to_owned()], pools: true };
        let sample = asked(&mut recorder, vec![Explicit::new(What::Carriers(some.clone()))]);
        assert!(sample.carriers.iter().all(|row| row.allocator == "binary_alloc"), "{:?}", sample.carriers);
        let of_some = recorder.source.estimate_walk(&some, PATIENCE).unwrap();
        assert!(of_some.bytes < cost.bytes && of_some.bytes > 0, "{of_some:?} of {cost:?}");
    });
}

#[test]
fn a_walk_ends_when_its_time_is_over_and_says_what_it_left_out() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 100, 4_000, 10);
        let mut recorder = Recorder::attach(&node.name);
        let begin = Instant::now();
        let walk = Walk { pools: true, ..Walk::default() };
        let short = Explicit { what: What::Carriers(walk), limit: Duration::from_millis(50) };
        let sample = asked(&mut recorder, vec![short]);
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        let skipped: Vec<_> = sample.carriers.iter().filter(|row| row.skipped.is_some()).collect();
        assert!(skipped.iter().any(|row| row.skipped.as_deref() == Some("limit")), "{:?}", sample.carriers);
        let (told, counted) = (bytes(&sample.carriers), counted(&recorder, &sample));
        assert!((told - counted).abs() < counted / 5, "{told} of {counted} bytes");
    });
}

#[test]
fn who_has_allocated_binaries_is_told_of_each_release() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        fragment(&node, 10, 3_000, 3);
        let mut recorder = Recorder::attach(&node.name);

        let walk = Walk { pools: true, ..Walk::default() };
        let sample = asked(&mut recorder, vec![Explicit::new(What::Allocations { walk, top: 5 })]);
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let rows: Vec<_> = sample.allocations.iter().filter(|row| row.skipped.is_none()).collect();
        assert!((1..=5).contains(&rows.len()), "{:?}", sample.allocations);
        // OTP 23 has another name for what a built-in function makes.
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
fn code_is_told_by_application_of_each_release() {
    on_each_release(|otp: &Otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        let sample = asked(&mut recorder, vec![Explicit::new(What::CodeMemory { top: 50 })]);
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
