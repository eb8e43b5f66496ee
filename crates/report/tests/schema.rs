//! Tests that JSON output conforms to the committed schema.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

use beamtune_model::*;
use beamtune_report::json::render;
use serde_json::Value;

fn schema() -> jsonschema::Validator {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/diagnosis.schema.json");
    let text = std::fs::read_to_string(path).expect("the schema");
    jsonschema::validator_for(&serde_json::from_str(&text).expect("JSON")).expect("a schema")
}

fn assert_valid(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).expect("JSON");
    let errors: Vec<_> =
        schema().iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
    value
}

#[test]
fn an_empty_diagnosis_fits_the_schema() {
    assert_valid(&render(&Period::default(), &Diagnosis::default()));
}

#[test]
fn a_full_diagnosis_fits_the_schema() {
    let finding = Finding {
        code: Code("BT001"),
        rule: "busy-waiting",
        level: Level::Warning,
        severity: 40.0,
        left_seconds: Some(90_000.0),
        confidence: Confidence::Inferred,
        claim: Some(Claim {
            account: Account::Delay,
            part: None,
            cost: Cost::Waiting(14_302.0),
            share: Some(0.5),
            explained: Some(1.0),
        }),
        title: "Busy wait uses 0.2 cores".to_owned(),
        detail: "of 0.4 used".to_owned(),
        subject: Some(Subject::process("shop (<0.99.0>)")),
        signals: vec![Signal::Unused(Use::Locks), Signal::GaveUp, Signal::WaitsFor(Subject::table("t"))],
        follows: Some(Follows { code: Code("BT002"), rule: "cpu-throttled", why: "one leads to the other" }),
        latent: false,
        evidence: vec![
            Evidence::number("CPU", 0.4, Unit::Cores).against(0.2, "judgement").with_text("of 2"),
            Evidence::text("flags", "+sbwt (default)"),
            Evidence::number("a quotient of nothing", f64::NAN, Unit::Ratio),
        ],
        against: vec!["it may be alone here".to_owned()],
        confirm: "",
        remedies: vec![Remedy {
            entry: "+sbwt".to_owned(),
            change: "+sbwt none".to_owned(),
            why: "it then sleeps".to_owned(),
            risk: "latency".to_owned(),
            releases: "all".to_owned(),
            at_run_time: false,
            prove: "compare".to_owned(),
            saves_bytes: Some(1e6),
        }],
    };
    let latent = Finding { latent: true, ..Finding::bare(Code("BT051"), 80.0) };
    let latent = Finding { title: "OTP 25.2.3 has a known defect".to_owned(), ..latent };
    let diagnosis = Diagnosis {
        verdicts: vec![
            Verdict { code: Code("BT001"), rule: "busy-waiting", outcome: Outcome::Found(vec![finding]) },
            Verdict { code: Code("BT051"), rule: "known-fixes", outcome: Outcome::Found(vec![latent]) },
            Verdict {
                code: Code("BT002"),
                rule: "cpu-throttled",
                outcome: Outcome::Healthy("fine".to_owned()),
            },
            Verdict {
                code: Code("BT003"),
                rule: "schedulers-against-quota",
                outcome: Outcome::NotJudged { reason: "no host".to_owned(), next: "go there".to_owned() },
            },
        ],
        cpu: Some(CpuAccount {
            cores: 2.0,
            seconds: 10.0,
            shares: Use::ALL
                .iter()
                .map(|what| Share { what: *what, cores: 0.1, how: "so".to_owned() })
                .collect(),
        }),
    };
    let mut facts = Facts::default();
    facts.set(facts::OTP_RELEASE, "25");
    let incarnation = Incarnation {
        id: 0,
        node: "a@b".to_owned(),
        os_pid: Some(7),
        boot: "1".to_owned(),
        mono0: 0,
        wall0: 1_700_000_000_000_000_000,
    };
    let mut builder = PeriodBuilder::new(Some(incarnation), facts, 1);
    builder.gap(Gap {
        begin: 0,
        end: 1_500_000_000,
        source: "vm".to_owned(),
        kind: TroubleKind::TimedOut,
        reason: "slow".to_owned(),
    });
    let value = assert_valid(&render(&builder.finish(), &diagnosis));
    // A latent defect does not affect the worst level, even if it is severe.
    assert_eq!(value["worst"], "warning");
    assert_eq!(value["findings"].as_array().map(Vec::len), Some(1));
    assert_eq!(value["latent"][0]["code"], "BT051");
    assert_eq!(value["findings"][0]["evidence"][2]["value"], Value::Null, "NaN is null in JSON");
    assert_eq!(value["period"]["began"], 1_700_000_000.0);
    assert_eq!(value["gaps"][0]["end_seconds"], 1.5);
}
