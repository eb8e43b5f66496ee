//! Every lab, sick and cured, on real VMs: what must be found is found, the culprit is named, and nothing else is.
//!
//! Each run takes some 15 s. By default those run that do not depend on a quiet machine, sick and cured beside each other,
//! each on one release, a different one from lab to lab. `make labs` runs all labs on all releases, one run at a time, because
//! they would disturb each other: BEAMTUNE_LABS=all (or names with commas between), BEAMTUNE_LAB_RELEASES="23,25,27,29",
//! and BEAMTUNE_LAB_REPORT=FILE gets a line for each run.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::path::Path;
use std::thread;
use std::time::Duration;

use common::{Otp, Running, beamtune, otp, run_for};
use serde_json::Value;

/// Labs that show what they show also beside other work on the machine.
const ROBUST: [&str; 17] = [
    "atom-leak",
    "descriptor-leak",
    "dirty-io-saturated",
    "ets-leak",
    "frozen-peer",
    "growing-queue",
    "growing-queue-and-atom-leak",
    "healthy-idle",
    "healthy-memory",
    "huge-port-table",
    "large-heaps",
    "nif-malloc-leak",
    "port-leak",
    "process-leak",
    "restart-loop",
    "scattered-survivors",
    "sub-binary-leak",
];

/// With so much CPU used by processes that are not the lab's, a starved VM is true and says nothing of the rule.
const DISTURBED_CORES: f64 = 0.8;

/// A line of `beamtune lab list`, in the form of the manifest.
struct Lab {
    name: String,
    expect: Vec<String>,
    allow: Vec<String>,
    sick: bool,
    /// The first release that can run it.
    min_otp: u32,
    needs_root: bool,
    /// It has a native library to be compiled.
    nif: bool,
}

fn labs() -> Vec<Lab> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    let mut labs: Vec<_> = std::fs::read_dir(folder)
        .expect("the lab")
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("lab.toml")).ok())
        .map(|text| {
            let manifest: toml::Table = text.parse().expect("a manifest");
            let list = |key: &str| -> Vec<String> {
                let values = manifest.get(key).and_then(|value| value.as_array());
                values.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
            };
            Lab {
                name: manifest["name"].as_str().expect("a name").to_owned(),
                expect: list("expect"),
                allow: list("allow"),
                sick: manifest.contains_key("sick"),
                min_otp: manifest
                    .get("min_otp")
                    .and_then(toml::Value::as_integer)
                    .map_or(0, |release| u32::try_from(release).expect("a release")),
                needs_root: manifest.get("needs_root").and_then(toml::Value::as_bool) == Some(true),
                nif: manifest.contains_key("nif"),
            }
        })
        .collect();
    labs.sort_by(|a, b| a.name.cmp(&b.name));
    let wanted = std::env::var("BEAMTUNE_LABS").unwrap_or_else(|_| ROBUST.join(","));
    if wanted != "all" {
        labs.retain(|lab| wanted.split(',').any(|name| name == lab.name));
        assert!(!labs.is_empty(), "no lab of {wanted}");
    }
    labs
}

/// The releases on which a lab runs now.
fn releases(index: usize) -> Vec<Otp> {
    match std::env::var("BEAMTUNE_LAB_RELEASES") {
        Ok(list) => list.split(',').filter_map(|release| otp(release.trim().parse().ok()?)).collect(),
        Err(_) => {
            let installed = common::all_otps();
            let chosen = installed.get(index % installed.len().max(1)).cloned();
            chosen.into_iter().collect()
        }
    }
}

/// What one run has shown.
#[derive(Default)]
struct Shown {
    /// What is wrong with it.
    faults: Vec<String>,
    /// The diagnosis.
    answer: Value,
    /// Resident memory, and what of it was not explained, in bytes; `None` where the pages were not looked at.
    memory: Option<(f64, f64)>,
    /// What the first remedy of what was to be found is estimated to give back, in bytes.
    estimate: Option<f64>,
}

/// What may stay unexplained: so much of what is resident, or so many bytes.
const UNEXPLAINED_SHARE: f64 = 0.03;
const UNEXPLAINED_BYTES: f64 = 8e6;

/// Resident memory and what of it is not explained, by the recording that the doctor has kept.
fn memory_of(recording: &Path) -> Option<(f64, f64)> {
    let said = run_for(beamtune().arg("memory").arg(recording).arg("--json"), Duration::from_secs(60));
    let page = matches!(said.status, Some(0 | 1)).then(|| said.json())?;
    page["resident_bytes"].as_f64().zip(page["unexplained_bytes"].as_f64())
}

/// One run: starts the lab, waits until its pathology is there, asks the doctor, and says what is wrong with the answer.
fn try_lab(lab: &Lab, otp: &Otp, cured: bool, seed: u32) -> Shown {
    let mut command = beamtune();
    command.args(["lab", "run", &lab.name, "--seed", &seed.to_string(), "--for", "150s"]);
    if cured {
        command.arg("--cured");
    }
    if let Some(root) = &otp.root {
        command.arg("--otp-root").arg(root);
    }
    let mut running = Running::start(&mut command);
    let ready = running.expect_line("lab ready ");
    let word =
        |key: &str| ready.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default().to_owned();
    let (node, culprit) = (word("node="), word("sick="));

    let folder = common::folder();
    let recording = folder.path().join("recording");
    let mut doctor = beamtune();
    doctor.args(["doctor", &node, "--for", "12s", "--json", "-o"]).arg(&recording);
    let said = run_for(&mut doctor, Duration::from_secs(90));
    // The lab ends with us; by SIGINT it takes down what it has set up.
    running.signal("INT");
    running.wait();

    if !matches!(said.status, Some(0 | 1)) {
        let faults = vec![format!("the doctor could not work: {}", said.stderr.trim())];
        return Shown { faults, ..Shown::default() };
    }
    let answer = said.json();
    let mut faults = Vec::new();
    let memory = memory_of(&recording);
    if let Some((resident, unexplained)) = memory
        && unexplained.abs() > UNEXPLAINED_BYTES.max(UNEXPLAINED_SHARE * resident)
    {
        faults.push(format!("{:.1} of {:.1} MB are not explained", unexplained / 1e6, resident / 1e6));
    }
    let found: Vec<&Value> = answer["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finding| finding["level"] != "notice")
        .collect();
    let all: Vec<&Value> = answer["findings"].as_array().into_iter().flatten().collect();
    // An expectation is a code, of a finding above "notice", or code and subject, of any finding.
    let hit = |finding: &Value, expectation: &str| match expectation.split_once(':') {
        Some((code, subject)) => finding["code"] == code && finding["subject"] == subject,
        None => finding["code"] == expectation && finding["level"] != "notice",
    };
    for expectation in &lab.expect {
        let hits: Vec<_> = all.iter().filter(|finding| hit(finding, expectation)).collect();
        if cured && !hits.is_empty() {
            faults.push(format!("{expectation} although it is cured: {}", hits[0]["summary"]));
        }
        if !cured && hits.is_empty() {
            faults.push(format!("no {expectation}"));
        }
    }
    if !cured && culprit != "-" && !lab.expect.is_empty() {
        let named = all.iter().any(|finding| {
            lab.expect.iter().any(|expectation| hit(finding, expectation))
                && finding.to_string().contains(&culprit)
        });
        if !named {
            faults.push(format!("the culprit {culprit} is not named"));
        }
    }
    for finding in &found {
        let code = finding["code"].as_str().unwrap_or_default();
        if code == "BT004" && foreign_cores(finding) >= DISTURBED_CORES {
            eprintln!("{}: BT004 is not counted, because the machine was busy with other work", lab.name);
            continue;
        }
        if !lab.expect.iter().chain(&lab.allow).any(|known| known.split(':').next() == Some(code)) {
            faults.push(format!("{code} was not to be found: {}", finding["summary"]));
        }
    }
    let expected_status = if found.is_empty() { 0 } else { 1 };
    if said.status != Some(expected_status) {
        faults.push(format!("exit status {:?} instead of {expected_status}", said.status));
    }
    let expected =
        || all.iter().filter(|finding| lab.expect.iter().any(|expectation| hit(finding, expectation)));
    let estimate = expected().find_map(|finding| finding["remedies"][0]["saves_bytes"].as_f64());
    Shown { faults, memory, estimate, answer }
}

/// CPU of other processes, as the finding itself has it.
fn foreign_cores(finding: &Value) -> f64 {
    let evidence = finding["evidence"].as_array().into_iter().flatten();
    evidence
        .filter(|evidence| evidence["what"] == "CPU of other processes")
        .find_map(|evidence| evidence["value"].as_f64())
        .unwrap_or(0.0)
}

/// Runs a lab sick and cured: beside each other where that does not matter, and one after the other where a table is made of it.
fn try_settings(lab: &Lab, otp: &Otp, settings: &[bool], seed: u32) -> Vec<(bool, Shown)> {
    let one = |cured: bool| (cured, try_lab(lab, otp, cured, seed));
    if std::env::var_os("BEAMTUNE_LABS").is_some() {
        return settings.iter().map(|cured| one(*cured)).collect();
    }
    thread::scope(|scope| {
        let runs: Vec<_> = settings.iter().map(|cured| scope.spawn(move || one(*cured))).collect();
        runs.into_iter().map(|run| run.join().expect("a run")).collect()
    })
}

/// A line of the report.
fn line(lab: &Lab, otp: &Otp, setting: &str, seed: u32, shown: &Shown) -> String {
    let Shown { faults, answer, memory, estimate } = shown;
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let findings = answer["findings"].as_array().into_iter().flatten();
    let codes: Vec<_> = findings.map(|f| format!("{} {}", word(&f["code"]), word(&f["level"]))).collect();
    let verdict = if faults.is_empty() { "right".to_owned() } else { faults.join("; ") };
    let mb = |bytes: Option<f64>| bytes.map_or(String::new(), |bytes| format!("{:.1}", bytes / 1e6));
    format!(
        "{}\t{}\t{setting}\t{seed}\t{}\t{verdict}\t{}\t{}\t{}\n",
        lab.name,
        otp.release,
        codes.join(", "),
        mb(memory.map(|memory| memory.0)),
        mb(memory.map(|memory| memory.1)),
        mb(*estimate),
    )
}

#[test]
fn labs_are_found_sick_and_not_found_cured() {
    let compiler =
        ["cc", "gcc"].iter().any(|name| std::process::Command::new(name).arg("--version").output().is_ok());
    let root = common::is_root();
    let mut report = String::new();
    let mut failures = Vec::new();
    let mut runs = 0;
    for (index, lab) in labs().iter().enumerate() {
        if lab.needs_root && !root {
            eprintln!("skipped, because the lab {} needs root", lab.name);
            continue;
        }
        if lab.nif && !compiler {
            eprintln!("skipped, because the lab {} needs a C compiler", lab.name);
            continue;
        }
        for otp in releases(index) {
            if otp.release < lab.min_otp {
                eprintln!(
                    "skipped on OTP {}, because the lab {} needs {}",
                    otp.release, lab.name, lab.min_otp
                );
                continue;
            }
            // Different on each run of the suite, and printed, so that a failure can be repeated.
            let seed = std::process::id().wrapping_mul(31).wrapping_add(index as u32) % 1_000_000;
            let settings: &[bool] = if lab.sick { &[false, true] } else { &[true] };
            for (cured, shown) in try_settings(lab, &otp, settings, seed) {
                runs += 1;
                let setting = if cured { "cured" } else { "sick" };
                let line = line(lab, &otp, setting, seed, &shown);
                eprint!("{line}");
                report.push_str(&line);
                if !shown.faults.is_empty() {
                    let which = format!("{} {setting} on OTP {} with seed {seed}:", lab.name, otp.release);
                    failures.push(format!("{which}\n    {}", shown.faults.join("\n    ")));
                }
            }
        }
    }
    if let Ok(path) = std::env::var("BEAMTUNE_LAB_REPORT") {
        std::fs::write(path, report).expect("the report");
    }
    assert!(failures.is_empty(), "{} of {runs} runs:\n{}", failures.len(), failures.join("\n"));
}
