//! Packets of MQTT.

use super::not_yet;
use crate::LoadError;
use crate::protocol::{Message, Protocol};
use crate::scenario::{Devices, MqttOptions, Step};

/// What opens a session.
pub fn protocol(kind: &Devices, _options: &MqttOptions) -> Result<Protocol, LoadError> {
    Err(not_yet(kind))
}

/// From [`Action::Publish`](crate::scenario::Action), `Subscribe`, `Unsubscribe` and `Ping`.
pub fn message(kind: &Devices, _step: &Step) -> Result<Message, LoadError> {
    Err(not_yet(kind))
}
