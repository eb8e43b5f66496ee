//! The command line of a running node.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_flags::{emulator_words, init_words};
use beamtune_model::facts;
use beamtune_node::record::RecordOptions;
use beamtune_node::target::LiveTarget;
use beamtune_recording::Selection;

use crate::access::AccessArgs;
use crate::recorder::record_node;

/// Length of the recording of a node on another host: a single sample suffices.
const RECORDING_LENGTH: Duration = Duration::from_secs(1);

/// The command line of a running node, without secrets.
pub struct NodeArgs {
    /// The node's name.
    pub label: String,
    /// The emulator's arguments: those before the first `--`, without the program.
    pub args: Vec<String>,
    /// The arguments of init; secrets are replaced by `*`.
    pub init: Vec<String>,
    /// Environment variables with flags.
    pub environment: Vec<(String, String)>,
    /// The OTP release.
    pub release: u32,
}

/// True if a text can name a node: a process id, a node name or `host:port`.
pub fn looks_like_a_node(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let is_host = |host: &str| !host.is_empty() && !host.contains('/');
    if text.parse::<u32>().is_ok() || is_name(text) {
        return true;
    }
    if let Some((name, host)) = text.split_once('@') {
        return is_name(name) && is_host(host);
    }
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
}

/// Reads the command line of a node, from its process if it runs on this host, otherwise from the node itself.
pub fn node_args(text: &str, access: &AccessArgs) -> Result<NodeArgs> {
    let live = LiveTarget::find(Some(text), &access.options())?;
    if let Some(vm) = &live.vm
        && let Some(release) = vm.installation.otp_release
    {
        let shown = vm.command_line.redacted();
        let end = shown.iter().position(|word| word == "--").map_or(shown.len(), |end| end + 1);
        return Ok(NodeArgs {
            label: live.label.clone(),
            args: emulator_words(&shown).to_vec(),
            init: shown[end..].to_vec(),
            environment: vm.environment.shown().into_iter().collect(),
            release,
        });
    }
    let label = live.label.clone();
    let options = RecordOptions::of(RECORDING_LENGTH, Some(RECORDING_LENGTH));
    let (reader, _) = record_node(&live, &options)?;
    let period = reader.period(&Selection::default())?;
    let args: Vec<String> = period
        .facts
        .list(facts::EMU_ARGS)
        .with_context(|| format!("{label} does not report its arguments"))?;
    let Some(release) = period.facts.otp_release() else { bail!("{label} does not report its OTP release") };
    let environment = period.facts.object(facts::ENVIRONMENT).unwrap_or_default();
    let args = emulator_words(&args).to_vec();
    let init = init_words(&period.facts.list(facts::INIT_ARGS).unwrap_or_default());
    Ok(NodeArgs { label, args, init, environment: environment.into_iter().collect(), release })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_distinguished_from_paths() {
        for node in ["rabbit", "rabbit@web1", "a-b@127.0.0.1", "4711", "web1:9100", "_x"] {
            assert!(looks_like_a_node(node), "{node}");
        }
        for path in
            ["vm.args", "rel/vm.args", "./x", "/etc/x", "a b", "", "@host", "x@", "x@a/b", "host:port"]
        {
            assert!(!looks_like_a_node(path), "{path}");
        }
    }
}
