//! Compiles MQTT messages.

use super::misplaced;
use crate::LoadError;
use crate::protocol::Message;
use crate::protocol::mqtt::MqttMessage;
use crate::scenario::{Action, Devices, Step};

/// Returns the message of an [`Action::Mqtt`] or `Ping`.
pub fn message(kind: &Devices, step: &Step) -> Result<Message, LoadError> {
    match &step.action {
        Action::Mqtt(message) => Ok(Message::Mqtt(message.clone())),
        Action::Ping => Ok(Message::Mqtt(Box::new(MqttMessage::Ping))),
        _ => Err(misplaced(kind, step)),
    }
}
