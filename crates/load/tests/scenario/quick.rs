//! Tests loads without a scenario file.

use beamtune_load::LoadError;
use beamtune_load::clock::SECOND_NS;
use beamtune_load::program::Model;
use beamtune_load::scenario::{Action, QuickLoad, SCHEMES, Scenario};
use beamtune_load::schedule::Spacing;
use proptest::prelude::*;

use super::reference::assert_fits_the_schema;

fn quick(url: &str, options: &QuickLoad) -> Scenario {
    Scenario::quick(url, options).unwrap_or_else(|error| panic!("{url}: {error}"))
}

#[test]
fn a_rate_makes_an_open_load_of_get_requests() {
    let options =
        QuickLoad { per_second: Some(2000.0), spacing: Spacing::Fixed, seed: 9, ..QuickLoad::default() };
    let scenario = quick("http://127.0.0.1:8080/a?b=\"${device}\"", &options);
    let Model::Open { profile, spacing } = scenario.load.model else { panic!("{scenario:?}") };
    assert_eq!((profile.per_second, profile.ramp_ns, profile.sustain_ns), (2000.0, 0, 30 * SECOND_NS));
    assert_eq!((spacing, scenario.load.seed), (Spacing::Fixed, 9));
    let kind = &scenario.kinds[0];
    assert_eq!((kind.count, kind.target.path.as_str()), (100, ""));
    assert_eq!(kind.steps[0].name, "GET /a?b=\"${device}\"");
}

#[test]
fn without_a_rate_the_load_is_closed() {
    let scenario = quick("http://h", &QuickLoad { seconds: 1.5, ..QuickLoad::default() });
    let model = Model::Closed { ramp_ns: 0, sustain_ns: 3 * SECOND_NS / 2, turns: None };
    assert_eq!(scenario.load.model, model);
    let Action::Request(request) = &scenario.kinds[0].steps[0].action else { panic!("{scenario:?}") };
    assert_eq!((request.method.as_str(), request.path.fixed()), ("GET", Some(&b"/"[..])));
}

#[test]
fn idle_devices_connect_in_a_ramp_and_stay_connected() {
    let scenario =
        quick("mqtt://127.0.0.1", &QuickLoad { devices: 15_000, seconds: 60.0, ..QuickLoad::default() });
    let Model::Closed { ramp_ns, sustain_ns, turns: None } = scenario.load.model else {
        panic!("{scenario:?}")
    };
    assert_eq!((ramp_ns, sustain_ns, scenario.load.rundown_ns), (75 * SECOND_NS, 60 * SECOND_NS, 0));
    let actions: Vec<_> = scenario.kinds[0].steps.iter().map(|step| &step.action).collect();
    assert!(matches!(actions[..], [Action::Connect, Action::Sleep(_)]), "{actions:?}");
    let publishing = QuickLoad { devices: 1_000, per_second: Some(50.0), ..QuickLoad::default() };
    assert_eq!(quick("mqtt://127.0.0.1", &publishing).load.connect_ns, 5 * SECOND_NS);
    assert_eq!(quick("http://127.0.0.1", &publishing).load.connect_ns, SECOND_NS / 2);
}

#[test]
fn every_protocol_has_a_default_scenario_that_matches_the_schema() {
    for scheme in SCHEMES {
        for per_second in [None, Some(0.5), Some(1e7)] {
            let url = format!("{}://h:99", scheme.name());
            let options = QuickLoad { per_second, ..QuickLoad::default() };
            quick(&url, &options);
            assert_fits_the_schema(&url, &Scenario::quick_text(&url, &options).unwrap());
        }
    }
    let text = Scenario::quick_text("tcp://h:9", &QuickLoad::default()).unwrap();
    assert!(text.contains("framing = \"line\"\nsteps = [{ send = "), "{text}");
}

#[test]
fn errors_name_the_option() {
    let quick = QuickLoad::default;
    for (url, options, part) in [
        ("h:80", quick(), "target h:80: a target is a URL"),
        ("http://h/${devise}", quick(), "`${devise}` is unknown"),
        ("mqtt://h/a", quick(), "has no path"),
        ("http://h", QuickLoad { per_second: Some(0.0), ..quick() }, "rate 0: must be above 0"),
        ("http://h", QuickLoad { per_second: Some(f64::NAN), ..quick() }, "rate NaN: must be"),
        ("http://h", QuickLoad { devices: 0, ..quick() }, "devices 0: must be from 1"),
        ("http://h", QuickLoad { seconds: 0.0, ..quick() }, "time 0s: must be"),
        ("http://h", QuickLoad { seconds: f64::INFINITY, ..quick() }, "time infs: must be"),
        ("http://h", QuickLoad { seed: u64::MAX, ..quick() }, "seed 18446744073709551615: must be below"),
    ] {
        let error = Scenario::quick(url, &options).unwrap_err();
        assert!(matches!(error, LoadError::Quick { .. }) && error.to_string().contains(part), "{error}");
    }
}

proptest! {
    #[test]
    fn values_within_their_bounds_are_accepted(
        rate in prop::option::of(1e-6..1e7_f64), devices in 1..10_000_000_u64, seconds in 0.001..2_592_000.0_f64,
        seed in 0..i64::MAX as u64, path in "/[a-z\"'\\\\{}%=?&.$]{0,12}",
    ) {
        prop_assume!(!path.contains("${"));
        let options = QuickLoad { per_second: rate, spacing: Spacing::Poisson, devices, seconds, seed };
        let scenario = quick(&format!("http://h{path}"), &options);
        let Action::Request(request) = &scenario.kinds[0].steps[0].action else { panic!("{scenario:?}") };
        prop_assert_eq!(request.path.fixed(), Some(path.as_bytes()));
        prop_assert_eq!(scenario.load.seed, seed);
    }
}
