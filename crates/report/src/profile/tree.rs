//! The call tree: callers and the functions that they call, with the CPU time of each.

use std::collections::BTreeMap;

use beamtune_model::{Nanos, Profile};

use super::shown_frame;
use crate::text::{self, Style};

/// Calls with less are left out.
const MIN_SHARE: f64 = 0.02;
/// Rows of the tree.
const MAX_ROWS: usize = 30;
/// Frames below each other that are shown; chains without branches take one row each. It limits the depth of recursive functions, too.
const MAX_DEPTH: usize = 24;

/// A function, called by the one above it, with its time in each of some profiles.
#[derive(Debug)]
pub(super) struct Node<const PROFILES: usize> {
    pub(super) times: [Nanos; PROFILES],
    /// By the shown name, so that lines of one function are one node.
    pub(super) calls: BTreeMap<String, Node<PROFILES>>,
}

impl<const PROFILES: usize> Default for Node<PROFILES> {
    fn default() -> Self {
        Node { times: [0; PROFILES], calls: BTreeMap::new() }
    }
}

impl<const PROFILES: usize> Node<PROFILES> {
    /// The call trees of the profiles as one tree, [`MAX_DEPTH`] calls deep.
    pub(super) fn root(profiles: [&Profile; PROFILES]) -> Self {
        let mut root = Self::default();
        for (index, profile) in profiles.into_iter().enumerate() {
            for sample in &profile.samples {
                root.times[index] += sample.weight;
                let mut names: Vec<String> = profile.frames_of(sample.stack).map(shown_frame).collect();
                // Recursion is one node.
                names.dedup();
                let mut node = &mut root;
                for name in names.into_iter().take(MAX_DEPTH) {
                    node = node.calls.entry(name).or_default();
                    node.times[index] += sample.weight;
                }
            }
        }
        root
    }
}

/// The tree on a terminal.
pub(super) fn render(profile: &Profile, style: Style) -> String {
    let root = Node::root([profile]);
    let [total] = root.times;
    let mut rows = Vec::new();
    collect(&root, total.max(1) as f64, 0, &mut rows);
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    let mut out =
        format!("{}\n", style.dim(&format!("  total  call tree, {:.0} % or more", 100.0 * MIN_SHARE)));
    for (depth, share, name) in rows.iter().take(MAX_ROWS) {
        let indent = "  ".repeat(*depth);
        let line = format!("{:>5.1} %  {}  {indent}{name}", 100.0 * share, text::bar(*share));
        out.push_str(&cut(&line, style.width));
        out.push('\n');
    }
    if left_out > 0 {
        out.push_str(&format!("         and {left_out} more calls\n"));
    }
    out
}

/// The calls of a node, largest first, each followed by its own.
fn collect(node: &Node<1>, total: f64, depth: usize, rows: &mut Vec<(usize, f64, String)>) {
    let mut calls: Vec<(&String, &Node<1>)> = node.calls.iter().collect();
    calls.sort_by(|(a, x), (b, y)| y.times.cmp(&x.times).then_with(|| a.cmp(b)));
    for (name, call) in calls {
        let share = call.times[0] as f64 / total;
        if share >= MIN_SHARE {
            rows.push((depth, share, name.clone()));
            collect(call, total, depth + 1, rows);
        }
    }
}

/// A line, cut to a width.
pub(super) fn cut(line: &str, width: usize) -> String {
    match line.chars().count() > width {
        true => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => line.to_owned(),
    }
}
