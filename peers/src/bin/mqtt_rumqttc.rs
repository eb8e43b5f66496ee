//! MQTT devices on rumqttc: each subscribes to a topic of its own, publishes to it, and waits for its own message, from
//! QoS 1 on for the acknowledgement too.

use anyhow::{Context, Result, bail, ensure};
use beamtune_peers::{MESSAGE_BYTES, Task};
use rumqttc::{AsyncClient, Event, EventLoop, Incoming, MqttOptions, NetworkOptions, QoS};

fn main() -> Result<()> {
    let task = Task::from_arguments()?;
    let qos = rumqttc::qos(task.qos).context("the QoS must be 0, 1 or 2")?;
    ensure!(qos != QoS::ExactlyOnce, "QoS 2 is not supported");
    beamtune_peers::run(async move {
        let mut devices = Vec::with_capacity(task.connections);
        for number in 0..task.connections {
            devices.push(Device::connect(task, qos, number).await?);
        }
        let devices: Vec<_> = devices.into_iter().map(|device| tokio::spawn(device.exchange())).collect();
        for device in devices {
            device.await??;
        }
        Ok(())
    })
}

struct Device {
    client: AsyncClient,
    events: EventLoop,
    topic: String,
    qos: QoS,
}

impl Device {
    async fn connect(task: Task, qos: QoS, number: usize) -> Result<Device> {
        let options =
            MqttOptions::new(format!("rumqttc-{number}"), task.address.ip().to_string(), task.address.port());
        let (client, mut events) = AsyncClient::new(options, 2);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        events.set_network_options(network);
        let topic = format!("bench/{number}");
        client.try_subscribe(&topic, qos)?;
        loop {
            if let Event::Incoming(Incoming::SubAck(_)) = events.poll().await? {
                return Ok(Device { client, events, topic, qos });
            }
        }
    }

    async fn exchange(mut self) -> Result<()> {
        loop {
            self.client.try_publish(&self.topic, self.qos, false, [b'x'; MESSAGE_BYTES])?;
            let (mut has_arrived, mut is_acknowledged) = (false, self.qos == QoS::AtMostOnce);
            while !(has_arrived && is_acknowledged) {
                match self.events.poll().await? {
                    Event::Incoming(Incoming::Publish(message)) => {
                        has_arrived = message.payload.len() == MESSAGE_BYTES;
                    }
                    Event::Incoming(Incoming::PubAck(_)) => is_acknowledged = true,
                    Event::Incoming(Incoming::Disconnect) => bail!("disconnected"),
                    _ => {}
                }
            }
        }
    }
}
