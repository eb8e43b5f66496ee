//! `beamtune redact` on recordings of real nodes: names are removed, and the diagnosis is unchanged.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use common::{TestNode, all_otps, beamtune, folder, run};

/// Returns the codes of findings, of rules that passed, and of rules that were not evaluated.
fn codes(json: &serde_json::Value) -> Vec<(String, String)> {
    ["findings", "healthy", "not_judged"]
        .iter()
        .flat_map(|part| {
            json[part].as_array().cloned().unwrap_or_default().into_iter().map(move |item| (part, item))
        })
        .map(|(part, item)| ((*part).to_owned(), item["code"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

#[test]
fn redacted_recording_has_the_same_diagnosis_and_contains_no_names() {
    for otp in all_otps() {
        let folder = folder();
        let (file, copy) = (folder.path().join("a.btr"), folder.path().join("b.btr"));
        let eval = "register(acme_billing, spawn(fun() -> ets:new(acme_customers, [named_table]), receive stop -> ok end end))";
        let node = TestNode::start(&otp, &["-acme_secret", "hush-hush"], eval);
        let output = run(beamtune().args(["doctor", &node.name, "--for", "2s", "-o"]).arg(&file));
        assert!(output.status.is_some_and(|status| status < 2), "{}", output.stderr);
        let output = run(beamtune().arg("redact").arg(&file).arg("--modules").arg("-o").arg(&copy));
        assert_eq!(output.status, Some(0), "{}", output.stderr);
        assert!(output.stderr.contains("Kept:"), "{}", output.stderr);

        let diagnose = |file| run(beamtune().args(["diagnose", "--json"]).arg(file)).json();
        let (before, after) = (diagnose(&file), diagnose(&copy));
        assert!(!codes(&before).is_empty(), "{before:#}");
        assert_eq!(codes(&after), codes(&before), "OTP {}", otp.release);

        let bytes = std::fs::read(&copy).expect("there");
        let raw = String::from_utf8_lossy(&bytes);
        let alive = node.name.split('@').next().expect("a name");
        for view in ["summary", "flags", "processes", "ets", "host", "schedulers", "alloc", "msacc"] {
            let shown = run(beamtune().arg("show").arg(&copy).args(["--view", view])).stdout;
            for secret in [alive, "127.0.0.1", "acme", "hush-hush", &node.cookie] {
                assert!(
                    !shown.contains(secret) && !raw.contains(secret),
                    "OTP {}: {secret} in {view}: {shown}",
                    otp.release
                );
            }
        }
    }
}
