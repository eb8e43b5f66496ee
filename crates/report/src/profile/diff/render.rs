//! The page: what became more and less, and where no difference is shown.

use beamtune_model::CpuState;

use super::super::{missing, state_name, subtitle, tree};
use super::{Change, Comparison, PathChange, Verdict};
use crate::text::{self, Style};

/// Rows of more, and rows of less.
const MAX_CHANGES: usize = 10;
/// Rows without a difference: those with the largest shares.
const MAX_UNCHANGED: usize = 5;
/// Width of the intervals, compared to those of independent samples, from which it is stated.
const MIN_WIDTH: f64 = 1.05;
/// Rows of the call tree.
const MAX_CALLS: usize = 30;

/// The page on a terminal.
pub fn render_diff(comparison: &Comparison<'_>, style: Style) -> String {
    let mut out = String::new();
    for (label, page) in ["before", "after"].into_iter().zip(&comparison.pages) {
        let cores = page.profile.total() as f64 / page.profile.length.max(1) as f64;
        out.push_str(&format!(
            "{label:<6}  {} · {} · {cores:.2} cores\n",
            style.bold(&text::clean(page.node)),
            subtitle(page)
        ));
    }
    if comparison.has_samples() {
        out.push_str(&format!("\n{}", introduction(comparison, style)));
        let state = |name: &str| {
            CpuState::from_text(name).map_or(name.to_owned(), |state| state_name(state).to_owned())
        };
        out.push_str(&list("state", &comparison.states, state, style));
        out.push_str(&list("Erlang function, own time", &comparison.own, text::sentence, style));
        out.push_str(&list("Erlang function, with those it calls", &comparison.total, text::sentence, style));
        out.push_str(&calls(&comparison.paths, style));
    } else {
        out.push_str("\nNothing to compare: a profile has no samples.\n");
    }
    for (label, page) in ["before", "after"].into_iter().zip(&comparison.pages) {
        for remark in missing(page.profile) {
            for line in text::lines(&format!("note: {label}: {remark}"), style.width, usize::MAX) {
                out.push_str(&format!("{line}\n"));
            }
        }
    }
    out
}

/// What the numbers mean.
fn introduction(comparison: &Comparison<'_>, style: Style) -> String {
    let mut out =
        "Shares of the sampled CPU time. The 95 % intervals hold for all rows of a list together.".to_owned();
    let width = comparison.dispersion.sqrt();
    if width >= MIN_WIDTH {
        out.push_str(&format!(
            " They are {width:.1} times as wide as usual: the shares changed from second to second."
        ));
    }
    text::lines(&out, style.width, usize::MAX).into_iter().map(|line| line + "\n").collect()
}

/// The columns of a row before its name.
fn columns(change: &Change) -> String {
    let difference = &change.difference;
    let interval = format!("[{:+.1}, {:+.1}]", 100.0 * difference.low, 100.0 * difference.high);
    let [before, after] = change.shares.map(|share| format!("{:>5.1} %", 100.0 * share));
    let [cores_before, cores_after] = change.cores;
    format!(
        "{before}  {after}  {:>+6.1} {interval:<16}  {cores_before:>5.2} → {cores_after:<5.2}",
        100.0 * difference.estimate
    )
}

fn heading(what: &str, style: Style) -> String {
    let heading =
        format!("{:>7}  {:>7}  {:<23}  {:<13}  {what}", "before", "after", "change in points", "cores");
    format!("\n{}\n", style.dim(&heading))
}

/// A list, grouped by verdict.
fn list(what: &str, changes: &[Change], shown: impl Fn(&str) -> String, style: Style) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut out = heading(what, style);
    for (verdict, label, max_rows) in [
        (Verdict::More, "more", MAX_CHANGES),
        (Verdict::Less, "less", MAX_CHANGES),
        (Verdict::NotShown, "no difference shown", MAX_UNCHANGED),
    ] {
        let mut rows: Vec<&Change> = changes.iter().filter(|change| change.verdict() == verdict).collect();
        if rows.is_empty() {
            continue;
        }
        if verdict == Verdict::NotShown {
            let size = |change: &Change| change.shares.iter().sum::<f64>();
            rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
        }
        out.push_str(&format!("{}\n", style.bold(label)));
        for change in rows.iter().take(max_rows) {
            out.push_str(&tree::cut(&format!("{}  {}", columns(change), shown(&change.name)), style.width));
            out.push('\n');
        }
        if rows.len() > max_rows {
            out.push_str(&format!("and {} more\n", rows.len() - max_rows));
        }
    }
    out
}

/// The call tree: calls with a difference, below those that lead to them.
fn calls(paths: &[PathChange], style: Style) -> String {
    let has_difference = |path: &PathChange| path.change.verdict() != Verdict::NotShown;
    // From the end, so that a call is met after those below it. `above` is the depth from which calls lead to one that is shown.
    let mut above = 0;
    let mut rows = Vec::new();
    for path in paths.iter().rev() {
        if has_difference(path) || path.depth < above {
            above = path.depth;
            rows.push(path);
        }
    }
    rows.reverse();
    if rows.is_empty() {
        return "\nCall tree: no difference shown.\n".to_owned();
    }
    let mut out = heading("call tree, down to differences", style);
    for PathChange { depth, change } in rows.iter().take(MAX_CALLS) {
        let mark = match change.verdict() {
            Verdict::More => "more",
            Verdict::Less => "less",
            Verdict::NotShown => "",
        };
        // Names of the tree are prepared for the terminal already.
        let line = format!("{}  {mark:<4}  {}{}", columns(change), "  ".repeat(*depth), change.name);
        out.push_str(&tree::cut(&line, style.width));
        out.push('\n');
    }
    if rows.len() > MAX_CALLS {
        out.push_str(&format!("and {} more calls\n", rows.len() - MAX_CALLS));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::Page;
    use super::super::super::tests::profile;
    use super::*;

    #[test]
    fn a_page_groups_functions_and_shows_the_calls_that_lead_to_differences() {
        let before = profile(&[
            ("shop:loop/1;jsx:encode/2", 300, CpuState::Process),
            ("shop:loop/1;lists:map/2", 600, CpuState::Process),
            ("shop:other/0;lists:sort/1", 100, CpuState::Process),
        ]);
        let mut after = profile(&[
            ("shop:loop/1;jsx:encode/2;k:read", 400, CpuState::Process),
            ("shop:loop/1;lists:map/2", 495, CpuState::Process),
            ("shop:other/0;lists:sort/1", 105, CpuState::Process),
        ]);
        after.lost = 2;
        let [before, after] = [&before, &after].map(|profile| Page { node: "shop@web1", profile });
        let found = render_diff(&Comparison::new(before, after), Style::PLAIN);
        let expected = "\
before  shop@web1 · 2.0 s · 1,000 samples at 99 Hz of CPU time · 5.00 cores
after   shop@web1 · 2.0 s · 1,000 samples at 99 Hz of CPU time · 5.00 cores

Shares of the sampled CPU time. The 95 % intervals hold for all rows of a list together.

 before    after  change in points         cores          state
no difference shown
100.0 %  100.0 %    +0.0 [-0.4, +0.4]       5.00 → 5.00   processes

 before    after  change in points         cores          Erlang function, own time
more
 30.0 %   40.0 %   +10.0 [+4.9, +15.0]      1.50 → 2.00   jsx:encode/2
less
 60.0 %   49.5 %   -10.5 [-15.7, -5.2]      3.00 → 2.48   lists:map/2
no difference shown
 10.0 %   10.5 %    +0.5 [-2.8, +3.8]       0.50 → 0.53   lists:sort/1

 before    after  change in points         cores          Erlang function, with those it calls
more
 30.0 %   40.0 %   +10.0 [+4.5, +15.4]      1.50 → 2.00   jsx:encode/2
less
 60.0 %   49.5 %   -10.5 [-16.1, -4.8]      3.00 → 2.48   lists:map/2
no difference shown
 90.0 %   89.5 %    -0.5 [-4.0, +3.0]       4.50 → 4.47   shop:loop/1
 10.0 %   10.5 %    +0.5 [-3.0, +4.0]       0.50 → 0.53   lists:sort/1
 10.0 %   10.5 %    +0.5 [-3.0, +4.0]       0.50 → 0.53   shop:other/0

 before    after  change in points         cores          call tree, down to differences
 90.0 %   89.5 %    -0.5 [-4.1, +3.1]       4.50 → 4.47         shop:loop/1
 60.0 %   49.5 %   -10.5 [-16.3, -4.6]      3.00 → 2.48   less    lists:map/2
 30.0 %   40.0 %   +10.0 [+4.4, +15.5]      1.50 → 2.00   more    jsx:encode/2
  0.0 %   40.0 %   +40.0 [+35.9, +44.1]     0.00 → 2.00   more      read (kernel)
note: after: 2 samples were lost: beamtune was too slow
";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_profile_without_samples_is_named() {
        let empty = beamtune_model::Profile { length: 1_000_000_000, ..Default::default() };
        let page = Page { node: "a", profile: &empty };
        let found = render_diff(&Comparison::new(page, page), Style::PLAIN);
        assert!(found.ends_with("\nNothing to compare: a profile has no samples.\n"), "{found}");
    }
}
