//! The formats that property tests use.

use beamtune_flags::source::{Format, Template};

/// All formats.
pub const FORMATS: [Format; 13] = [
    Format::VmArgs,
    Format::VmArgsTemplate(Template::Eex),
    Format::VmArgsTemplate(Template::Erb),
    Format::VmArgsTemplate(Template::Overlay),
    Format::VmArgsTemplate(Template::Jinja),
    Format::EnvFile,
    Format::Dockerfile,
    Format::Compose,
    Format::Kubernetes,
    Format::SystemdUnit,
    Format::RabbitmqEnv,
    Format::EjabberdCtl,
    Format::Shell,
];
