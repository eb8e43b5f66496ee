use beamtune_load::program::*;
use beamtune_load::protocol::{http::HttpRequest, *};
use beamtune_load::template::Template;
use beamtune_load::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let address = a[1].parse().unwrap();
    let devices: u64 = a[2].parse().unwrap();
    let seconds: u64 = a[3].parse().unwrap();
    let rate: Option<f64> = a.get(4).map(|r| r.parse().unwrap());
    let path = Template::literal("/");
    let request = HttpRequest::new("GET", &path, &[("Host".into(), Template::literal(a[1].clone()))], None);
    let s = clock::SECOND_NS;
    let kind = Kind {
        name: "q".into(),
        devices,
        endpoint: Endpoint { address, sources: Arc::new([]), tls: None },
        protocol: Protocol::Http,
        ops: vec![
            Op::Connect { step: 0 },
            Op::Send { step: 1, message: Message::Http(Box::new(request)), checks: Box::default() },
            Op::Next,
        ],
        body: 1,
        connect_timeout_ns: 3 * s,
        timeout_ns: 10 * s,
        pause_ns: s / 10,
    };
    let plan = Plan {
        kinds: vec![kind],
        steps: vec!["connect".into(), "GET /".into()],
        model: match rate {
            None => Model::Closed { ramp_ns: s / 2, sustain_ns: seconds * s, turns: None },
            Some(r) => Model::Open {
                profile: schedule::Profile { per_second: r, ramp_ns: 0, sustain_ns: seconds * s },
                spacing: schedule::Spacing::Poisson,
            },
        },
        seed: 1,
        start_ns: clock::now_ns() + s,
        connect_ns: s / 2,
        rundown_ns: 5 * s,
    };
    let stop = AtomicBool::new(false);
    let mut all = tally::Tally::new(2);
    engine::run(&plan, engine::Share { index: 0, of: 1 }, &stop, &mut |spell| {
        let t = &spell.tally;
        let st = t.steps[1].as_deref().cloned().unwrap_or_default();
        println!("{:3} {:.3}s asked {} done {} err {} cpu {:.2} conn {} wait {} | own lag p99 {:.0} max {:.0} | service p50 {:.0} p99 {:.0} resp p99 {:.0} us", spell.second, spell.length_ns as f64/1e9, t.asked, t.done(), t.errors(), t.cpu_ns as f64/1e9, t.connected, t.waiting,
            t.own_lag.percentile_ns(99.0) as f64/1e3, t.own_lag.percentile_ns(100.0) as f64/1e3, st.service.percentile_ns(50.0) as f64/1e3, st.service.percentile_ns(99.0) as f64/1e3, st.response.percentile_ns(99.0) as f64/1e3);
        all.add(t);
    }).unwrap();
    println!("per cpu second {:.0}", all.done() as f64 / (all.cpu_ns as f64 / 1e9));
    let st = all.steps[1].as_deref().unwrap();
    println!(
        "lag p99 {} service p50 {} p99 {} response p99 {}",
        st.lag.percentile_ns(99.0),
        st.service.percentile_ns(50.0),
        st.service.percentile_ns(99.0),
        st.response.percentile_ns(99.0)
    );
    for e in st.errors.iter() {
        println!("{e:?}");
    }
    println!(
        "{}",
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
    );
}
