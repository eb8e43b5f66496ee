#![no_main]

use beamtune_flags::source::{Format, Template};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| beamtune_fuzz::check(Format::VmArgsTemplate(Template::Eex), bytes));
