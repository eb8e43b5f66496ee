//! Imports results of real tools (fixtures/load/import).
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

use std::path::{Path, PathBuf};

use beamtune_load::import::{ImportError, Tool, merge, read, read_from};
use beamtune_model::load::{
    Generator, Latency, LoadErrors, LoadModel, LoadResult, LoadSecond, LoadStep, Traffic,
};
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/load/import")
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn imported(name: &str) -> LoadResult {
    read(name, &bytes(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// All supported result files, without the README and the file that must be refused.
fn fixtures() -> Vec<String> {
    let mut names = Vec::new();
    for tool in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        if tool.is_dir() {
            for file in std::fs::read_dir(&tool).unwrap().map(|entry| entry.unwrap().path()) {
                let name = file.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
                if name != "gatling/simulation-binary.log" {
                    names.push(name);
                }
            }
        }
    }
    names.sort();
    assert!(names.len() >= 24, "{names:?}");
    names
}

fn step<'a>(result: &'a LoadResult, name: &str) -> &'a LoadStep {
    result.steps.iter().find(|step| step.name == name).unwrap_or_else(|| panic!("no {name} in {result:#?}"))
}

fn errors(step: &LoadStep) -> Vec<(&str, u64)> {
    step.errors.iter().map(|(kind, errors)| (kind.as_str(), errors.count)).collect()
}

/// Percentiles: names and times in nanoseconds.
fn percentiles(latency: &Option<Latency>) -> Vec<(&str, u64)> {
    let latency = latency.as_ref().expect("times");
    latency.percentiles_ns.iter().map(|(name, nanoseconds)| (name.as_str(), *nanoseconds)).collect()
}

fn extremes(latency: &Option<Latency>) -> (u64, Option<u64>, Option<u64>) {
    let latency = latency.as_ref().expect("times");
    (latency.count, latency.min_ns, latency.max_ns)
}

fn has_remark(result: &LoadResult, part: &str) -> bool {
    result.remarks.iter().any(|remark| remark.contains(part))
}

#[test]
fn perftest_seconds_and_summary_are_imported() {
    let result = imported("perftest/confirms.txt");
    assert_eq!((result.tool.as_str(), result.length_s), ("perf-test", 6.001));
    let (publish, receive) = (step(&result, "publish"), step(&result, "receive"));
    // 6 seconds of 1,000 messages per second, each to the queues of both consumers.
    assert!((5_990..6_030).contains(&publish.done), "{}", publish.done);
    assert!((11_980..12_060).contains(&receive.done), "{}", receive.done);
    assert_eq!(result.done(), receive.done, "a received message counts once");
    let names = [("p50", 567_000), ("p75", 731_000), ("p95", 3_033_000), ("p99", 5_109_000)];
    assert_eq!(percentiles(&receive.response), names);
    assert_eq!(publish.response.as_ref().and_then(|times| times.percentile_ns("p99")), Some(3_765_000));
    assert!(publish.errors.is_empty());
    let seconds: Vec<_> = result.seconds.iter().map(|second| (second.second, second.p99_ns)).collect();
    assert_eq!(seconds[0], (0, Some(11_940_000)));
    assert_eq!((seconds.len(), seconds[5].0), (6, 5));
}

#[test]
fn corrected_times_of_wrk_are_response_times() {
    let result = imported("wrk/latency.txt");
    assert_eq!(result.targets, ["http://127.0.0.1:18431/"]);
    assert_eq!((result.length_s, result.model), (3.0, LoadModel::Closed { devices: 10 }));
    let step = step(&result, "request");
    assert_eq!((step.done, errors(step)), (387_915, vec![]));
    assert_eq!(step.service, None);
    let expected = [("p50", 48_000), ("p75", 52_000), ("p90", 82_000), ("p99", 3_610_000)];
    assert_eq!(percentiles(&step.response), expected);
    assert_eq!(extremes(&step.response), (387_915, None, Some(11_200_000)));
    assert!(has_remark(&result, "Only the maximum is measured"));
}

#[test]
fn wrk_without_latency_has_error_kinds_but_no_percentiles() {
    let result = imported("wrk/no-latency.txt");
    let request = step(&result, "request");
    assert_eq!((request.done, errors(request)), (0, vec![("status", 293_895)]));
    assert!(percentiles(&request.response).is_empty());
    let result = imported("wrk/errors.txt");
    let request = step(&result, "request");
    assert_eq!((request.done, errors(request)), (174, vec![("connection", 3)]));
    assert!(has_remark(&result, "p99 omitted: 174 values"));
}

#[test]
fn wrk2_has_response_times_and_with_an_option_service_times() {
    let result = imported("wrk2/latency.txt");
    assert_eq!((result.tool.as_str(), result.model), ("wrk2", LoadModel::Unknown));
    let request = step(&result, "request");
    assert_eq!((request.done, &request.service), (2491, &None));
    let expected =
        [("p50", 880_000), ("p75", 1_570_000), ("p90", 3_930_000), ("p99", 8_110_000), ("p99.9", 13_850_000)];
    assert_eq!(percentiles(&request.response), expected);
    assert_eq!(extremes(&request.response), (2490, None, Some(14_600_000)));

    let result = imported("wrk2/uncorrected.txt");
    let request = step(&result, "request");
    assert_eq!(percentiles(&request.response)[0], ("p50", 980_000));
    assert_eq!(percentiles(&request.service)[0], ("p50", 34_000));
    assert_eq!(request.response.as_ref().unwrap().mean_ns, Some(1_610_000.0));
    assert_eq!(request.service.as_ref().unwrap().mean_ns, Some(352_000.0));
}

#[test]
fn wrk2_without_latency_must_be_named() {
    let text = bytes("wrk/no-latency.txt");
    let named = read_from("x", text.as_slice(), Some(Tool::Wrk2)).unwrap();
    assert_eq!((named.tool.as_str(), named.model), ("wrk2", LoadModel::Unknown));
    let refused = read_from("x", text.as_slice(), Some(Tool::K6)).unwrap_err().to_string();
    assert!(
        refused
            .starts_with("x was written by wrk, not by k6; supported files of k6: JSON of --summary-export"),
        "{refused}"
    );
}

#[test]
fn only_the_log_of_h2load_has_percentiles() {
    let result = imported("h2load/requests.txt");
    assert_eq!((result.length_s, result.model), (0.00909, LoadModel::Closed { devices: 5 }));
    let request = step(&result, "request");
    assert_eq!((request.done, request.received_bytes), (200, Some(2400)));
    assert_eq!(extremes(&request.service), (200, Some(30_000), Some(3_760_000)));
    assert!(percentiles(&request.service).is_empty());
    let connect = step(&result, "connect");
    assert!(connect.is_connect);
    assert_eq!(extremes(&connect.service), (5, Some(55_000), Some(230_000)));

    let log = imported("h2load/log.tsv");
    let request = step(&log, "request");
    assert_eq!((request.done, extremes(&request.service)), (200, (200, Some(30_000), Some(3_764_000))));
    assert!(request.service.as_ref().unwrap().histogram.is_some());
    assert_eq!(log.seconds.iter().map(|second| second.done).sum::<u64>(), 200);
}

#[test]
fn h2load_statuses_are_errors_and_the_warm_up_is_excluded() {
    let result = imported("h2load/duration.txt");
    assert!((result.length_s - 3.0).abs() < 0.01, "{}", result.length_s);
    let request = step(&result, "request");
    assert_eq!((request.done, errors(request)), (0, vec![("status", 147_743)]));
    assert_eq!(result.steps.len(), 1, "h2load prints 0us for connections of the warm-up");
}

#[test]
fn both_k6_summary_formats_are_imported() {
    let result = imported("k6/summary-export.json");
    assert!((result.length_s - 4.004).abs() < 0.001);
    let request = step(&result, "http_req");
    assert_eq!((request.done, errors(request)), (81, vec![("other", 40)]));
    let expected = [("p50", 129_465), ("p90", 1_986_483), ("p95", 10_877_550)];
    assert_eq!(percentiles(&request.service), expected);
    assert_eq!(extremes(&request.service), (81, Some(89_512), Some(14_595_759)));
    assert_eq!((&request.response, &request.lag, &request.first_byte), (&None, &None, &None));
    assert!(has_remark(&result, "p99, p99.9 omitted: 81 values"));

    let result = imported("k6/handle-summary.json");
    assert_eq!(result.length_s, 4.001_753_459);
    assert_eq!(percentiles(&step(&result, "http_req").service)[2], ("p95", 3_976_939));
}

#[test]
fn dropped_iterations_of_k6_are_errors() {
    let result = imported("k6/dropped.json");
    let request = step(&result, "http_req");
    assert_eq!((request.done, errors(request)), (6, vec![("dropped", 15)]));
    assert_eq!(percentiles(&request.first_byte), [("p50", 491_943)]);
}

#[test]
fn k6_points_as_json_and_csv_are_equal() {
    let (json, csv) = (imported("k6/out.json"), imported("k6/out.csv"));
    for result in [&json, &csv] {
        let right = step(result, "GET http://127.0.0.1:18431/");
        assert_eq!((right.done, extremes(&right.service)), (5, (5, Some(192_791), Some(7_741_446))));
        assert_eq!(errors(step(result, "GET http://127.0.0.1:18431/missing")), [("status", 1)]);
        assert_eq!(errors(step(result, "GET http://127.0.0.1:9/")), [("refused", 1)]);
        let seconds: Vec<_> = result.seconds.iter().map(|second| (second.done, second.errors)).collect();
        assert_eq!(seconds, [(1, 2), (2, 0), (2, 0)]);
    }
    assert_eq!(json.steps, csv.steps);
    assert!((json.length_s - 2.0).abs() < 0.02);
}

#[test]
fn all_three_locust_files_are_imported() {
    let result = imported("locust/stats.csv");
    let root = step(&result, "GET /");
    assert_eq!((root.done, root.errors.len()), (327, 0));
    let expected =
        [("p50", 0), ("p66", 1_000_000), ("p75", 1_000_000), ("p80", 2_000_000), ("p90", 4_000_000)];
    assert_eq!(percentiles(&root.service)[..5], expected);
    let missing = step(&result, "GET /missing");
    assert_eq!((missing.done, errors(missing)), (0, vec![("other", 53)]));

    let result = imported("locust/stats_history.csv");
    assert_eq!((result.length_s, result.model), (4.0, LoadModel::Closed { devices: 5 }));
    assert_eq!(step(&result, "GET /").done, 327);
    let seconds: Vec<_> = result.seconds.iter().map(|second| (second.done, second.errors)).collect();
    assert_eq!(seconds, [(83, 12), (79, 16), (83, 12), (82, 13)]);

    let result = imported("locust/stats.json");
    let root = step(&result, "GET /");
    assert_eq!((root.done, extremes(&root.service)), (386, (386, Some(136_975), Some(26_959_780))));
    let expected = [("p50", 0), ("p75", 1_000_447), ("p90", 4_001_791), ("p99", 27_000_831)];
    assert_eq!(
        percentiles(&root.service),
        expected,
        "rounded by Locust, then by the histogram to a thousandth"
    );
    assert_eq!((result.seconds[1].done, result.seconds[1].errors), (82, 13));
}

#[test]
fn tsung_log_and_dump_are_imported() {
    let result = imported("tsung/tsung.log");
    let request = step(&result, "request");
    assert_eq!((request.done, errors(request)), (26, vec![("status", 26)]));
    assert_eq!(extremes(&request.service), (52, Some(34_000), Some(28_668_000)));
    let mean_ns = request.service.as_ref().unwrap().mean_ns.unwrap();
    let expected_ns = (4.666_777_777_777_777 * 36.0 + 1.912_437_500_000_000_5 * 16.0) / 52.0 * 1e6;
    assert!((mean_ns - expected_ns).abs() < 1.0);
    assert!(percentiles(&request.service).is_empty());
    assert_eq!(step(&result, "connect").done, 26);

    let result = imported("tsung/tsung.dump");
    assert_eq!(errors(step(&result, "get /missing")), [("status", 26)]);
    let root = step(&result, "get /");
    assert_eq!((root.done, extremes(&root.service).2), (26, Some(28_668_000)));
    assert_eq!(result.seconds.iter().map(|second| second.done + second.errors).sum::<u64>(), 52);
}

#[test]
fn all_gatling_text_files_are_imported() {
    for name in ["gatling/stats.json", "gatling/stats.js"] {
        let result = imported(name);
        assert_eq!((result.length_s, result.steps.len()), (4.0, 3), "{name}");
        assert_eq!(errors(step(&result, "shop / missing")), [("other", 40)]);
        assert_eq!(step(&result, "nobody").service, None);
    }
    let root = imported("gatling/stats.json");
    let expected = [("p50", 6_000_000), ("p75", 11_000_000), ("p95", 23_000_000)];
    assert_eq!(percentiles(&step(&root, "front page").service), expected);
    let all = imported("gatling/global_stats.json");
    assert_eq!(percentiles(&step(&all, "All Requests").service), expected);

    let log = imported("gatling/simulation.log");
    assert_eq!(log.tool, "gatling 3.9.5");
    assert_eq!(errors(step(&log, "shop / missing")), [("status", 40)]);
    assert_eq!(errors(step(&log, "nobody")), [("refused", 40)]);
    let front = step(&log, "front page");
    assert_eq!(extremes(&front.service), (40, Some(1_000_000), Some(122_000_000)));

    let name = "gatling/simulation-binary.log";
    let refused = read(name, &bytes(name)).unwrap_err().to_string();
    assert!(refused.ends_with("import js/stats.js of its report"), "{refused}");
}

#[test]
fn oha_errors_have_kinds() {
    let result = imported("oha/requests.json");
    let request = step(&result, "request");
    assert_eq!((request.done, request.received_bytes), (300, Some(3600)));
    assert_eq!(extremes(&request.service), (300, Some(18_123), Some(519_846)));
    assert_eq!(request.service.as_ref().unwrap().percentile_ns("p99"), Some(332_736));
    assert_eq!(request.service.as_ref().unwrap().percentile_ns("p99.9"), None);
    assert_eq!(request.first_byte.as_ref().unwrap().percentile_ns("p50"), Some(60_157));

    let result = imported("oha/refused.json");
    let request = step(&result, "request");
    assert_eq!((errors(request), &request.service), (vec![("refused", 20)], &None));

    let result = imported("oha/corrected.json");
    assert_eq!((errors(step(&result, "request")), result.unfinished), (vec![("status", 200)], 3));
    assert!(has_remark(&result, "--latency-correction"));
}

#[test]
fn emqtt_bench_has_counts_by_counter_and_second() {
    let result = imported("emqtt-bench/pub.txt");
    let publish = step(&result, "publish");
    assert_eq!((result.length_s, publish.done, errors(publish)), (5.0, 150, vec![("other", 1)]));
    assert_eq!(publish.errors["other"].first, "client(7): publish error - {shutdown,tcp_closed}");
    let seconds: Vec<_> = result.seconds.iter().map(|second| second.done).collect();
    assert_eq!(seconds, [0, 3, 47, 50, 50]);

    let result = imported("emqtt-bench/sub.txt");
    let receive = step(&result, "receive");
    assert_eq!((result.length_s, receive.done), (62.0, 1920));
    let service = receive.service.as_ref().unwrap();
    assert_eq!((service.count, service.mean_ns, service.max_ns), (1920, Some(3_250_000.0), None));
    assert!(service.percentiles_ns.is_empty());
    assert_eq!(errors(step(&result, "connect")), [("connect", 2)]);
}

#[test]
fn imported_results_have_no_own_lag_and_say_so() {
    for name in fixtures() {
        let result = imported(&name);
        assert_eq!(result.generator.own_lag, None, "{name}");
        assert_eq!(result.generator.judged_seconds, 0, "{name}");
        assert!(result.steps.iter().all(|step| step.lag.is_none()), "{name}");
        assert!(has_remark(&result, "the generator's own lag"), "{name}");
        let unknown = |second: &LoadSecond| second.due.is_none() && second.cores.is_none();
        assert!(result.seconds.iter().all(unknown), "{name}");
    }
}

#[test]
fn the_error_for_an_unknown_format_lists_the_supported_ones() {
    let refused = read("notes.txt", b"dear diary").unwrap_err().to_string();
    assert!(
        refused.starts_with("notes.txt: not recognised as a load result; supported are beamtune ("),
        "{refused}"
    );
    for tool in Tool::ALL {
        assert!(refused.contains(tool.name()), "{tool}");
        assert_eq!(Tool::from_name(tool.name()), Some(tool));
    }
    assert!(matches!(read("x", b""), Err(ImportError::Unknown { .. })));
    assert!(read("x", b"\x1f\x8b\x08").unwrap_err().to_string().contains("gunzip"));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let mut text = String::from_utf8(bytes("h2load/log.tsv")).unwrap();
    text = text.replacen("\t200\t", "\t\u{1b}[2J\t", 3).replacen("\t\u{1b}[2J\t", "\t200\t", 2);
    let refused = read("log", text.as_bytes()).unwrap_err();
    let ImportError::Malformed { line, expected, found, .. } = refused else { panic!("{refused}") };
    assert_eq!((line, expected.starts_with("microseconds since 1970")), (3, true));
    assert!(found.contains('\u{1b}'), "the code that prints it must sanitize it");
}

#[test]
fn truncated_files_are_refused_or_have_a_remark() {
    for name in fixtures() {
        let whole = bytes(&name);
        let result = imported(&name);
        for part in 1..20 {
            let cut = &whole[..whole.len() * part / 20];
            if let Ok(partial) = read(&name, cut) {
                // Two cases cannot be detected: a file with a line per request that ends between two lines, and a stats.js that ends in the
                // functions after its numbers. A file with totals at its end must not be treated as complete.
                let is_by_line =
                    ["k6/out", "stats_history", "tsung", "simulation", "log.tsv", "emqtt-bench", "stats.js"];
                let has_remark = partial.remarks.iter().any(|remark| {
                    ["Cut off", "is missing", "cut off"].iter().any(|part| remark.contains(part))
                });
                assert!(
                    has_remark
                        || is_by_line.iter().any(|part| name.contains(part) && !name.ends_with("stats.json")),
                    "{name} cut at {part}/20: {partial:#?}"
                );
                assert!(partial.done() <= result.done() + result.errors(), "{name} cut at {part}/20");
            }
        }
    }
}

#[test]
fn only_results_with_histograms_are_merged() {
    let pair = |name: &str| vec![(name.to_owned(), imported(name)), (format!("{name}.2"), imported(name))];
    let merged = merge(pair("h2load/log.tsv")).unwrap();
    let request = step(&merged, "request");
    assert_eq!((request.done, extremes(&request.service)), (400, (400, Some(30_000), Some(3_764_000))));
    let one = imported("h2load/log.tsv");
    assert_eq!(percentiles(&request.service), percentiles(&step(&one, "request").service));
    assert_eq!(
        (merged.length_s, merged.seconds[0].done, merged.seconds[0].p99_ns),
        (one.length_s, 400, None)
    );
    for name in
        ["k6/out.json", "k6/out.csv", "tsung/tsung.dump", "locust/stats.json", "gatling/simulation.log"]
    {
        assert_eq!(merge(pair(name)).unwrap().done(), 2 * imported(name).done(), "{name}");
    }
    for name in ["wrk/latency.txt", "wrk2/latency.txt", "k6/summary-export.json", "oha/requests.json"] {
        let refused = merge(pair(name)).unwrap_err().to_string();
        assert!(refused.contains("percentiles cannot be merged"), "{refused}");
    }
    let mixed = vec![pair("k6/out.json").remove(0), pair("h2load/log.tsv").remove(0)];
    assert!(merge(mixed).unwrap_err().to_string().contains("measure different times"));
    assert!(merge(Vec::new()).is_err());
}

#[test]
fn a_file_with_many_requests_is_read_as_a_stream() {
    // Three hours with one request per second, generated while the file is read.
    struct Hours {
        second: u64,
        line: Vec<u8>,
    }
    impl std::io::Read for Hours {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.line.is_empty() && self.second < 10_800 {
                let began_us = 1_795_236_498_000_000 + self.second * 1_000_000;
                self.line = format!("{began_us}\t200\t{}\n", 100 + self.second % 50).into_bytes();
                self.second += 1;
            }
            let count = self.line.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.line[..count]);
            self.line.drain(..count);
            Ok(count)
        }
    }
    let result = read_from("hours", Hours { second: 0, line: Vec::new() }, None).unwrap();
    assert_eq!((result.done(), result.seconds.len()), (10_800, 10_800));
    assert!(result.seconds.iter().all(|second| second.p99_ns.is_some()));
}

#[test]
fn a_run_that_is_too_long_is_refused() {
    let text = "1795236498000000\t200\t5\n1895236498000000\t200\t5\n";
    assert!(matches!(read("x", text.as_bytes()), Err(ImportError::TooLarge { .. })));
}

fn schema() -> jsonschema::Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/load-result.schema.json");
    let text = std::fs::read_to_string(path).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

fn assert_fits(schema: &jsonschema::Validator, name: &str, result: &LoadResult) {
    let value = serde_json::to_value(result).unwrap();
    let errors: Vec<_> =
        schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
    let read: LoadResult = serde_json::from_value(value).unwrap();
    assert_eq!(read.steps, result.steps, "{name}");
}

#[test]
fn every_imported_result_matches_the_schema() {
    let schema = schema();
    for name in fixtures() {
        assert_fits(&schema, &name, &imported(&name));
    }
}

#[test]
fn a_result_of_beamtune_matches_the_schema_and_an_invalid_one_does_not() {
    let latency = Some(Latency {
        count: 3,
        min_ns: Some(1),
        mean_ns: Some(2.5),
        percentiles_ns: [("p50".to_owned(), 2), ("p99.9".to_owned(), 3)].into(),
        max_ns: Some(3),
        histogram: Some("SElTVA==".to_owned()),
    });
    let error = LoadErrors { count: 1, first: "no answer in 5 s".to_owned() };
    let second = LoadSecond {
        second: -1,
        due: Some(3),
        done: 2,
        errors: 1,
        connected: Some(10),
        waiting: Some(0),
        p50_ns: Some(2),
        p99_ns: None,
        cores: Some(0.5),
        bound: Some("late".to_owned()),
    };
    let result = LoadResult {
        version: 1,
        tool: "beamtune 0.1.0".to_owned(),
        targets: vec!["http://127.0.0.1/".to_owned()],
        began_unix_s: Some(1e9),
        began_monotonic_ns: Some(1),
        length_s: 10.0,
        model: LoadModel::Open { per_second: 100.0, devices: 10 },
        seed: Some(u64::MAX),
        is_interrupted: true,
        generator: Generator {
            processes: 1,
            threads: 2,
            cpu_s: Some(1.5),
            own_lag: latency.clone(),
            bound_seconds: 1,
            judged_seconds: 10,
        },
        unfinished: 1,
        traffic: Some(Traffic { sent_bytes: 1, received_bytes: 2, messages: 3, reconnects: 4 }),
        steps: vec![LoadStep {
            name: "get".to_owned(),
            is_connect: false,
            is_send: false,
            done: 2,
            errors: [("connect_timeout".to_owned(), error)].into(),
            received_bytes: Some(5),
            lag: latency.clone(),
            service: latency.clone(),
            response: latency,
            first_byte: None,
        }],
        seconds: vec![second],
        remarks: vec![],
    };
    let schema = schema();
    assert_fits(&schema, "ours", &result);
    let value = serde_json::to_value(&result).unwrap();
    for (pointer, wrong) in [
        ("/version", serde_json::json!(2)),
        ("/asked/model", "half-open".into()),
        ("/steps/0/service/percentiles_ns", serde_json::json!({"median": 5})),
        ("/steps/0/done", serde_json::json!(-1)),
        ("/seconds/0/asked", "many".into()),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(pointer).unwrap() = wrong;
        assert!(!schema.is_valid(&value), "{pointer}");
    }
}

/// The bytes of a fixture, some of them changed, deleted or repeated.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let names = fixtures();
    let change = (any::<prop::sample::Index>(), 0..4_u8, any::<u8>(), 1..40_usize);
    (prop::sample::select(names), prop::collection::vec(change, 1..8)).prop_map(|(name, changes)| {
        let mut bytes = bytes(&name);
        for (place, change, byte, length) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                // This makes numbers large.
                _ => bytes[at..end]
                    .iter_mut()
                    .filter(|byte| byte.is_ascii_digit())
                    .for_each(|byte| *byte = b'9'),
            }
        }
        bytes
    })
}

/// Checks conditions that every result and every error must meet.
fn check_invariants(bytes: &[u8]) {
    for tool in [None, Some(Tool::Wrk2)] {
        match read_from("x", bytes, tool) {
            Ok(result) => {
                assert!(result.length_s.is_finite() && result.length_s >= 0.0);
                assert!(result.done().checked_add(result.errors()).is_some());
                assert!(result.steps.len() <= 1001 && !result.remarks.is_empty());
                let _ = merge(vec![("a".to_owned(), result.clone()), ("b".to_owned(), result)]);
            }
            Err(error) => assert!(error.to_string().len() < 5_000),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_files_cause_no_panic(bytes in damaged()) {
        check_invariants(&bytes);
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), head in 0..12_usize) {
        let heads: [&[u8]; 12] = [
            b"", b"{\"metrics\":{", b"[{", b"Type,Name,Request Count\n", b"Timestamp,User Count,Type,Name\n",
            b"# stats: dump at 5\nstats: ", b"#date;pid;id;\n", b"var stats = {numberOfRequests:", b"RUN\t",
            b"Running 1s test @ x\n", b"starting benchmark...\nrequests: ", b"metric_name,timestamp,metric_value\n",
        ];
        check_invariants(&[heads[head], &bytes].concat());
    }
}
