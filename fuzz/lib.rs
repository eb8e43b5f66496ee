//! The checks of the fuzz targets, for all parsers of external input.
//!
//! No input may cause a panic. In addition, each function asserts what must hold for any bytes: memory use is proportional
//! to the input, written data are parsed back unchanged, a result does not depend on how the network splits the stream, and
//! printed text contains no terminal control sequences.
//!
//! crates/cli/tests/corpus.rs compiles this file too, and runs the inputs in `corpus/` through [`TARGETS`].

pub mod file;
pub mod flags;
pub mod import;
pub mod load;
pub mod memory;
pub mod mqtt;
pub mod profile;
pub mod sample;
pub mod stacks;
pub mod wire;

use beamtune_flags::source::{Format, Template};

/// The name of a target, and its check of an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. The name is also that of the directory in `corpus/`.
pub const TARGETS: &[Target] = &[
    ("handshake", wire::handshake),
    ("frames", wire::frames),
    ("term", wire::term),
    ("agent", sample::agent),
    ("recording", file::recording),
    ("blobs", file::blobs),
    ("host", sample::host),
    ("memory", memory::memory),
    ("epmd", wire::epmd),
    ("tls_options", wire::tls_options),
    ("vm_args", |bytes| flags::check(Format::VmArgs, bytes)),
    ("eex", |bytes| flags::check(Format::VmArgsTemplate(Template::Eex), bytes)),
    ("overlay", |bytes| flags::check(Format::VmArgsTemplate(Template::Overlay), bytes)),
    ("jinja", |bytes| flags::check(Format::VmArgsTemplate(Template::Jinja), bytes)),
    ("env_file", |bytes| flags::check(Format::EnvFile, bytes)),
    ("dockerfile", |bytes| flags::check(Format::Dockerfile, bytes)),
    ("compose", |bytes| flags::check(Format::Compose, bytes)),
    ("kubernetes", |bytes| flags::check(Format::Kubernetes, bytes)),
    ("systemd_unit", |bytes| flags::check(Format::SystemdUnit, bytes)),
    ("rabbitmq_env", |bytes| flags::check(Format::RabbitmqEnv, bytes)),
    ("ejabberdctl", |bytes| flags::check(Format::EjabberdCtl, bytes)),
    ("shell", |bytes| flags::check(Format::Shell, bytes)),
    ("command", flags::command),
    ("http", load::http),
    ("websocket", load::websocket),
    ("raw_frames", load::raw_frames),
    ("mqtt", mqtt::mqtt),
    ("load_scenario", load::load_scenario),
    ("load_import", load::load_import),
    ("lcnt", import::lcnt),
    ("crash_dump", import::crash_dump),
    ("printed", import::printed),
    ("program", profile::program),
    ("perf_record", profile::perf_record),
    ("vm_stacks", stacks::vm_stacks),
    ("eh_frame", stacks::eh_frame),
    ("maps", stacks::maps),
];

/// Runs a target with an input.
///
/// # Panics
/// If an assertion fails, or if the target does not exist.
pub fn run(target: &str, bytes: &[u8]) {
    match TARGETS.iter().find(|(name, _)| *name == target) {
        Some((_, check)) => check(bytes),
        None => panic!("unknown target {target}"),
    }
}

/// Panics if the text contains a terminal control sequence.
fn assert_harmless(text: &str) {
    let hidden = text.chars().find(|&c| c != '\n' && beamtune_model::text::is_hidden(c));
    assert_eq!(hidden, None, "in {text:?}");
}
