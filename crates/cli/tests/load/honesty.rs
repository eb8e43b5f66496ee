//! Who was slow: a generator that is frozen says so and leaves the target's times alone; a target that is frozen is not
//! excused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use beamtune_model::load::LoadResult;

use crate::common::{Running, wait_until};
use crate::servers::{http, nginx};
use crate::{ended, load, step};

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
    let target_p99 = served[served.len() * 99 / 100];
    let service = get.service.as_ref().expect("times");
    let p99 = Duration::from_nanos(service.percentile_ns("p99").expect("enough of them"));
    // What a busy machine adds on the way is far from the second that it was frozen.
    assert!(p99 < target_p99 + Duration::from_millis(200), "{p99:?} {target_p99:?}");
}

#[test]
fn a_frozen_target_shows_in_the_responses_and_the_generator_is_not_blamed() {
    let Some(nginx) = nginx(1) else { return };
    let url = format!("http://127.0.0.1:{}/", nginx.port);
    let began = Instant::now();
    let result = frozen(&url, || began.elapsed() > Duration::from_secs(2), |_| for_a_second(&nginx.running));
    let get = step(&result, "GET /");
    assert_eq!((get.done, result.errors()), (1000, 0));
    // A fifth of all were due while it was frozen, evenly spread: the 99th of a hundred waited for 0.95 s.
    let response = get.response.as_ref().expect("times");
    let p99 = Duration::from_nanos(response.percentile_ns("p99").expect("enough of them"));
    assert!((Duration::from_millis(850)..Duration::from_millis(1300)).contains(&p99), "{p99:?}");
    let slow: Vec<_> = result.seconds.iter().filter(|s| s.p99_ns > Some(500_000_000)).collect();
    assert!(!slow.is_empty() && slow.iter().all(|second| second.bound.is_none()), "{slow:?}");
    let stalled = |second: &&beamtune_model::load::LoadSecond| {
        second.bound.as_ref().is_some_and(|words| words.contains("did not run"))
    };
    assert_eq!(result.seconds.iter().find(stalled), None);
}
