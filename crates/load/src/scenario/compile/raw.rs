//! Messages in a stream of bytes.

use super::not_yet;
use crate::LoadError;
use crate::protocol::{Message, Protocol};
use crate::scenario::{Devices, Framing, Step};

/// How messages are told apart.
pub fn protocol(kind: &Devices, _framing: Framing) -> Result<Protocol, LoadError> {
    Err(not_yet(kind))
}

/// From [`Action::Send`](crate::scenario::Action).
pub fn message(kind: &Devices, _step: &Step) -> Result<Message, LoadError> {
    Err(not_yet(kind))
}
