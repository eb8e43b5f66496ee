//! CPU time per MQTT message that a device publishes to itself through mosquitto: ours compared with rumqttc and Tsung.

use std::net::SocketAddr;

use anyhow::Result;

use super::exchange::{Contender, MESSAGE_BYTES, command_on, compare};
use super::mosquitto::Mosquitto;
use super::peers::Peers;
use super::placement::{Cores, on_core};
use super::tsung::Tsung;
use crate::bench::figure::Figure;
use crate::bench::{Bench, or_not_measured};

/// Numbers of devices that are measured.
const SIZES: [usize; 2] = [100, 1_000];
/// Minimum ratio of our messages per CPU second to those of rumqttc.
const MIN_RATIO: f64 = 1.0;
/// Minimum ratio of our messages per CPU second to those of Tsung.
const MIN_RATIO_TSUNG: f64 = 3.0;

/// Measures QoS 0 and 1, each with all numbers of devices.
pub fn measure(bench: &Bench, peers: &Peers, cores: Cores) -> Result<Vec<Figure>> {
    let mut broker = Mosquitto::start(bench.folder.path(), |program| on_core(cores.server, program))?;
    let tsung = Tsung::find();
    let mut figures = Vec::new();
    for qos in [0, 1] {
        for devices in SIZES {
            let what = format!(
                "MQTT messages at QoS {qos} that {devices} devices publish to themselves through {}",
                broker.version
            );
            let contenders = contenders(bench, peers, cores, broker.address, tsung.as_ref(), devices, qos)?;
            let mut random = bench.random(devices as u32 + u32::from(qos));
            let compared = compare(bench, &mut broker, &contenders, devices, &what, &mut random);
            figures.extend(or_not_measured(&what, compared)?);
        }
    }
    if tsung.is_none() {
        figures.push(Figure::not_measured(
            "the same against Tsung",
            "Tsung is not installed (scripts/install.sh bench)",
        ));
    }
    Ok(figures)
}

fn contenders<'a>(
    bench: &'a Bench,
    peers: &Peers,
    cores: Cores,
    broker: SocketAddr,
    tsung: Option<&Tsung>,
    devices: usize,
    qos: u8,
) -> Result<Vec<Contender<'a>>> {
    let rumqttc = Contender {
        name: peers.named("rumqttc")?,
        command: command_on(
            cores,
            peers.program("mqtt_rumqttc"),
            vec![broker.to_string(), devices.to_string(), qos.to_string()],
        ),
        limit: MIN_RATIO,
    };
    let tsung = tsung.map(|tsung| Contender {
        name: tsung.name.clone(),
        command: Box::new(move || Tsung::command(bench.folder.path(), cores, broker, devices, qos)),
        limit: MIN_RATIO_TSUNG,
    });
    let ours = Contender::ours(bench, cores, &scenario(broker, devices, qos))?;
    Ok([ours, rumqttc].into_iter().chain(tsung).collect())
}

fn scenario(broker: SocketAddr, devices: usize, qos: u8) -> String {
    let message = "x".repeat(MESSAGE_BYTES);
    format!(
        "[load]\nfor = \"1h\"\n\n[devices.mqtt]\ncount = {devices}\ntarget = \"mqtt://{broker}\"\n\
         on_connect = [{{ subscribe = \"bench/${{device}}\", qos = {qos} }}]\n\
         steps = [{{ publish = \"bench/${{device}}\", payload = \"{message}\", qos = {qos} }}, \"expect\"]\n"
    )
}
