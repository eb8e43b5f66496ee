//! Reads recordings, also while they are being written.

use std::path::Path;

use beamtune_recording::Reader;

/// Counts the samples with data of the VM. Panics if the file cannot be read to its end.
pub fn samples(file: &Path) -> usize {
    let reader = Reader::open(file).expect("the recording opens");
    reader.samples().filter(|sample| sample.as_ref().expect("a readable sample").tick.vm.is_some()).count()
}

/// Counts the samples with data of the VM; 0 while there is no file.
pub fn vm_samples(file: &Path) -> usize {
    Reader::open(file).map_or(0, |reader| {
        reader.samples().filter(|sample| sample.as_ref().is_ok_and(|sample| sample.tick.vm.is_some())).count()
    })
}

/// Lists the gaps of the VM, as `SECONDS s: REASON`.
pub fn gaps(file: &Path) -> Vec<String> {
    let reader = Reader::open(file).expect("the recording opens");
    let gaps = reader.samples().flat_map(|sample| sample.expect("a readable sample").gaps);
    let of_vm = gaps.filter(|gap| gap.source == "vm");
    of_vm.map(|gap| format!("{:.0} s: {}", (gap.end - gap.begin) as f64 / 1e9, gap.reason)).collect()
}
