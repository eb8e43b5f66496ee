//! The flags that a running node was started with.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_flags::{emulator_words, init_words};
use beamtune_model::facts;
use beamtune_recording::Selection;

use crate::access::AccessArgs;
use crate::subject::Live;
use crate::take::{Wish, take};

/// A node on another host is looked at for no longer than it takes to ask it.
const LOOK: Duration = Duration::from_secs(1);

/// A running node.
pub struct NodeArgs {
    /// What it is called.
    pub label: String,
    /// The emulator's arguments: all before the first `--`, without the program.
    pub args: Vec<String>,
    /// Those of init, as far as they are no secrets: `*` stands for what is.
    pub init: Vec<String>,
    /// The variables that change flags.
    pub environment: Vec<(String, String)>,
    /// Its OTP release.
    pub release: u32,
}

/// Whether a text can be meant as a node: a process id, a node name, `host:port`.
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

/// Asks a node, or looks at its process where it runs on this host. Secrets are left out.
pub fn node_args(text: &str, access: &AccessArgs) -> Result<NodeArgs> {
    let live = Live::find(Some(text), access)?;
    if let Some(vm) = &live.vm
        && let Some(release) = vm.installation.otp_release
    {
        let shown = vm.command_line.shown();
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
    let wish = Wish::of(LOOK, Some(LOOK));
    let (reader, _) = take(live, &wish)?;
    let period = reader.period(&Selection::default())?;
    let args: Vec<String> =
        period.facts.list(facts::EMU_ARGS).with_context(|| format!("{label} does not tell its arguments"))?;
    let Some(release) = period.facts.otp_release() else { bail!("{label} does not tell its OTP release") };
    let environment = period.facts.object(facts::ENVIRONMENT).unwrap_or_default();
    let args = emulator_words(&args).to_vec();
    let init = init_words(&period.facts.list(facts::INIT_ARGS).unwrap_or_default());
    Ok(NodeArgs { label, args, init, environment: environment.into_iter().collect(), release })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_from_a_path() {
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
