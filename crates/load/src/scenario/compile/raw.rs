//! Compiles frames directly on TCP or TLS.

use std::sync::Arc;

use super::misplaced;
use crate::LoadError;
use crate::protocol::raw::RawMessage;
use crate::protocol::{Message, raw};
use crate::scenario::{Action, Devices, Framing, Step};

/// Returns the framing of a group of devices.
pub fn framing(kind: &Devices, framing: Framing) -> Result<raw::Framing, LoadError> {
    let framing = match framing {
        Framing::None => Ok(raw::Framing::none()),
        Framing::Line => raw::Framing::delimiter(b"\n"),
        Framing::Prefix { bytes, is_little_endian } => {
            raw::Framing::length_prefix(usize::from(bytes), is_little_endian)
        }
        Framing::Fixed { bytes } => raw::Framing::fixed(bytes),
    };
    framing.map_err(|why| LoadError::Unfit { kind: kind.name.clone(), what: "framing".to_owned(), why })
}

/// Returns the message of an [`Action::Send`]. It has no answer; an `expect` step waits for a reply.
pub fn message(kind: &Devices, framing: Framing, step: &Step) -> Result<Message, LoadError> {
    let Action::Send { payload, .. } = &step.action else { return Err(misplaced(kind, step)) };
    let framing = Arc::new(self::framing(kind, framing)?);
    match RawMessage::new(payload.clone(), &framing, false) {
        Ok(message) => Ok(Message::Raw(Box::new(message))),
        Err(why) => Err(LoadError::Unfit { kind: kind.name.clone(), what: step.name.clone(), why }),
    }
}
