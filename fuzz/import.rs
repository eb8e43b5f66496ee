//! Copied output of the VM's own tools.

use beamtune_import::{Unread, crash_dump as dump, read};
use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{LockRow, LockSession, PeriodBuilder, Sample, SampleBuilder, SeriesTable, Span, Tick};

use super::assert_harmless;
use super::sample::judge;

/// Tables of `lcnt`, or parts of them. As [`printed`], with another dictionary.
pub fn lcnt(bytes: &[u8]) {
    printed(bytes);
}

/// A crash dump. No number is negative, the sample has a limited size, and its diagnosis can be rendered; the input follows the first
/// line of a dump.
pub fn crash_dump(bytes: &[u8]) {
    let input = [dump::SIGNATURE, bytes].concat();
    let of = |input: &[u8]| -> Result<(dump::DumpSummary, Sample, SeriesTable), String> {
        let mut table = SeriesTable::default();
        let moment = Some(Span { begin: 0, end: 0 });
        let mut out =
            SampleBuilder::new(&mut table, Tick { t: 0, incarnation: 0, vm: moment, host: None, late: 0 });
        let read_dump = dump::read(input, &mut out).map_err(|error| error.to_string())?;
        let sample = out.sample;
        Ok((read_dump, sample, table))
    };
    if let Err(error) = of(bytes) {
        assert_harmless(&error);
    }
    // A first line without an end may be truncated, and is refused.
    if let (Err(error), false) = (of(&input), bytes.contains(&b'\n')) {
        return assert_harmless(&error);
    }
    let (read_dump, sample, table) = of(&input).unwrap_or_else(|error| panic!("{error}"));
    let (again, same, _) = of(&input).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((&read_dump, &sample), (&again, &same), "reading the same dump twice gives the same result");
    assert!(read_dump.bytes <= input.len() as u64, "{read_dump:?}");
    assert!(sample.readings.iter().all(|(_, value)| *value >= 0), "{sample:?}");
    assert!(sample.processes.len() <= 5_000 && sample.tables.len() <= 100 && sample.ports.len() <= 100);
    for row in &sample.processes {
        assert!(row.memory_bytes >= 0 && row.queue >= 0 && row.reductions >= 0, "{row:?}");
    }
    for row in &sample.spawns {
        assert!(0 < row.count && row.count <= row.sample_size, "{row:?}");
    }
    let mut builder = PeriodBuilder::default();
    builder.sample(&sample, &table);
    judge(&builder.finish());
}

/// Output of any tool. The numbers are valid counts, rules can judge the resulting recording, and every unread part has a position.
pub fn printed(bytes: &[u8]) {
    let reading = match read(bytes) {
        Ok(reading) => reading,
        Err(error) => return assert_harmless(&error.to_string()),
    };
    assert_eq!(Ok(&reading), read(bytes).as_ref(), "reading the same text twice gives the same result");
    assert_placed(&reading.unread, bytes);
    if let Some((session, rows)) = &reading.locks {
        assert_counted(session, rows, bytes);
    }
    let mut table = SeriesTable::default();
    let samples = reading.samples("a fuzzer", &mut table);
    let mut facts = beamtune_model::Facts::default();
    samples.iter().flat_map(|sample| &sample.facts).for_each(|(key, value)| facts.set(key, value.as_str()));
    let mut builder = PeriodBuilder::new(None, facts, 1);
    let mut before = None;
    for sample in &samples {
        assert!(before < Some(sample.tick.t), "samples are in order of time");
        before = Some(sample.tick.t);
        assert!(sample.readings.iter().all(|(_, value)| *value >= 0), "{:?}", sample.readings);
        builder.sample(sample, &table);
    }
    judge(&builder.finish());
}

/// The results of lock counting are valid counts.
fn assert_counted(session: &LockSession, rows: &[LockRow], bytes: &[u8]) {
    assert!(!rows.is_empty(), "{session:?}");
    assert!(session.length >= 0 && session.locks >= 0 && session.single_locks >= 0, "{session:?}");
    for row in rows {
        assert!(row.locks >= 0 && row.tries >= 0 && row.collisions >= 0 && row.wait_time >= 0, "{row:?}");
        assert!(row.histogram.len() <= WAIT_BINS && row.histogram.iter().all(|count| *count >= 0), "{row:?}");
        assert!(row.line.is_none() || row.file.is_some(), "{row:?}");
        assert!(row.class.len() <= bytes.len(), "{row:?}");
    }
}

fn assert_placed(unread: &[Unread], bytes: &[u8]) {
    let lines = String::from_utf8_lossy(bytes).lines().count().max(1);
    for unread in unread {
        assert!((1..=lines).contains(&unread.line) && unread.column > 0, "{unread:?}");
        assert!(!unread.reason.is_empty() && unread.text.len() <= 4_096, "{unread:?}");
    }
}
