//! Slowness is attributed correctly: a frozen generator is reported and does not affect the target's times; a frozen target increases
//! them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use beamtune_model::load::LoadResult;

use crate::common::{Process, folder, text, wait_until};
use crate::servers::{http, nginx};
use crate::{arrivals, load, step, wait_for_result};

/// Runs a load of 200 requests per second for five seconds, and calls `freeze` during the load, once `is_begun` is true.
fn run_with_freeze(url: &str, is_begun: impl FnMut() -> bool, freeze: impl FnOnce(&Process)) -> LoadResult {
    let generator =
        Process::start(&mut load(&[url, "--rate", "200", "--even", "--connections", "50", "--for", "5s"]));
    wait_until("the load has begun", is_begun);
    freeze(&generator);
    wait_for_result(generator)
}

fn freeze_for_a_second(process: &Process) {
    process.signal("STOP");
    sleep(Duration::from_secs(1));
    process.signal("CONT");
}

#[test]
fn frozen_generator_is_reported_and_does_not_affect_the_targets_times() {
    let served = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&served);
    let server = http(move || {
        let began = Instant::now();
        sleep(Duration::from_millis(2));
        times.lock().expect("times").push(began.elapsed());
    });
    let url = format!("http://{}/", server.address);
    let result = run_with_freeze(&url, || server.received.load(Ordering::Relaxed) > 300, freeze_for_a_second);

    let is_frozen = |words: &String| words.starts_with("a thread of the generator did not run for");
    let bounds: Vec<_> = result.seconds.iter().filter_map(|second| second.bound.clone()).collect();
    assert!(bounds.iter().any(is_frozen), "{bounds:?}");
    assert!(result.generator.bound_seconds >= 1);
    assert!(!result.remarks.is_empty());
    // No request was dropped: requests that were due while the generator was frozen were sent late.
    let get = step(&result, "GET /");
    assert_eq!((get.done, result.errors()), (1000, 0));
    let mut served = served.lock().expect("times").clone();
    served.sort();
    let target_p90 = served[served.len() * 90 / 100];
    let service = get.service.as_ref().expect("times");
    let p90 = Duration::from_nanos(service.percentile_ns("p90").expect("enough of them"));
    // A fifth of all requests were due in the frozen second. If that second were attributed to the target, half of these requests would
    // have taken more than half a second.
    assert!(p90 < target_p90 + Duration::from_millis(400), "{p90:?} {target_p90:?}");
}

#[test]
fn requests_due_while_the_generator_was_frozen_are_sent_or_counted_as_unfinished() {
    for rundown in ["10s", "0s"] {
        let (server, folder) = (http(|| {}), folder());
        let file = folder.path().join("load.toml");
        let words = format!(
            "[load]\nrate = 100\nspacing = \"fixed\"\nfor = \"2s\"\nrundown = \"{rundown}\"\n[devices.d]\n\
             count = 20\ntarget = \"http://{}\"\nsteps = [{{ request = \"/\" }}]\n",
            server.address
        );
        std::fs::write(&file, words).expect("written");
        let generator = Process::start(&mut load(&[&text(&file)]));
        wait_until("the load has begun", || server.received.load(Ordering::Relaxed) > 20);
        generator.signal("STOP");
        // Longer than the two seconds of the load.
        sleep(Duration::from_millis(2500));
        generator.signal("CONT");
        let result = wait_for_result(generator);
        let done = step(&result, "GET /").done;
        assert_eq!(
            (arrivals(&result), done + result.unfinished, result.errors()),
            (200, 200, 0),
            "{rundown}"
        );
        assert_eq!(result.unfinished > 0, rundown == "0s", "{done}");
        assert!(result.generator.bound_seconds > 0, "{rundown}");
    }
}

#[test]
fn frozen_target_increases_latencies_and_is_not_attributed_to_the_generator() {
    let Some(nginx) = nginx(1) else { return };
    let url = format!("http://127.0.0.1:{}/", nginx.port);
    for _ in 0..5 {
        let began = Instant::now();
        let result = run_with_freeze(
            &url,
            || began.elapsed() > Duration::from_secs(2),
            |_| freeze_for_a_second(&nginx.process),
        );
        let get = step(&result, "GET /");
        assert_eq!((get.done, result.errors()), (1000, 0));
        let slow: Vec<_> = result.seconds.iter().filter(|s| s.p99_ns > Some(500_000_000)).collect();
        assert!(!slow.is_empty(), "{:?}", result.seconds);
        // Other processes may take the generator's CPU for a moment, which the generator reports. It must not report as much time as the
        // target was frozen.
        let bound: Vec<_> = result.seconds.iter().filter_map(|second| second.bound.as_deref()).collect();
        assert!(bound.iter().all(|words| milliseconds(words) < 500.0), "{bound:?}");
        if bound.is_empty() {
            // A fifth of all requests were due while the target was frozen, evenly spaced, so the 99th percentile is 0.95 s.
            let response = get.response.as_ref().expect("times");
            let p99 = Duration::from_nanos(response.percentile_ns("p99").expect("enough of them"));
            assert!((Duration::from_millis(850)..Duration::from_millis(1300)).contains(&p99), "{p99:?}");
            return;
        }
    }
    eprintln!("skipped in part: the host was too busy in five runs to check the latencies of a whole run");
}

/// Parses the first duration in the reason of a second; 0 if it contains none.
fn milliseconds(words: &str) -> f64 {
    let before = words.split(" ms").next().filter(|before| before.len() < words.len()).unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
