//! Results of other load generators, and stored results of `beamtune load`, are read, shown and merged.

use std::path::{Path, PathBuf};

use beamtune_model::load::LoadResult;

use crate::common::{Output, beamtune, folder, run, text};
use crate::servers::http;
use crate::{clean, load, result_of, step};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/load/import").join(name)
}

fn import(files: &[&Path], options: &[&str]) -> Output {
    run(beamtune().args(["load", "import"]).args(files).args(options))
}

#[test]
fn results_of_every_tool_are_read_and_follow_the_schema() {
    let files = [
        ("k6/out.json", "k6"),
        ("k6/summary-export.json", "k6"),
        ("locust/stats.json", "locust"),
        ("tsung/tsung.log", "tsung"),
        ("gatling/stats.js", "gatling"),
        ("wrk/latency.txt", "wrk"),
        ("wrk2/latency.txt", "wrk2"),
        ("h2load/log.tsv", "h2load"),
        ("emqtt-bench/sub.txt", "emqtt-bench"),
        ("oha/requests.json", "oha"),
    ];
    for (name, tool) in files {
        let result = result_of(&import(&[&fixture(name)], &["--json"]));
        assert_eq!(result.tool.split(' ').next(), Some(tool), "{name}");
        assert!(result.done() > 0 && result.generator.judged_seconds == 0, "{name}");
        let shown = import(&[&fixture(name)], &[]);
        assert!(shown.stdout.contains("own lag unknown"), "{}", shown.stdout);
    }
}

#[test]
fn exit_status_depends_on_errors() {
    assert_eq!(import(&[&fixture("oha/requests.json")], &[]).status, Some(0));
    let refused = import(&[&fixture("oha/refused.json")], &[]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.stdout.contains("refused"), "{}", refused.stdout);
}

#[test]
fn tool_can_be_set_if_the_text_is_ambiguous() {
    let file = fixture("wrk/no-latency.txt");
    let result = result_of(&import(&[&file], &["--tool", "wrk2", "--json"]));
    assert_eq!(result.tool, "wrk2");
    import(&[&file], &["--tool", "oha"]).assert_refused(&["no-latency.txt was written by wrk, not by oha"]);
    let unknown = import(&[&file], &["--tool", "ab"]);
    assert!(unknown.stderr.contains("unknown tool \"ab\"; use one of: beamtune, k6, "), "{}", unknown.stderr);
}

#[test]
fn unreadable_or_unmergeable_results_are_refused() {
    let folder = folder();
    let file = folder.path().join("notes.txt");
    import(&[&file], &[]).assert_refused(&["cannot read", "notes.txt"]);
    std::fs::write(&file, "dear diary").expect("written");
    import(&[&file], &[]).assert_refused(&["notes.txt: not recognised", "k6 ("]);
    let (one, other) = (fixture("wrk/latency.txt"), fixture("oha/requests.json"));
    import(&[&one, &other], &[]).assert_refused(&["cannot be merged", "these tools measure different times"]);
    import(&[&one, &one], &[]).assert_refused(&["percentiles cannot be merged"]);
}

/// Runs a load of 100 requests per second, and writes its result to `file`.
fn run_and_keep(file: &Path, url: &str, options: &[&str]) -> LoadResult {
    let usual = ["--rate", "100", "--even", "--connections", "5", "--for", "1s", "--output"];
    let result = clean(beamtune().arg("load").arg(url).args(usual).arg(file).arg("--json").args(options));
    assert_eq!(result.done(), 100);
    result
}

#[test]
fn stored_results_are_shown_and_are_merged_by_their_histograms() {
    let (server, folder) = (http(|| {}), folder());
    let url = format!("http://{}/", server.address);
    let (one, other) = (folder.path().join("one.json"), folder.path().join("other.json"));
    let mut first = run_and_keep(&one, &url, &[]);
    // The last digit of this time is lost if it is parsed imprecisely.
    first.began_unix_s = Some(1_795_253_567.000_002_1);
    std::fs::write(&one, serde_json::to_vec(&first).expect("JSON")).expect("written");
    run_and_keep(&other, &url, &["--seed", "2"]);
    let output = import(&[&one], &["--json"]);
    assert!(output.stdout.contains("1795253567.0000021"), "{}", output.stdout);
    assert_eq!(result_of(&output), first);

    let out = folder.path().join("both.json");
    let output = import(&[&one, &other], &["--output", &text(&out)]);
    assert!(output.stdout.contains("200 done, 0 errors"), "{}", output.stdout);
    let both: LoadResult = serde_json::from_slice(&std::fs::read(&out).expect("a file")).expect("a result");
    let service = step(&both, "GET /").service.as_ref().expect("times");
    let of_first = step(&first, "GET /").service.as_ref().expect("times");
    assert!(service.count > of_first.count && service.max_ns >= of_first.max_ns);
    assert_eq!(both.generator.processes, 2);
    assert!(
        both.remarks
            .iter()
            .any(|remark| remark == "Merged from 2 results; the times are from their histograms.")
    );
}

#[test]
fn altered_result_is_refused_with_the_position() {
    let (server, folder) = (http(|| {}), folder());
    let file = folder.path().join("result.json");
    let result = run_and_keep(&file, &format!("http://{}/", server.address), &[]);
    let refused = |pointer: &str, value: serde_json::Value, words: &[&str]| {
        let mut changed = serde_json::to_value(&result).expect("JSON");
        *changed.pointer_mut(pointer).expect("a value") = value;
        std::fs::write(&file, changed.to_string()).expect("written");
        import(&[&file], &[]).assert_refused(words);
    };
    refused("/version", 2.into(), &["a result of a newer beamtune is not supported"]);
    refused("/steps/1/done", u64::MAX.into(), &["expected counts of a step at /steps/1"]);
    refused(
        "/steps/1/service/histogram",
        "SElTVA==".into(),
        &["expected a histogram as beamtune writes it at /steps/1/service"],
    );
    refused("/seconds", "none".into(), &["a result of beamtune (invalid type"]);
}

#[test]
fn histograms_of_each_second_are_written_to_a_log() {
    let (server, folder) = (http(|| {}), folder());
    let file = folder.path().join("log.hlog");
    let result = run_and_keep(
        &folder.path().join("result.json"),
        &format!("http://{}/", server.address),
        &["--histograms", &text(&file)],
    );
    let log = std::fs::read_to_string(&file).expect("a log");
    let began = format!("#[StartTime: {:.3} (seconds since epoch)]", result.began_unix_s.expect("a time"));
    assert!(log.contains(&began), "{log}");
    let lines: Vec<_> = log.lines().filter(|line| line.starts_with("Tag=GET%20/.response,")).collect();
    // The second of the load, and possibly one for late answers.
    assert!((1..=2).contains(&lines.len()) && lines.iter().all(|line| line.contains(",1.000,")), "{log}");
    assert!(log.contains("\nTag=own_lag,"), "{log}");

    let nowhere = folder.path().join("no/such/folder/log");
    let url = format!("http://{}/", server.address);
    run(load(&[&url]).arg("--histograms").arg(&nowhere))
        .assert_refused(&["cannot write", "no/such/folder/log"]);
}
