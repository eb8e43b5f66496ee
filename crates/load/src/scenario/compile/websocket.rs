//! Compiles WebSocket messages.

use std::sync::Arc;

use super::{head, misplaced};
use crate::LoadError;
use crate::protocol::websocket::Upgrade;
use crate::protocol::{Message, Protocol};
use crate::scenario::{Action, Devices, Step};
use crate::template::Template;

/// Returns the protocol with its upgrade request.
pub fn protocol(
    kind: &Devices,
    path: &Template,
    fields: &[(String, Template)],
    subprotocols: &[String],
) -> Protocol {
    let fields = head(kind, fields, &[]);
    Protocol::WebSocket(Arc::new(Upgrade::new(path, &fields, subprotocols.to_vec())))
}

/// Returns the message of an [`Action::Send`] or `Ping`.
pub fn message(kind: &Devices, step: &Step) -> Result<Message, LoadError> {
    match &step.action {
        Action::Send { payload, is_text } => {
            Ok(Message::WebSocket { is_text: *is_text, payload: payload.clone() })
        }
        Action::Ping => Ok(Message::WebSocketPing),
        _ => Err(misplaced(kind, step)),
    }
}
