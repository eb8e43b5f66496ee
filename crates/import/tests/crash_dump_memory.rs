//! Memory used while reading a large dump. The test is in a separate file, because the kernel counts memory per process.
#![allow(clippy::expect_used, reason = "these are tests")]

mod made_dump;

use beamtune_import::crash_dump::read;
use beamtune_model::{SampleBuilder, SeriesTable, Tick};
use made_dump::SyntheticDump;

/// Returns the peak resident memory so far, in kB.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
}

#[test]
fn memory_does_not_grow_with_the_size_of_a_dump() {
    let Some(before_kb) = peak_kb() else {
        eprintln!("skipped, because this system does not report peak memory");
        return;
    };
    let mut table = SeriesTable::default();
    let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
    let mut builder = SampleBuilder::new(&mut table, tick);
    let dump = read(SyntheticDump::new(200), &mut builder).expect("a dump");
    assert!(dump.bytes >= 200 << 20 && dump.missing.is_none(), "{dump:?}");
    // A hundred thousand processes need 5 MB, and the buffer needs 1 MB.
    let grown_kb = peak_kb().expect("as before") - before_kb;
    assert!(grown_kb < 25_000, "{grown_kb} kB");
}
