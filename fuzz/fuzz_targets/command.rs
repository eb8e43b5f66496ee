#![no_main]

use beamtune_flags::source::Format;

/// What begins a command in each format that has them; the bytes are the rest of it.
const BEGINS: &[(Format, &str)] = &[
    (Format::Shell, "exec erl -x "),
    (Format::Shell, "elixir --erl \""),
    (Format::Dockerfile, "CMD erl -x "),
    (Format::Dockerfile, "CMD [\"erl\", \""),
    (Format::SystemdUnit, "ExecStart=erl -x "),
    (Format::SystemdUnit, "ExecStart=/bin/sh -c 'erl -x "),
    (Format::Compose, "services:\n  a:\n    command: erl -x "),
    (Format::Kubernetes, "args: [erl, -x, "),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for (format, begin) in BEGINS {
        beamtune_fuzz::check(*format, &[begin.as_bytes(), bytes].concat());
    }
});
