//! What the VM's own tools have printed, and somebody has copied.

use beamtune_import::{Unread, crash_dump as dump, read};
use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{LockRow, LockSession, PeriodBuilder, Sample, SampleBuilder, SeriesTable, Span, Tick};

use super::assert_harmless;
use super::sample::judge;

/// Tables of `lcnt`, or what is left of them: text of any tool, with other words to begin with.
pub fn lcnt(bytes: &[u8]) {
    printed(bytes);
}

/// A crash dump. No number is below nothing, what is held is in bounds, and what follows from it can be shown; what is behind the first
/// line may be anything.
pub fn crash_dump(bytes: &[u8]) {
    let input = [dump::BEGINNING, bytes].concat();
    let of = |input: &[u8]| -> Result<(dump::Told, Sample, SeriesTable), String> {
        let mut table = SeriesTable::default();
        let moment = Some(Span { begin: 0, end: 0 });
        let mut out =
            SampleBuilder::new(&mut table, Tick { t: 0, incarnation: 0, vm: moment, host: None, late: 0 });
        let told = dump::read(input, &mut out).map_err(|error| error.to_string())?;
        let sample = out.sample;
        Ok((told, sample, table))
    };
    if let Err(error) = of(bytes) {
        assert_harmless(&error);
    }
    // A first line that does not end may have been cut, and is none.
    if let (Err(error), false) = (of(&input), bytes.contains(&b'\n')) {
        return assert_harmless(&error);
    }
    let (told, sample, table) = of(&input).unwrap_or_else(|error| panic!("{error}"));
    let (again, same, _) = of(&input).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((&told, &sample), (&again, &same), "the same dump is the same");
    assert!(told.bytes <= input.len() as u64, "{told:?}");
    assert!(sample.readings.iter().all(|(_, value)| *value >= 0), "{sample:?}");
    assert!(sample.processes.len() <= 5_000 && sample.tables.len() <= 100 && sample.ports.len() <= 100);
    for row in &sample.processes {
        assert!(row.memory_bytes >= 0 && row.queue >= 0 && row.reductions >= 0, "{row:?}");
    }
    for row in &sample.spawns {
        assert!(0 < row.count && row.count <= row.of, "{row:?}");
    }
    let mut builder = PeriodBuilder::default();
    builder.sample(&sample, &table);
    judge(&builder.finish());
}

/// Text of any tool. What is read has the form of counts and makes a recording that rules can judge, whatever is in it, and what is not read has its place.
pub fn printed(bytes: &[u8]) {
    let reading = match read(bytes) {
        Ok(reading) => reading,
        Err(error) => return assert_harmless(&error.to_string()),
    };
    assert_eq!(Ok(&reading), read(bytes).as_ref(), "the same text is the same");
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
        assert!(before < Some(sample.tick.t), "samples follow each other");
        before = Some(sample.tick.t);
        assert!(sample.readings.iter().all(|(_, value)| *value >= 0), "{:?}", sample.readings);
        builder.sample(sample, &table);
    }
    judge(&builder.finish());
}

/// What lock counting tells has the form of counts.
fn assert_counted(session: &LockSession, rows: &[LockRow], bytes: &[u8]) {
    assert!(!rows.is_empty(), "{session:?}");
    assert!(session.length >= 0 && session.locks >= 0 && session.told >= 0, "{session:?}");
    for row in rows {
        assert!(row.locks >= 0 && row.tries >= 0 && row.collisions >= 0 && row.waited >= 0, "{row:?}");
        assert!(row.histogram.len() <= WAIT_BINS && row.histogram.iter().all(|count| *count >= 0), "{row:?}");
        assert!(row.line.is_none() || row.file.is_some(), "{row:?}");
        assert!(row.class.len() <= bytes.len(), "{row:?}");
    }
}

fn assert_placed(unread: &[Unread], bytes: &[u8]) {
    let lines = String::from_utf8_lossy(bytes).lines().count().max(1);
    for unread in unread {
        assert!((1..=lines).contains(&unread.line) && unread.column > 0, "{unread:?}");
        assert!(!unread.why.is_empty() && unread.text.len() <= 4_096, "{unread:?}");
    }
}
