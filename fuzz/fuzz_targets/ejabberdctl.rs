#![no_main]

use beamtune_flags::source::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| beamtune_fuzz::check(Format::EjabberdCtl, bytes));
