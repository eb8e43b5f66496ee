#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| beamtune_fuzz::run("maps", bytes));
