//! Debian's Tsung, with an MQTT load that it supports.
//!
//! Its devices cannot wait for their own messages (ts_mqtt.erl of 1.7.0). At QoS 0 they publish without reading, and at QoS 1 they hang if
//! a message arrives together with the awaited acknowledgement. So half of them publish, and at QoS 1 wait for acknowledgements. Each of
//! the other half subscribes to the topic of one publisher, and acknowledges. The work per message is the same as that of the other
//! generators.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::exchange::MESSAGE_BYTES;
use super::placement::{Cores, on_core};
use crate::bench::process::output;

/// An installed Tsung.
pub struct Tsung {
    /// Name and version: `Tsung 1.7.0`.
    pub name: String,
}

impl Tsung {
    /// Returns Tsung, if it is installed.
    pub fn find() -> Option<Tsung> {
        let version = output(Command::new("tsung").arg("-v")).ok()?;
        Some(Tsung { name: name_in(&version)? })
    }

    /// Returns the command for this number of devices; the files of the command are written to the folder.
    pub fn command(
        folder: &Path,
        cores: Cores,
        broker: SocketAddr,
        devices: usize,
        qos: u8,
    ) -> Result<Command> {
        let (file, topics) = (folder.join("tsung.xml"), folder.join("topics"));
        fs::write(&topics, (0..devices / 2).map(|pair| format!("bench/{pair}\n")).collect::<String>())?;
        fs::write(&file, configuration(broker, devices, qos, &topics))?;
        let mut command = on_core(cores.generator, "tsung")?;
        // The controller's node name must differ from that of any other Tsung on this host.
        let id = format!("beamtune_bench_{}", std::process::id());
        command.env("HOME", folder).args(["-n", "-i", &id, "-w", "0", "-f"]).arg(&file);
        command.arg("-l").arg(folder.join("tsung")).arg("start");
        Ok(command)
    }
}

/// Parses `Tsung version 1.7.0`.
fn name_in(version: &str) -> Option<String> {
    Some(format!("Tsung {}", version.trim().strip_prefix("Tsung version ")?))
}

/// The controller's VM generates the load, which avoids messages between VMs on one host. Publishers start when all devices are connected,
/// because they keep the generator too busy for new connections. The duration ends the run if this program is killed.
fn configuration(broker: SocketAddr, devices: usize, qos: u8, topics: &Path) -> String {
    let payload = "x".repeat(MESSAGE_BYTES);
    let pairs = devices / 2;
    let subscribers = "<user session=\"subscriber\" start_time=\"1\"/>\n    ".repeat(pairs);
    let (ip, port, topics) = (broker.ip(), broker.port(), topics.display());
    let topic = |role: &str| {
        format!(
            r#"<setdynvars sourcetype="file" fileid="{role}" order="iter" delimiter=";"><var name="topic"/></setdynvars>"#
        )
    };
    let (to_publish, to_subscribe) = (topic("publish"), topic("subscribe"));
    let connect = r#"<request><mqtt type="connect" clean_start="true" keepalive="60"/></request>"#;
    format!(
        r#"<?xml version="1.0"?>
<!DOCTYPE tsung SYSTEM "/usr/share/tsung/tsung-1.0.dtd">
<tsung loglevel="error" version="1.0">
  <clients><client host="localhost" use_controller_vm="true" maxusers="{devices}"/></clients>
  <servers><server host="{ip}" port="{port}" type="tcp"/></servers>
  <load duration="2" unit="minute">
    {subscribers}
    <arrivalphase phase="1" duration="60" unit="second">
      <users maxnumber="{pairs}" arrivalrate="{pairs}" unit="second"/>
    </arrivalphase>
  </load>
  <options>
    <option name="file_server" id="publish" value="{topics}"/>
    <option name="file_server" id="subscribe" value="{topics}"/>
  </options>
  <sessions>
    <session name="publisher" probability="100" type="ts_mqtt">
      {to_publish}
      {connect}
      <thinktime value="3"/>
      <for from="1" to="1000000000" incr="1" var="turn">
        <request subst="true"><mqtt type="publish" topic="%%_topic%%" qos="{qos}">{payload}</mqtt></request>
      </for>
    </session>
    <session name="subscriber" probability="0" type="ts_mqtt">
      {to_subscribe}
      {connect}
      <request subst="true"><mqtt type="subscribe" topic="%%_topic%%" qos="{qos}"/></request>
      <thinktime value="1000"/>
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
    fn half_of_the_devices_publish_and_half_subscribe() {
        let broker = SocketAddr::from(([127, 0, 0, 1], 1883));
        let text = configuration(broker, 10, 1, Path::new("/topics"));
        assert_eq!(text.matches("<user session=\"subscriber\"").count(), 5);
        assert!(text.contains(r#"<users maxnumber="5""#) && text.contains(r#"port="1883""#));
        assert_eq!(text.matches(r#"qos="1""#).count(), 2);
        assert_eq!(text.matches(r#"value="/topics""#).count(), 2);
    }

    #[test]
    fn the_version_is_the_last_word() {
        assert_eq!(name_in("Tsung version 1.7.0\n").as_deref(), Some("Tsung 1.7.0"));
    }
}
