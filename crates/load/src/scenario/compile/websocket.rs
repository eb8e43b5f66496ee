//! Messages of WebSocket.

use super::not_yet;
use crate::LoadError;
use crate::protocol::{Message, Protocol};
use crate::scenario::{Devices, Step};

/// What opens a session: from the path, the fields and the subprotocols of [`Speech::WebSocket`](crate::scenario::Speech).
pub fn protocol(kind: &Devices) -> Result<Protocol, LoadError> {
    Err(not_yet(kind))
}

/// From [`Action::Send`](crate::scenario::Action) and `Ping`.
pub fn message(kind: &Devices, _step: &Step) -> Result<Message, LoadError> {
    Err(not_yet(kind))
}
