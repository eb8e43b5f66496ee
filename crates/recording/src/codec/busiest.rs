//! The busiest processes of each tick, stored like a group of series, plus a dictionary of pids.

use std::collections::HashMap;

use beamtune_model::{Nanos, ProcessTick};

use super::Garbled;
use super::bits::{Bytes, put_uvarint};
use super::chunk::{put_times, times};
use super::column::{Column, Encoder};

/// Maximum number of processes in a chunk; the writer starts a new chunk long before. A decoded process takes a hundred bytes of
/// memory, even if the file needs nearly nothing because all processes are equal.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;

/// The processes of one tick.
pub(crate) type Tick<'a> = (Nanos, &'a [ProcessTick]);

/// Number of columns, the count per tick excluded: pid, reductions, queue, runnable.
const COLUMNS: usize = 4;

/// Encodes a chunk of ticks, each with at least one process.
pub(crate) fn encode(encoder: &mut Encoder, ticks: &[Tick<'_>]) -> Vec<u8> {
    let mut dictionary: HashMap<&str, i64> = HashMap::new();
    let mut pids: Vec<&str> = Vec::new();
    let mut columns: [Vec<i64>; COLUMNS] = Default::default();
    for process in ticks.iter().flat_map(|(_, list)| *list) {
        let pid = *dictionary.entry(&process.pid).or_insert_with(|| {
            pids.push(&process.pid);
            pids.len() as i64 - 1
        });
        let runnable = process.runnable.map_or(2, i64::from);
        for (column, value) in columns.iter_mut().zip([pid, process.reductions, process.queue, runnable]) {
            column.push(value);
        }
    }

    let mut out = Vec::new();
    put_times(&mut out, &ticks.iter().map(|(t, _)| *t).collect::<Vec<_>>());
    put_uvarint(&mut out, pids.len() as u64);
    for pid in pids {
        put_uvarint(&mut out, pid.len() as u64);
        out.extend_from_slice(pid.as_bytes());
    }
    let counts: Vec<i64> = ticks.iter().map(|(_, list)| list.len() as i64).collect();
    let mut bytes = Vec::new();
    for column in std::iter::once(&counts).chain(&columns) {
        bytes.clear();
        // Complete columns do not need rows.
        encoder.encode(column.len(), &[], column, &mut bytes);
        put_uvarint(&mut out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
    out
}

/// Decodes the output of [`encode`].
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<(Nanos, Vec<ProcessTick>)>, Garbled> {
    let mut bytes = Bytes(bytes);
    let times = times(&mut bytes)?;
    let mut pids: Vec<&str> = Vec::new();
    for _ in 0..bytes.count()? {
        let size = bytes.count()?;
        pids.push(std::str::from_utf8(bytes.take(size)?).map_err(|_| Garbled("a pid is not UTF-8"))?);
    }
    let mut column = |count: usize| -> Result<Vec<i64>, Garbled> {
        let size = bytes.count()?;
        let mut column = Column::default();
        column.decode(bytes.take(size)?, count)?;
        if column.values.len() != count {
            return Err(Garbled("a column of processes is incomplete"));
        }
        Ok(column.values)
    };
    let counts = column(times.len())?;
    let total = counts
        .iter()
        .try_fold(0_usize, |sum, &count| sum.checked_add(usize::try_from(count).ok()?))
        .filter(|&total| total <= MAX_ENTRIES)
        .ok_or(Garbled("too many processes"))?;
    let columns = [column(total)?, column(total)?, column(total)?, column(total)?];

    let mut entry = 0;
    let mut ticks = Vec::with_capacity(times.len());
    for (&t, &count) in times.iter().zip(&counts) {
        let mut list = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let [pid, reductions, queue, runnable] = [0, 1, 2, 3].map(|column: usize| columns[column][entry]);
            let pid = usize::try_from(pid).ok().and_then(|pid| pids.get(pid));
            list.push(ProcessTick {
                pid: (*pid.ok_or(Garbled("a pid is not in the dictionary"))?).into(),
                reductions,
                queue,
                runnable: match runnable {
                    0 => Some(false),
                    1 => Some(true),
                    _ => None,
                },
            });
            entry += 1;
        }
        ticks.push((t, list));
    }
    Ok(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn process() -> impl Strategy<Value = ProcessTick> {
        (0..40_u32, any::<i64>(), 0..100_i64, any::<Option<bool>>()).prop_map(
            |(pid, reductions, queue, runnable)| ProcessTick {
                pid: format!("<0.{pid}.0>").into(),
                reductions,
                queue,
                runnable,
            },
        )
    }

    proptest! {
        #[test]
        fn processes_round_trip(
            ticks in prop::collection::vec((any::<i64>(), prop::collection::vec(process(), 1..20)), 1..20),
        ) {
            let borrowed: Vec<Tick<'_>> = ticks.iter().map(|(t, list)| (*t, &list[..])).collect();
            let bytes = encode(&mut Encoder::default(), &borrowed);
            prop_assert_eq!(decode(&bytes), Ok(ticks));
        }

        #[test]
        fn garbled_processes_never_panic(
            ticks in prop::collection::vec((any::<i64>(), prop::collection::vec(process(), 1..5)), 1..5),
            at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
        ) {
            let borrowed: Vec<Tick<'_>> = ticks.iter().map(|(t, list)| (*t, &list[..])).collect();
            let mut bytes = encode(&mut Encoder::default(), &borrowed);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            let _ = decode(&bytes);
        }
    }
}
