//! Renders the results of an evaluation, for the terminal and for docs/evaluation.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use beamtune_report::Style;
use beamtune_report::table::{Align, Table};

use crate::judge::places;
use crate::manifest::{CORES, Split};
use crate::rows::{DISTURBING_CORES, DISTURBING_STOLEN_CORES, Kind, Row, Run, Setting, render_ranks};

/// Markers around the section in docs/evaluation.md.
const BEGIN: &str = "<!-- labs: begin -->\n";
const END: &str = "<!-- labs: end -->";

/// Summarizes a run in one line.
pub(crate) fn line(row: &Row) -> String {
    let run = &row.run;
    let faults = row.faults();
    let verdict = if faults.is_empty() { "right".to_owned() } else { faults.join("; ") };
    let disturbed = match row.is_disturbed() {
        true => format!(" (other processes used {:.1} cores)", row.judged.foreign_cores),
        false => String::new(),
    };
    let again = if row.attempts > 1 { format!(", run {} times", row.attempts) } else { String::new() };
    format!(
        "{} on OTP {}, {}, seed {}: {verdict}; found: {}{disturbed}{again}",
        case(row),
        run.release,
        run.setting.name(),
        run.seed,
        found(row)
    )
}

/// Renders a table of all runs, for the terminal.
pub fn table(rows: &[Row], style: Style) -> String {
    let mut table = Table::new(&[
        ("case", Align::Left),
        ("OTP", Align::Right),
        ("setting", Align::Left),
        ("found", Align::Left),
        ("rank", Align::Right),
        ("culprit", Align::Left),
        ("remedies", Align::Right),
        ("false", Align::Right),
        ("right?", Align::Left),
    ]);
    for row in rows {
        let faults = row.faults();
        table.row([
            case(row),
            row.run.release.to_string(),
            row.run.setting.name().to_owned(),
            found(row),
            render_ranks(&row.judged.ranks),
            culprit(row).to_owned(),
            remedies(row),
            row.judged.false_findings.len().to_string(),
            if faults.is_empty() { "right".to_owned() } else { faults.join("; ") },
        ]);
    }
    table.render(style)
}

/// Returns the name of the case, with the number of CPUs if it is not the default.
fn case(row: &Row) -> String {
    let Run { case, cores, .. } = &row.run;
    if *cores == CORES { case.clone() } else { format!("{case} (for {cores} CPUs)") }
}

/// Escapes a cell of a Markdown table.
fn escaped(cell: &str) -> String {
    cell.lines().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn found(row: &Row) -> String {
    if row.judged.found.is_empty() { "nothing".to_owned() } else { row.judged.found.join(", ") }
}

fn culprit(row: &Row) -> &'static str {
    match row.judged.culprit {
        Some(true) => "named",
        Some(false) => "not named",
        None => "",
    }
}

/// Formats, for example, `1/2`: the VM accepts the flags of one of two remedies with flags.
fn remedies(row: &Row) -> String {
    let all = row.judged.remedies;
    if all == 0 { String::new() } else { format!("{}/{all}", accepted(row)) }
}

fn accepted(row: &Row) -> usize {
    row.judged.remedies.saturating_sub(row.judged.refused.len())
}

/// Returns the totals of all runs, one sentence each.
pub fn sums(rows: &[Row]) -> Vec<String> {
    let share = |part: usize, of: usize| match of {
        0 => "0 of 0".to_owned(),
        _ => format!("{part} of {of} ({:.1} %)", 100.0 * part as f64 / of as f64),
    };
    let judged: Vec<&Row> = rows.iter().filter(|row| row.error.is_none()).collect();
    let (sick, well): (Vec<&Row>, Vec<&Row>) =
        judged.iter().partition(|row| row.run.setting == Setting::Sick);
    // The fault of some labs is visible only with lock counting, so `doctor` has no cause to find.
    let caused: Vec<&&Row> = sick.iter().filter(|row| !row.judged.ranks.is_empty()).collect();
    let first = caused.iter().filter(|row| places(&row.judged.ranks).0).count();
    let near = caused.iter().filter(|row| places(&row.judged.ranks).1).count();
    let to_name = sick.iter().filter(|row| row.judged.culprit.is_some()).count();
    let named = sick.iter().filter(|row| row.judged.culprit == Some(true)).count();
    let with_false = |rows: &[&Row]| rows.iter().filter(|row| !row.judged.false_findings.is_empty()).count();
    let with_any = well.iter().filter(|row| row.above_notice().next().is_some()).count();
    let (advised, taken) =
        judged.iter().fold((0, 0), |(all, taken), row| (all + row.judged.remedies, taken + accepted(row)));
    let right = rows.iter().filter(|row| row.faults().is_empty()).count();
    let again = rows.iter().filter(|row| row.attempts > 1).count();
    let disturbed = rows.iter().filter(|row| row.is_disturbed()).count();
    let excused = rows.iter().filter(|row| !row.judged.excused.is_empty()).count();
    vec![
        format!("all right: {} runs", share(right, rows.len())),
        format!("the true cause first: {} sick runs", share(first, caused.len())),
        format!(
            "all causes among the first three findings (plus one for each additional cause): {}",
            share(near, caused.len())
        ),
        format!("the culprit named: {}", share(named, to_name)),
        format!(
            "healthy runs with a false finding (above notice, or one expected only in the sick variant): {}",
            share(with_false(&well), well.len())
        ),
        format!(
            "healthy with any finding above notice, including allowed ones and those explained by other processes: {}{}",
            share(with_any, well.len()),
            named_with_any(&well)
        ),
        format!("sick with a false finding above notice: {}", share(with_false(&sick), sick.len())),
        format!("remedies whose flags a VM of the release accepts: {}", share(taken, advised)),
        format!(
            "runs that could not be judged: {}; disturbed (other processes used {DISTURBING_CORES} cores or more, or steal was {DISTURBING_STOLEN_CORES} or \
             more): {disturbed}; with true CPU starvation by other processes or guests, which has no rank: {excused}; repeated after a \
             disturbance (the last run is used): {again}",
            rows.len() - judged.len()
        ),
    ]
}

/// Lists findings above "notice" of healthy runs, by case and release: `: carrier-sizing BT024 on 23, 27; …`.
fn named_with_any(well: &[&Row]) -> String {
    let mut cases: BTreeMap<(&str, &str), BTreeSet<u32>> = BTreeMap::new();
    for row in well {
        for code in row.above_notice() {
            cases.entry((&row.run.case, code)).or_default().insert(row.run.release);
        }
    }
    let texts = cases.iter().map(|((case, code), releases)| {
        let releases: Vec<String> = releases.iter().map(u32::to_string).collect();
        format!("{case} {code} on {}", releases.join(", "))
    });
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { String::new() } else { format!(": {}", texts.join("; ")) }
}

/// Returns the total of the synthetic recordings, which are counted separately.
pub fn synthetic(rows: &[Row]) -> String {
    let right = rows.iter().filter(|row| row.faults().is_empty()).count();
    format!("synthetic: right {right} of {}", rows.len())
}

/// Renders the section of docs/evaluation.md.
fn section(rows: &[Row]) -> String {
    let (synthetic_rows, rows): (Vec<Row>, Vec<Row>) =
        rows.iter().cloned().partition(|row| row.run.kind == Kind::Synthetic);
    let (labs, software): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.run.kind == Kind::Lab);
    let list = |of: &dyn Fn(&Row) -> String| {
        let mut all: Vec<String> = rows.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all.join(", ")
    };
    let mut text = format!(
        "Every lab (see [lab/README.md](../lab/README.md)) in its sick and healthy variants, and software from Debian packages, idle, under \
         load and with bad settings (see [lab/software](../lab/software/README.md)), judged as by `beamtune doctor` (10 s). Written by \
         `make labs`; measured on {}, {} CPUs, Linux {}, master seed {}. The runs took {:.0} minutes in total; robust labs ran two at once.\n",
        list(&|row| row.day.clone()),
        list(&|row| row.cpus.to_string()),
        list(&|row| row.linux.clone()),
        list(&|row| row.master.to_string()),
        rows.iter().map(|row| row.took_s).sum::<f64>() / 60.0,
    );
    let holdout: Vec<&Row> =
        labs.iter().copied().filter(|row| row.judged.split == Some(Split::Holdout)).collect();
    for (what, rows) in [("Labs", &labs), ("Holdout labs only", &holdout), ("Software", &software)] {
        if rows.is_empty() {
            continue;
        }
        let owned: Vec<Row> = rows.iter().map(|row| (*row).clone()).collect();
        text.push_str(&format!("\n{what}:\n\n"));
        sums(&owned).iter().for_each(|sum| text.push_str(&format!("- {sum}\n")));
    }
    text.push_str(
        "\nThe rank is that of the root cause among the findings that are not consequences of others. A run is right if all expected findings are \
         there, the culprit is named, the cause is among the first three, a VM of the release accepts all advised flags, there is no other \
         finding above notice, and resident memory is explained, except for what changed during the recording.\n\n",
    );
    text.push_str(&wrong(&rows));
    text.push_str(&over_limits(&rows));
    if !synthetic_rows.is_empty() {
        text.push_str(&format!(
            "\nFaults that cannot be produced are evaluated from synthetic recordings, each with a healthy variant, written and read like any \
             other and marked as synthetic (`beamtune lab synthetic`). They are not part of the sums above; {}.\n\n{}",
            synthetic(&synthetic_rows),
            wrong(&synthetic_rows)
        ));
    }
    text
}

/// Renders the wrong runs as a Markdown table.
fn wrong(rows: &[Row]) -> String {
    if rows.iter().all(|row| row.faults().is_empty()) {
        return "All runs were right.\n".to_owned();
    }
    let mut text = "| case | OTP | setting | found | rank | culprit | remedies | false | right? |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let faults = row.faults();
        if faults.is_empty() {
            continue;
        }
        let cells = [
            case(row),
            row.run.release.to_string(),
            row.run.setting.name().to_owned(),
            row.judged.found.join(", "),
            render_ranks(&row.judged.ranks),
            culprit(row).to_owned(),
            remedies(row),
            row.judged.false_findings.len().to_string(),
            faults.join("; "),
        ];
        text.push_str(&format!("| {} |\n", cells.map(|cell| escaped(&cell)).join(" | ")));
    }
    text
}

/// Lists the runs whose diagnosis exceeds its limits; empty if absent.
fn over_limits(rows: &[Row]) -> String {
    let broken = |row: &Row| {
        let limits = row.judged.broken_limits.join(", ");
        let setting = row.run.setting.name();
        escaped(&format!("{} {} on OTP {} ({limits})", case(row), setting, row.run.release))
    };
    let broken: Vec<String> =
        rows.iter().filter(|row| !row.judged.broken_limits.is_empty()).map(broken).collect();
    match broken.as_slice() {
        [] => String::new(),
        broken => format!("\nDiagnoses that exceed the limits of the page: {}.\n", broken.join("; ")),
    }
}

/// Replaces the section in a page by the results of these runs.
///
/// # Errors
/// If the page has no such section, or cannot be read or written.
pub fn update(page: &Path, rows: &[Row]) -> Result<()> {
    let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let text = replaced(&text, &section(rows)).with_context(|| page.display().to_string())?;
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

/// Replaces the section between the markers of a page.
fn replaced(page: &str, section: &str) -> Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!("the page has no lines {} and {END}", BEGIN.trim_end());
    };
    Ok(format!("{before}{BEGIN}{section}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::row;

    #[test]
    fn totals_count_right_and_wrong_runs() {
        let mut second = row("b", Setting::Sick);
        (second.judged.ranks, second.judged.culprit) = (vec![Some(2)], Some(false));
        let mut cured = row("a", Setting::Cured);
        cured.judged.false_findings = vec!["BT001".to_owned()];
        (cured.judged.remedies, cured.judged.refused) = (2, vec!["+Mdai max".to_owned()]);
        let sums = sums(&[row("a", Setting::Sick), second, cured, row("b", Setting::Cured)]).join("\n");
        for part in [
            "all right: 2 of 4 (50.0 %)",
            "cause first: 1 of 2 (50.0 %)",
            "plus one for each additional cause): 2 of 2 (100.0 %)",
            "culprit named: 1 of 2",
            "one expected only in the sick variant): 1 of 2",
            "sick with a false finding above notice: 0 of 2",
            "release accepts: 1 of 2",
        ] {
            assert!(sums.contains(part), "no {part:?} in\n{sums}");
        }
    }

    #[test]
    fn allowed_findings_are_listed_by_case() {
        let well = |case: &str, release: u32, found: &str| {
            let mut row = row(case, Setting::Cured);
            (row.run.release, row.judged.found) =
                (release, vec!["BT015 notice".to_owned(), found.to_owned()]);
            row
        };
        let mut sick = row("a", Setting::Sick);
        sick.judged.found = vec!["BT009 critical".to_owned()];
        let rows = [
            sick,
            well("a", 27, "BT024 warning"),
            well("a", 23, "BT024 critical"),
            well("b", 25, "BT024 notice"),
        ];
        let sums = sums(&rows).join("\n");
        assert!(sums.contains("one expected only in the sick variant): 0 of 3"), "{sums}");
        assert!(
            sums.contains("explained by other processes: 2 of 3 (66.7 %): a BT024 on 23, 27\n"),
            "{sums}"
        );
    }

    #[test]
    fn synthetic_recordings_have_a_separate_total_and_table() {
        let mut made = row("made", Setting::Sick);
        (made.run.kind, made.day) = (Kind::Synthetic, "2000-01-01".to_owned());
        let mut wrong = made.clone();
        wrong.judged.ranks = vec![None];
        let text = section(&[row("a", Setting::Sick), made, wrong]);
        let (measured, synthetic) =
            text.split_once("Faults that cannot be produced").expect("a separate part");
        assert!(measured.contains("all right: 1 of 1") && !measured.contains("2000-01-01"), "{text}");
        assert!(!measured.contains("| made |") && !measured.contains("Software:"), "{text}");
        assert!(
            synthetic.contains("synthetic: right 1 of 2") && synthetic.matches("| made |").count() == 1,
            "{text}"
        );
        assert!(
            !section(&[row("a", Setting::Sick)]).contains("synthetic"),
            "there are no synthetic recordings"
        );
    }

    #[test]
    fn cells_are_single_lines_and_unusual_cpu_counts_are_shown() {
        let mut failed = row("a", Setting::Sick);
        (failed.error, failed.run.cores) = (Some("no <0.7.0>\n| x".to_owned()), 64);
        let text = wrong(&[failed]);
        let row = "| a (for 64 CPUs) | 25 | sick |  | 1 | named |  | 0 | could not be judged: no &lt;0.7.0> \\| x |\n";
        assert!(text.ends_with(row), "{text}");
    }

    #[test]
    fn diagnoses_over_the_limits_are_listed() {
        let mut long = row("a", Setting::Sick);
        long.judged.broken_limits = vec!["61 lines (limit 60)".to_owned()];
        let named = "Diagnoses that exceed the limits of the page: a sick on OTP 25 (61 lines (limit 60)).";
        assert!(section(&[long]).contains(named));
        assert!(!section(&[row("a", Setting::Sick)]).contains("longer"));
    }

    #[test]
    fn only_the_section_between_the_markers_is_replaced() {
        let page = "# Page\n<!-- labs: begin -->\nold\n<!-- labs: end -->\nrest\n";
        let written = replaced(page, &section(&[row("a", Setting::Sick)])).expect("a page");
        assert!(written.starts_with("# Page\n<!-- labs: begin -->\nEvery lab"), "{written}");
        assert!(written.ends_with("\n<!-- labs: end -->\nrest\n") && !written.contains("old"), "{written}");
        assert!(written.contains("All runs were right."), "{written}");
        replaced("# Page\n", "").expect_err("no markers");
    }
}
