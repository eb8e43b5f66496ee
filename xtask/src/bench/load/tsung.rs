//! Debian's Tsung, and what of an exchange with a broker it can do.
//!
//! Its MQTT (ts_mqtt.erl of 1.7.0) does not do the exchange that the others do, so it is given what it can do at its best:
//!
//! - QoS 0: it does not wait for the message that comes back. Without a pause it does not even read it, so that all piles up in
//!   sockets; with a pause of 1 ms behind each message, the shortest, it reads what came meanwhile.
//! - QoS 1: what comes together with the acknowledgement that it waits for makes it wait for ever. So its devices publish and are
//!   acknowledged, but do not subscribe: half of what the others do.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::exchange::MESSAGE_BYTES;
use super::place::{Cores, on_core};
use crate::bench::process::output;

/// One that is there.
pub struct Tsung {
    /// `Tsung 1.7.0`.
    pub name: String,
}

impl Tsung {
    /// If it is installed.
    pub fn find() -> Option<Tsung> {
        let said = output(Command::new("tsung").arg("-v")).ok()?;
        Some(Tsung { name: name_in(&said)? })
    }

    /// What it does, in words.
    pub fn exchange(qos: u8) -> &'static str {
        match qos {
            0 => "each pauses for 1 ms and waits for nothing",
            _ => "only published and acknowledged, nobody subscribes",
        }
    }

    /// Starts it with that many devices; its files go into the folder.
    pub fn command(
        folder: &Path,
        cores: Cores,
        broker: SocketAddr,
        devices: usize,
        qos: u8,
    ) -> Result<Command> {
        let file = folder.join("tsung.xml");
        fs::write(&file, configuration(broker, devices, qos))?;
        let mut command = on_core(cores.generator, "tsung")?;
        // Its controller has a name on this host, which may be taken by another Tsung.
        let id = format!("beamtune_bench_{}", std::process::id());
        command.env("HOME", folder).args(["-n", "-i", &id, "-w", "0", "-f"]).arg(&file);
        command.arg("-l").arg(folder.join("tsung")).arg("start");
        Ok(command)
    }
}

/// `Tsung version 1.7.0`.
fn name_in(said: &str) -> Option<String> {
    Some(format!("Tsung {}", said.trim().strip_prefix("Tsung version ")?))
}

/// The controller's own VM makes the load, as on one machine it should: nothing is told from one VM to another.
/// Should all else fail, it ends by itself after some minutes.
fn configuration(broker: SocketAddr, devices: usize, qos: u8) -> String {
    let payload = "x".repeat(MESSAGE_BYTES);
    let topic = "bench/%%_topic%%";
    let subscribe =
        format!(r#"<request subst="true"><mqtt type="subscribe" topic="{topic}" qos="0"/></request>"#);
    let pause = r#"<thinktime value="0.001"/>"#;
    let (subscribe, pause) = if qos == 0 { (subscribe.as_str(), pause) } else { ("", "") };
    let (ip, port) = (broker.ip(), broker.port());
    format!(
        r#"<?xml version="1.0"?>
<!DOCTYPE tsung SYSTEM "/usr/share/tsung/tsung-1.0.dtd">
<tsung loglevel="error" version="1.0">
  <clients><client host="localhost" use_controller_vm="true" maxusers="{devices}"/></clients>
  <servers><server host="{ip}" port="{port}" type="tcp"/></servers>
  <load duration="2" unit="minute">
    <arrivalphase phase="1" duration="60" unit="second">
      <users maxnumber="{devices}" arrivalrate="200" unit="second"/>
    </arrivalphase>
  </load>
  <sessions>
    <session name="device" probability="100" type="ts_mqtt">
      <setdynvars sourcetype="random_string" length="12"><var name="topic"/></setdynvars>
      <request><mqtt type="connect" clean_start="true" keepalive="60"/></request>
      {subscribe}
      <for from="1" to="1000000000" incr="1" var="turn">
        <request subst="true"><mqtt type="publish" topic="{topic}" qos="{qos}">{payload}</mqtt></request>
        {pause}
      </for>
    </session>
  </sessions>
</tsung>
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_cannot_do_is_not_asked_of_it() {
        let broker = SocketAddr::from(([127, 0, 0, 1], 1883));
        let [qos_0, qos_1] = [0, 1].map(|qos| configuration(broker, 100, qos));
        assert!(qos_0.contains("subscribe") && qos_0.contains("thinktime"));
        assert!(!qos_1.contains("subscribe") && !qos_1.contains("thinktime"));
        assert!(qos_1.contains(r#"qos="1">xxxx"#) && qos_1.contains(r#"port="1883""#));
        assert_eq!(name_in("Tsung version 1.7.0\n").as_deref(), Some("Tsung 1.7.0"));
    }
}
