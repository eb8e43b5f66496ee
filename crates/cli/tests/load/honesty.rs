//! Who was slow: a generator that is frozen says so and leaves the target's times alone; a target that is frozen is not
//! excused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use beamtune_model::load::LoadResult;

use crate::common::{Running, folder, text, wait_until};
use crate::servers::{http, nginx};
use crate::{asked, ended, load, step};

/// 200 requests a second for five seconds, with one second's freeze in the middle of whatever `freeze` gives.
fn frozen(url: &str, is_begun: impl FnMut() -> bool, freeze: impl FnOnce(&Running)) -> LoadResult {
    let generator =
        Running::start(&mut load(&[url, "--rate", "200", "--even", "--connections", "50", "--for", "5s"]));
    wait_until("the load has begun", is_begun);
    freeze(&generator);
    ended(generator)
}

fn for_a_second(process: &Running) {
    process.signal("STOP");
    sleep(Duration::from_secs(1));
    process.signal("CONT");
}

#[test]
fn a_frozen_generator_says_so_and_the_targets_times_stay() {
    let served = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&served);
    let server = http(move || {
        let began = Instant::now();
        sleep(Duration::from_millis(2));
        times.lock().expect("times").push(began.elapsed());
    });
    let url = format!("http://{}/", server.address);
    let result = frozen(&url, || server.heard.load(Ordering::Relaxed) > 300, for_a_second);

    let is_told = |words: &String| words.starts_with("a thread of the generator did not run for");
    let told: Vec<_> = result.seconds.iter().filter_map(|second| second.bound.clone()).collect();
    assert!(told.iter().any(is_told), "{told:?}");
    assert!(result.generator.bound_seconds >= 1);
    assert!(!result.remarks.is_empty());
    // None was left out: what was due while it was frozen was sent, late.
    let get = step(&result, "GET /");
    assert_eq!((get.done, result.errors()), (1000, 0));
    let mut served = served.lock().expect("times").clone();
    served.sort();
    let target_p90 = served[served.len() * 90 / 100];
    let service = get.service.as_ref().expect("times");
    let p90 = Duration::from_nanos(service.percentile_ns("p90").expect("enough of them"));
    // A fifth of all were due in the second in which it was frozen: if that counted, the middle one of them would have waited for half
    // of it.
    assert!(p90 < target_p90 + Duration::from_millis(400), "{p90:?} {target_p90:?}");
}

#[test]
fn what_was_due_while_the_generator_was_frozen_over_its_end_is_sent_or_told() {
    for rundown in ["10s", "0s"] {
        let (server, folder) = (http(|| {}), folder());
        let file = folder.path().join("load.toml");
        let words = format!(
            "[load]\nrate = 100\nspacing = \"fixed\"\nfor = \"2s\"\nrundown = \"{rundown}\"\n[devices.d]\n\
             count = 20\ntarget = \"http://{}\"\nsteps = [{{ request = \"/\" }}]\n",
            server.address
        );
        std::fs::write(&file, words).expect("written");
        let generator = Running::start(&mut load(&[&text(&file)]));
        wait_until("the load has begun", || server.heard.load(Ordering::Relaxed) > 20);
        generator.signal("STOP");
        // Beyond the two seconds that it was to last.
        sleep(Duration::from_millis(2500));
        generator.signal("CONT");
        let result = ended(generator);
        let done = step(&result, "GET /").done;
        assert_eq!((asked(&result), done + result.unfinished, result.errors()), (200, 200, 0), "{rundown}");
        assert_eq!(result.unfinished > 0, rundown == "0s", "{done}");
        assert!(result.generator.bound_seconds > 0, "{rundown}");
    }
}

#[test]
fn a_frozen_target_shows_in_the_responses_and_the_generator_is_not_blamed() {
    let Some(nginx) = nginx(1) else { return };
    let url = format!("http://127.0.0.1:{}/", nginx.port);
    for _ in 0..5 {
        let began = Instant::now();
        let result =
            frozen(&url, || began.elapsed() > Duration::from_secs(2), |_| for_a_second(&nginx.running));
        let get = step(&result, "GET /");
        assert_eq!((get.done, result.errors()), (1000, 0));
        let slow: Vec<_> = result.seconds.iter().filter(|s| s.p99_ns > Some(500_000_000)).collect();
        assert!(!slow.is_empty(), "{:?}", result.seconds);
        // Others on this machine may take the generator's CPU for a moment, and then it says so; it is not to say that it was
        // away for as long as the target.
        let bound: Vec<_> = result.seconds.iter().filter_map(|second| second.bound.as_deref()).collect();
        assert!(bound.iter().all(|words| milliseconds(words) < 500.0), "{bound:?}");
        if bound.is_empty() {
            // A fifth of all were due while it was frozen, evenly spread: the 99th of a hundred waited for 0.95 s.
            let response = get.response.as_ref().expect("times");
            let p99 = Duration::from_nanos(response.percentile_ns("p99").expect("enough of them"));
            assert!((Duration::from_millis(850)..Duration::from_millis(1300)).contains(&p99), "{p99:?}");
            return;
        }
    }
    eprintln!("the machine was too busy in five runs to judge what the whole run says");
}

/// The time that a second's reason names first; 0 where it names none.
fn milliseconds(words: &str) -> f64 {
    let before = words.split(" ms").next().filter(|before| before.len() < words.len()).unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
