//! What reading a large dump takes of memory. It is alone in its file, since the kernel counts for a whole process.
#![allow(clippy::expect_used, reason = "these are tests")]

mod made_dump;

use beamtune_import::crash_dump::read;
use beamtune_model::{SampleBuilder, SeriesTable, Tick};
use made_dump::Made;

/// The most that was resident so far, in kB.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
}

#[test]
fn memory_does_not_grow_with_the_size_of_a_dump() {
    let Some(before_kb) = peak_kb() else {
        eprintln!("skipped, because this system does not tell how much memory was resident");
        return;
    };
    let mut table = SeriesTable::default();
    let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
    let mut builder = SampleBuilder::new(&mut table, tick);
    let told = read(Made::new(200), &mut builder).expect("a dump");
    assert!(told.bytes >= 200 << 20 && told.missing.is_none(), "{told:?}");
    // A hundred thousand processes are 5 MB, and a buffer is 1 MB.
    let grown_kb = peak_kb().expect("as before") - before_kb;
    assert!(grown_kb < 25_000, "{grown_kb} kB");
}
