//! Tests that all written data are read back.

#![allow(clippy::expect_used, clippy::panic, reason = "an unexpected value must end a test")]

#[path = "../common/mod.rs"]
mod common;
mod strategies;

use beamtune_model::{Facts, Group, Kind, Nanos, PeriodBuilder, Sample, SeriesTable, Unit};
use beamtune_recording::{Error, Existing, Reader, Selection, Writer};
use common::{assert_same, recorded, replayed, samples};
use proptest::prelude::*;
use strategies::{any_sample, sequence};

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_samples_round_trips(
        parts in prop::collection::vec(any_sample(), 1..40), in_file in any::<bool>(), at in any::<prop::sample::Index>(),
    ) {
        let (samples, table) = sequence(parts);
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("any.btr");
        let mut writer = if in_file { Writer::create(&path, Existing::Refuse) } else { Writer::in_memory() }.expect("created");
        let peek = at.index(samples.len());
        for (index, sample) in samples.iter().enumerate() {
            writer.append(sample, &table).expect("stored");
            if in_file && index == peek {
                let live = Reader::open(&path).expect("can be read while it is written");
                assert_same(&replayed(&live), &samples[..=index]);
                prop_assert!(!live.is_closed());
            }
        }
        let reader = writer.finish().expect("finished");
        assert_same(&replayed(&reader), &samples);
        prop_assert!(reader.is_closed());

        // Facts of each incarnation equal those accumulated from all samples.
        for life in reader.recorded_incarnations().expect("readable") {
            let mut facts = Facts::default();
            for sample in samples.iter().filter(|sample| sample.tick.incarnation == life.id) {
                sample.facts.iter().for_each(|(key, value)| facts.set(key, value.as_str()));
            }
            prop_assert_eq!(reader.facts(life.id).expect("readable"), facts);
            let ticks = samples.iter().filter(|sample| sample.tick.incarnation == life.id).count();
            prop_assert_eq!(life.ticks as usize, ticks);
        }
    }

    #[test]
    fn a_period_from_chunks_equals_one_from_samples(
        parts in prop::collection::vec(any_sample(), 1..40), from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(), all in any::<bool>(),
    ) {
        let (samples, table) = sequence(parts);
        let mut writer = Writer::in_memory().expect("created");
        samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
        let reader = writer.finish().expect("finished");

        let (from, to) = (samples[from.index(samples.len())].tick.t, samples[to.index(samples.len())].tick.t);
        let (from, to) = if all { (Nanos::MIN, Nanos::MAX) } else { (from.min(to), from.max(to)) };
        for life in reader.recorded_incarnations().expect("readable") {
            let selection = Selection { incarnation: Some(life.id), from: Some(from), to: Some(to) };
            let period = reader.period(&selection).expect("readable");

            let mut expect = PeriodBuilder::default();
            // Earlier gaps that extend into the period also explain missing data.
            let (begin, end) = (from.max(life.begin), to.min(life.end));
            let earlier = |s: &&Sample| s.tick.incarnation == life.id && s.tick.t < begin && s.tick.t <= end;
            let gaps = samples.iter().filter(earlier).flat_map(|s| &s.gaps);
            gaps.filter(|gap| gap.end >= begin).for_each(|gap| expect.gap(gap.clone()));
            for sample in samples.iter().filter(|s| s.tick.incarnation == life.id && (from..=to).contains(&s.tick.t)) {
                expect.sample(sample, &table);
            }
            let expect = expect.finish();
            prop_assert_eq!((period.begin, period.end), (expect.begin, expect.end));
            prop_assert_eq!(
                (period.ticks, period.vm_ticks, period.host_ticks, period.max_late),
                (expect.ticks, expect.vm_ticks, expect.host_ticks, expect.max_late)
            );
            let stats = |period: &beamtune_model::Period| {
                let mut stats: Vec<_> =
                    period.series().map(|(series, stat)| (format!("{series:?}"), format!("{stat:?}"))).collect();
                stats.sort_unstable();
                stats
            };
            prop_assert_eq!(stats(&period), stats(&expect));
            prop_assert_eq!(&period.processes, &expect.processes);
            prop_assert_eq!(&period.tables, &expect.tables);
            prop_assert_eq!(&period.ports, &expect.ports);
            prop_assert_eq!(&period.spawns, &expect.spawns);
            prop_assert_eq!(&period.exits, &expect.exits);
            prop_assert_eq!(&period.wait_samples, &expect.wait_samples);
            prop_assert_eq!(&period.messages, &expect.messages);
            prop_assert_eq!(&period.carriers, &expect.carriers);
            prop_assert_eq!(&period.allocations, &expect.allocations);
            prop_assert_eq!(&period.code, &expect.code);
            prop_assert_eq!(&period.holders, &expect.holders);
            prop_assert_eq!(&period.collections, &expect.collections);
            prop_assert_eq!(&period.collected, &expect.collected);
            prop_assert_eq!(&period.lock_session, &expect.lock_session);
            prop_assert_eq!(&period.locks, &expect.locks);
            prop_assert_eq!(&period.lock_waits, &expect.lock_waits);
            prop_assert_eq!(&period.profile, &expect.profile);
            prop_assert_eq!(&period.events, &expect.events);
            prop_assert_eq!(&period.gaps, &expect.gaps);
        }
    }
}

#[test]
fn a_period_covers_the_longest_incarnation_unless_another_is_requested() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    recorded(&path, 700);
    let reader = Reader::open(&path).expect("opened");
    let lives = reader.recorded_incarnations().expect("readable");
    assert_eq!(lives.iter().map(|life| (life.id, life.ticks)).collect::<Vec<_>>(), [(0, 500), (1, 200)]);

    let period = reader.period(&Selection::default()).expect("readable");
    assert_eq!(
        (period.ticks, period.incarnation_count, period.facts.get("otp_release")),
        (500, 2, Some("25"))
    );
    assert_eq!(period.incarnation.as_ref().map(|life| life.boot.as_str()), Some("boot 0"));
    let selection = Selection { incarnation: Some(1), ..Selection::default() };
    let period = reader.period(&selection).expect("readable");
    assert_eq!((period.ticks, period.facts.get("otp_release")), (200, Some("27")));
    assert_eq!(period.incarnation.as_ref().map(|life| life.boot.as_str()), Some("boot 1"));

    let selection = Selection { incarnation: Some(9), ..Selection::default() };
    let error = reader.period(&selection).expect_err("no such incarnation").to_string();
    assert_eq!(error, "the recording has no incarnation 9, only [0, 1]");
}

#[test]
fn samples_out_of_order_are_rejected_and_not_stored() {
    let (samples, table) = samples(3);
    let mut writer = Writer::in_memory().expect("created");
    writer.append(&samples[1], &table).expect("stored");
    assert!(
        matches!(writer.append(&samples[1], &table), Err(Error::OutOfOrder { .. })),
        "the same tick twice"
    );
    assert!(matches!(writer.append(&samples[0], &table), Err(Error::OutOfOrder { .. })), "backwards");
    assert!(matches!(writer.append(&samples[2], &SeriesTable::default()), Err(Error::ForeignSeries)));
    writer.append(&samples[2], &table).expect("stored");
    let reader = writer.finish().expect("finished");
    assert_eq!(replayed(&reader), samples[1..]);
}

#[test]
fn the_end_of_a_gap_is_moved_in_its_first_sample() {
    let (mut samples, table) = samples(3);
    samples.iter_mut().for_each(|sample| sample.gaps.clear());
    samples[0].gaps.push(common::gap(0, 10, "vm"));
    samples[1].gaps.push(common::gap(5, 10, "host"));
    let mut writer = Writer::in_memory().expect("created");
    writer.append(&samples[0], &table).expect("stored");
    writer.prolong_gap("vm", 0, 20);
    writer.append(&samples[1], &table).expect("stored");
    writer.prolong_gap("vm", 0, 30);
    writer.prolong_gap("vm", 0, 40);
    let reader = writer.finish().expect("finished");
    samples[0].gaps[0].end = 40;
    assert_eq!(replayed(&reader), samples[..2]);
}

#[test]
fn thousands_of_short_lived_series_round_trip() {
    let mut table = SeriesTable::default();
    let mut writer = Writer::in_memory().expect("created");
    let mut samples = Vec::new();
    for second in 0..250 {
        let mut sample = Sample::new(common::tick(second, 0));
        for thread in 0..150 {
            let entity = format!("other/x/{}", second * 150 + thread);
            let id = table.intern(Group::HostThread, &entity, "cpu", Unit::Nanoseconds, Kind::Counter);
            sample.readings.push((id, thread));
        }
        writer.append(&sample, &table).expect("stored");
        samples.push(sample);
    }
    assert_same(&replayed(&writer.finish().expect("finished")), &samples);
}

#[test]
fn a_recording_without_samples_is_empty() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("empty.btr");
    let mut writer = Writer::create(&path, Existing::Refuse).expect("created");
    writer.set_wall_at_zero(-5).expect("stored");
    let reader = writer.finish().expect("finished");
    assert_eq!(replayed(&reader), []);
    assert_eq!(reader.recorded_incarnations().expect("readable"), []);
    assert_eq!(reader.period(&Selection::default()).expect("readable").ticks, 0);
    assert_eq!(reader.wall_at_zero(), Some(-5));
    assert_eq!(reader.written_by().as_deref(), Some(concat!("beamtune ", env!("CARGO_PKG_VERSION"))));
}
