//! The call tree: callers and the functions that they call, with the CPU time of each.

use std::collections::BTreeMap;

use beamtune_model::{Nanos, Profile};

use super::shown_frame;
use crate::text::{self, Style};

/// Calls with less are left out.
const MIN_SHARE: f64 = 0.02;
/// Rows of the tree.
const MAX_ROWS: usize = 30;
/// Frames below each other that are shown; chains without branches take one row each.
const MAX_DEPTH: usize = 24;

/// A function, called by the one above it.
#[derive(Debug, Default)]
struct Node {
    time: Nanos,
    /// By the shown name, so that lines of one function are one node.
    calls: BTreeMap<String, Node>,
}

/// The tree on a terminal.
pub(super) fn render(profile: &Profile, style: Style) -> String {
    let mut root = Node::default();
    for sample in &profile.samples {
        root.time += sample.weight;
        let mut node = &mut root;
        let mut last = String::new();
        for frame in profile.frames_of(sample.stack) {
            let name = shown_frame(frame);
            // Recursion is one node.
            if name == last {
                continue;
            }
            node = node.calls.entry(name.clone()).or_default();
            node.time += sample.weight;
            last = name;
        }
    }
    let mut rows = Vec::new();
    collect(&root, root.time.max(1) as f64, 0, &mut rows);
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
fn collect(node: &Node, total: f64, depth: usize, rows: &mut Vec<(usize, f64, String)>) {
    if depth >= MAX_DEPTH {
        return;
    }
    let mut calls: Vec<(&String, &Node)> = node.calls.iter().collect();
    calls.sort_by(|(a, x), (b, y)| y.time.cmp(&x.time).then_with(|| a.cmp(b)));
    for (name, call) in calls {
        let share = call.time as f64 / total;
        if share >= MIN_SHARE {
            rows.push((depth, share, name.clone()));
            collect(call, total, depth + 1, rows);
        }
    }
}

fn cut(line: &str, width: usize) -> String {
    match line.chars().count() > width {
        true => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => line.to_owned(),
    }
}
