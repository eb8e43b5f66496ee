//! `beamtune import`: reads the output of the VM's own tools into a recording, and diagnoses it.

mod crash_dump;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_import::crash_dump::SIGNATURE_BYTES;
use beamtune_import::{ImportedText, MAX_BYTES};
use beamtune_model::SeriesTable;
use beamtune_recording::{Existing, Reader, Selection, Writer};
use beamtune_report::diagnosis::Verbosity;
use beamtune_report::locks::{By, View};

use super::{diagnose, locks};
use crate::files::Snapshot;
use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// The name of standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// Diagnose the output of the VM's own tools, or a crash dump
///
/// Reads the tables of lcnt and msacc (and rabbitmq-diagnostics runtime_thread_stats), the results of erlang:memory(),
/// scheduler:utilization(…), recon_alloc:fragmentation(…), instrument:allocations() and carriers(), and rabbitmq-diagnostics status.
/// They may be copied from the Erlang or Elixir shell, with or without line breaks, several in one text (docs/import.md). Text that
/// cannot be read is reported with its position. The recording written with -o can be read by beamtune diagnose, memory, locks and diff.
///
/// A file that begins with =erl_crash_dump: is read as a crash dump of any size. The output shows why the node crashed, and what else
/// the dump contains. The recording written with -o can be read by beamtune diagnose, show and diff.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = nothing could be read.
#[derive(clap::Args)]
pub struct Args {
    /// Text of at most 64 MB, or crash dump; - for standard input
    #[arg(default_value = STANDARD_INPUT)]
    file: PathBuf,
    /// Write a recording; the file must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
    /// Print JSON (docs/schema/diagnosis.schema.json)
    ///
    /// If the text contains only tables of lcnt: docs/schema/locks.schema.json.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let name = if is_standard_input(&args.file) {
        "standard input".to_owned()
    } else {
        args.file.display().to_string()
    };
    let begin = match crash_dump::open(&args.file).with_context(|| format!("cannot import {name}"))? {
        crash_dump::Input::Dump(dump) => return crash_dump::run(dump, &name, args),
        crash_dump::Input::Text(begin) => begin,
    };
    let bytes = read(&args.file, begin).with_context(|| format!("cannot read {name}"))?;
    let reading = beamtune_import::read(&bytes).with_context(|| format!("cannot import {name}"))?;
    for unread in &reading.unread {
        let place = format!("{name}:{}:{}", unread.line, unread.column);
        let text = if unread.text.is_empty() { String::new() } else { format!(" {}", unread.text) };
        terminal::complain(&format!("{place}: not read:{text} ({})\n", unread.reason));
    }
    if reading.tools.is_empty() {
        bail!("cannot import {name}: none of its rows could be read");
    }
    let is_of_locks_alone = reading.has_only_locks();
    let period = record(reading, args.output.as_deref())?.period(&Selection::default())?;
    let period = args.thresholds.apply(period);
    if !is_of_locks_alone {
        return Ok(diagnose::judge(&period, &args.verbosity.view(None), args.json));
    }
    let view = args.verbosity.view(None);
    let has_single = period.locks.iter().any(|row| row.id.is_some());
    let by = [Some(By::Class), has_single.then_some(By::Lock)].into_iter().flatten();
    let is_verbose = view.verbosity != Verbosity::Brief;
    let views: Vec<View> = by.filter(|_| is_verbose).map(View::new).collect();
    Ok(locks::print_views(&period, None, &views, &view, args.json))
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// Reads at most one byte more than the limit. `begin` has already been read from standard input.
fn read(path: &Path, begin: Vec<u8>) -> Result<Vec<u8>> {
    if !is_standard_input(path) {
        return Ok(Snapshot::read(path, MAX_BYTES)?.bytes);
    }
    let mut bytes = begin;
    // A shorter beginning means that the input has ended. A terminal would wait for more input.
    if bytes.len() >= SIGNATURE_BYTES {
        let left = MAX_BYTES as u64 + 1 - bytes.len() as u64;
        std::io::stdin().lock().take(left).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Writes a recording without samples of a VM or a host.
fn record(reading: ImportedText, output: Option<&Path>) -> Result<Reader> {
    let mut writer = match output {
        Some(path) => Writer::create(path, Existing::Refuse)?,
        None => Writer::in_memory()?,
    };
    let mut table = SeriesTable::default();
    for sample in reading.samples(concat!("beamtune ", env!("CARGO_PKG_VERSION")), &mut table) {
        writer.append(&sample, &table)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use beamtune_import::read as imported;
    use beamtune_model::{Finding, Outcome, facts};

    use super::*;

    const TEXT: &str = "\
Erlang/OTP 27 [erts-15.0] [64-bit] [smp:8:4] [lock-counting]
1> lcnt:conflicts().
      lock   id  #tries  #collisions  collisions [%]  time [us]  duration [%]
     -----  --- ------- ------------ --------------- ---------- -------------
    db_tab    9 1000000       250000         25.0000    5000000       50.0000
ok
";

    #[test]
    fn a_table_of_locks_is_evaluated_by_the_lock_rules_only() {
        let reading = imported(TEXT.as_bytes()).expect("a table");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pasted.beamtune");
        record(reading, Some(&path)).expect("a recording");
        let period =
            Reader::open(&path).and_then(|reader| reader.period(&Selection::default())).expect("readable");
        let fact = |key| period.facts.get(key);
        assert_eq!((fact(facts::IMPORTED_FROM), fact(facts::OTP_RELEASE)), (Some("lcnt"), Some("27")));
        assert_eq!(fact(facts::SCHEDULERS_ONLINE), Some("4"));
        assert_eq!((period.locks.len(), period.locks[0].collisions), (1, 250_000));
        let diagnosis = beamtune_rules::diagnose(&Arc::new(period));
        let codes: Vec<_> = diagnosis.findings().iter().map(|finding| finding.code.0).collect();
        assert_eq!(codes, ["BT033"]);
        let again = imported(TEXT.as_bytes()).expect("a table");
        assert!(record(again, Some(&path)).is_err(), "an existing file is not overwritten");
    }
    const BANNER: &str = "Erlang/OTP 27 [erts-15.0] [64-bit] [smp:2:2] [ds:2:2:10]\n";
    const MSACC: &str = "\
Average thread real-time    : 1000000 us
Accumulated system run-time : 1800000 us
Average scheduler run-time  :  900000 us

        Thread      aux emulator       gc    sleep

Stats per thread:
dirty_cpu_( 1)    0.00%    0.00%    0.00%  100.00%
 scheduler( 1)    0.00%   50.00%   40.00%   10.00%
 scheduler( 2)    0.00%   50.00%   40.00%   10.00%

Stats per type:
dirty_cpu_sche    0.00%    0.00%    0.00%  100.00%
     scheduler    0.00%   50.00%   40.00%   10.00%
ok
";
    /// An allocator with 900 MB in carriers and 90 MB in blocks.
    const SPARSE: &str = "[{{binary_alloc,1},\n  [{sbcs_usage,1.0},{mbcs_usage,0.1},{sbcs_block_size,0},\n   \
                          {sbcs_carriers_size,0},{mbcs_block_size,90000000},{mbcs_carriers_size,900000000}]}]\n";

    fn verdicts(text: &str) -> Vec<(&'static str, Outcome)> {
        let reading = imported(text.as_bytes()).expect("something is known");
        let period = record(reading, None)
            .and_then(|reader| Ok(reader.period(&Selection::default())?))
            .expect("readable");
        let diagnosis = beamtune_rules::diagnose(&Arc::new(period));
        diagnosis.verdicts.into_iter().map(|verdict| (verdict.code.0, verdict.outcome)).collect()
    }

    fn judged(text: &str) -> Vec<&'static str> {
        let is_judged = |(_, outcome): &(_, Outcome)| !matches!(outcome, Outcome::NotJudged { .. });
        verdicts(text).into_iter().filter(is_judged).map(|(code, _)| code).collect()
    }

    fn found(text: &str, code: &str) -> Finding {
        let verdict = verdicts(text).into_iter().find(|(of, _)| *of == code);
        match verdict {
            Some((_, Outcome::Found(findings))) => findings.into_iter().next().expect("a finding"),
            other => panic!("{code}: {other:?}"),
        }
    }

    #[test]
    fn rules_whose_data_are_not_in_the_text_are_not_evaluated() {
        assert_eq!(judged("[{total,30},{processes,10},{system,20},{binary,5}]"), [""; 0]);
        assert_eq!(judged(MSACC), ["BT011"]);
        assert_eq!(judged("Erlang processes: 260000 used, 262144 limit\n"), ["BT007"]);
        assert_eq!(judged(TEXT), ["BT033"]);
        let memory = "Total memory used: 0.1279 gb\nCalculation strategy: rss\n[{total,30},{processes,10},{system,20}]";
        assert_eq!(judged(memory), [""; 0], "a single moment shows no growth");
        for (code, outcome) in
            verdicts(MSACC).iter().filter(|(code, _)| matches!(*code, "BT001" | "BT023" | "BT027"))
        {
            let Outcome::NotJudged { reason, .. } = outcome else { panic!("{code}: {outcome:?}") };
            assert!(reason.ends_with("not contained in the imported text"), "{code}: {reason}");
        }
    }

    /// 200 binaries of 600 kB, each in a carrier of its own.
    const PICTURES: &str = "recon_alloc:fragmentation(current).\n\
        [{{binary_alloc,1},[{sbcs_usage,0.98},{mbcs_usage,0.9},{sbcs_block_size,120000000},{sbcs_carriers_size,123000000},\
        {mbcs_block_size,9000000},{mbcs_carriers_size,10000000}]}]\n";

    #[test]
    fn singleblock_carriers_are_evaluated_if_average_block_sizes_are_known() {
        assert_eq!(judged(PICTURES), ["BT024"], "the number of blocks is unknown");
        let means =
            "recon_alloc:average_block_sizes(current).\n[{binary_alloc,[{mbcs,900.0},{sbcs,600000.0}]}]\n";
        let finding = found(&format!("{PICTURES}{means}"), "BT045");
        assert!(finding.title.starts_with("binary_alloc: 200 blocks of 586 kB"), "{}", finding.title);
        assert!(finding.against.iter().any(|against| against.contains("flags are unknown")), "{finding:?}");
        let verdict = verdicts(PICTURES).into_iter().find(|(code, _)| *code == "BT045");
        let Some((_, Outcome::NotJudged { next, .. })) = verdict else { panic!("{verdict:?}") };
        assert!(next.contains("average_block_sizes(current)"), "{next}");
    }

    #[test]
    fn totals_show_low_carrier_utilization_but_no_allocator() {
        let sums = |used: &str| {
            format!("recon_alloc:memory(allocated).\n900000000\nrecon_alloc:memory(used).\n{used}\n")
        };
        let finding = found(&sums("300000000"), "BT024");
        assert_eq!(finding.detail, "allocator unknown");
        assert!(finding.remedies.is_empty() && finding.subject.is_none(), "{finding:?}");
        assert_eq!(judged(&sums("800000000")), ["BT024"]);
        assert_eq!(judged("recon_alloc:memory(allocated).\n900000000\n"), [""; 0]);
        let resident = "Total memory used: 2.5 gb\nCalculation strategy: rss\n";
        let outside = found(&format!("{}{resident}", sums("800000000")), "BT025");
        assert!(outside.title.contains("outside the VM's allocators"), "{}", outside.title);
    }

    #[test]
    fn the_json_of_rabbitmq_shows_memory_outside_of_carriers() {
        let status = |rss: u64, allocated: u64| {
            format!(
                "{{\"erlang_version\":\"Erlang/OTP 25 [erts-13.1.5] [64-bit] [smp:2:2] [ds:2:2:10] [jit:ns]\",\"memory\":{{\"atom\":1300000,\
                 \"binary\":160000,\"code\":31000000,\"total\":{{\"erlang\":800000000,\"rss\":{rss},\"allocated\":{allocated}}}}},\
                 \"processes\":{{\"limit\":262144,\"used\":260000}},\"rabbitmq_version\":\"3.10.8\",\
                 \"vm_memory_high_watermark_limit\":2400000000}}"
            )
        };
        let outside = found(&status(2_500_000_000, 900_000_000), "BT025");
        assert!(outside.title.contains("outside the VM's allocators"), "{}", outside.title);
        let small = status(200_000_000, 50_000_000);
        let verdicts = verdicts(&small);
        for code in ["BT025", "BT037"] {
            let outcome = verdicts.iter().find(|(of, _)| *of == code).map(|(_, outcome)| outcome);
            assert!(matches!(outcome, Some(Outcome::Healthy(_))), "{code}: {outcome:?}");
        }
        // Without the JIT, no machine code is resident twice.
        assert!(found(&small.replace(" [jit:ns]", ""), "BT025").title.contains("outside"));
        let processes = found(&small, "BT007");
        assert!(processes.detail.contains("260,000 of 262,144 processes"), "{}", processes.detail);
    }

    /// The total of all instances: 900 MB in carriers, 90 MB in blocks.
    const SPARSE_TYPE: &str = "recon_alloc:allocators(types).\n[{{binary_alloc,[1,0]},[{mbcs,[{blocks,9,9,9},{blocks_size,90000000,9,9},\
                               {carriers,90,9,9},{carriers_size,900000000,9,9}]},{sbcs,[{blocks,0,0,0},{blocks_size,0,0,0},\
                               {carriers,0,0,0},{carriers_size,0,0,0}]}]}]\n";

    #[test]
    fn carriers_by_allocator_are_evaluated_like_carriers_by_instance() {
        let finding = found(SPARSE_TYPE, "BT024");
        assert!(finding.title.contains("binary_alloc"), "{}", finding.title);
        assert_eq!(judged(SPARSE_TYPE), ["BT024", "BT045"]);
    }

    #[test]
    fn if_only_memory_by_type_is_given_the_advice_says_what_else_to_copy() {
        for (code, outcome) in verdicts("[{total,30},{processes,10},{system,20},{binary,5}]") {
            let Outcome::NotJudged { next, .. } = outcome else { panic!("{code}: {outcome:?}") };
            let copied = ["BT001", "BT007", "BT011", "BT012", "BT024", "BT025", "BT029", "BT033", "BT045"];
            let copied = copied.contains(&code);
            let is_advised = next.starts_with("copy ") || next.starts_with("also copy ");
            assert_eq!(is_advised, copied, "{code}: {next}");
        }
    }

    #[test]
    fn time_in_gc_is_found_by_thread_and_by_type() {
        let gc = |text: &str| {
            let finding = found(text, "BT011");
            finding.evidence.iter().find(|evidence| evidence.what == "GC time").and_then(|of| of.value)
        };
        assert_eq!(gc(MSACC), Some(0.8));
        let detail = found(MSACC, "BT011").detail;
        assert!(detail.starts_with("processes unknown"), "{detail}");
        let types = &MSACC[..MSACC.find("Stats per thread").expect("the section")];
        let types = format!("{types}{}", &MSACC[MSACC.find("Stats per type").expect("the section")..]);
        assert_eq!(gc(&format!("{BANNER}{types}")), Some(0.8));
        assert_eq!(judged(&types), [""; 0], "the number of threads of a type is unknown");
    }

    #[test]
    fn busy_wait_is_evaluated_if_msacc_has_its_state() {
        let text = MSACC
            .replace("     aux", "busy_wait")
            .replace("0.00%   50.00%   40.00%   10.00%", "80.00%   10.00%    0.00%   10.00%");
        let finding = found(&text, "BT001");
        assert_eq!(finding.remedies.len(), 1, "{finding:?}");
        assert!(finding.title.starts_with("Busy wait takes 89 %"), "{}", finding.title);
    }

    #[test]
    fn low_carrier_utilization_has_remedies_only_if_the_peak_is_known() {
        let current = format!("recon_alloc:fragmentation(current).\n{SPARSE}");
        let finding = found(&current, "BT024");
        assert!(finding.detail.contains("peak utilization unknown"), "{}", finding.detail);
        assert!(
            finding.remedies.is_empty() && finding.detail.starts_with("multiblock carriers"),
            "{finding:?}"
        );
        let max = SPARSE.replace("90000000}", "880000000}");
        let finding = found(&format!("{BANNER}{current}recon_alloc:fragmentation(max).\n{max}"), "BT024");
        assert!(
            finding.detail.contains("filled during a peak") && !finding.remedies.is_empty(),
            "{finding:?}"
        );
        let used =
            format!("recon_alloc:fragmentation(current).\n{}", SPARSE.replace("90000000}", "880000000}"));
        assert_eq!(judged(&used), ["BT024"]);
        assert_eq!(
            judged(&used.replace("}]}]", "}]},\n {{eheap_alloc,...},[...]}]")),
            [""; 0],
            "the other allocators are unknown"
        );
    }
}
