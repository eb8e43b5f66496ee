//! `beamtune redact` on recordings of real nodes: their names are gone, the diagnosis is the same.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use common::{TestNode, all_otps, beamtune, folder, run};

/// The findings and what looked healthy, without the name of the node and what is said of single processes.
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
fn a_redacted_recording_of_a_real_node_is_judged_alike_and_does_not_name_it() {
    for otp in all_otps() {
        let folder = folder();
        let (file, copy) = (folder.path().join("a.btr"), folder.path().join("b.btr"));
        let eval = "register(acme_billing, spawn(fun() -> ets:new(acme_customers, [named_table]), receive stop -> ok end end))";
        let node = TestNode::start(&otp, &["-acme_secret", "hush-hush"], eval);
        let said = run(beamtune().args(["doctor", &node.name, "--for", "2s", "-o"]).arg(&file));
        assert!(said.status.is_some_and(|status| status < 2), "{}", said.stderr);
        let said = run(beamtune().arg("redact").arg(&file).arg("--modules").arg("-o").arg(&copy));
        assert_eq!(said.status, Some(0), "{}", said.stderr);
        assert!(said.stderr.contains("What stays"), "{}", said.stderr);

        let judged = |file| run(beamtune().args(["diagnose", "--json"]).arg(file)).json();
        let (before, after) = (judged(&file), judged(&copy));
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
