//! Messages between connected nodes: the content of frames after the handshake. This module does no I/O.
//!
//! A message is a control tuple, whose first element is the operation. Some operations also have a payload: the term sent, or an
//! exit reason. Source: "Distribution Protocol" in the ERTS User's Guide, section "Protocol between Connected Nodes"; the numbers
//! are in erts/emulator/beam/dist.h.

use crate::etf::{Document, EncodeError, Kind, Limits, Pid, Reference, Term, TermError, Value};

/// The byte before each message on a connection without distribution headers.
const PASS_THROUGH: u8 = 112;

mod operation {
    pub const SEND: i64 = 2;
    pub const EXIT: i64 = 3;
    pub const REG_SEND: i64 = 6;
    pub const SEND_TT: i64 = 12;
    pub const EXIT_TT: i64 = 13;
    pub const REG_SEND_TT: i64 = 16;
    pub const SEND_SENDER: i64 = 22;
    pub const SEND_SENDER_TT: i64 = 23;
    pub const PAYLOAD_EXIT: i64 = 24;
    pub const PAYLOAD_EXIT_TT: i64 = 25;
    pub const SPAWN_REQUEST: i64 = 29;
    pub const SPAWN_REPLY: i64 = 31;
    pub const SPAWN_REPLY_TT: i64 = 32;
    pub const ALIAS_SEND: i64 = 33;
    pub const ALIAS_SEND_TT: i64 = 34;
    pub const UNLINK_ID: i64 = 35;
    pub const UNLINK_ID_ACK: i64 = 36;
}

/// A message from the node.
#[derive(Debug)]
pub enum Message {
    /// A process sent a term to one of our pids.
    Send {
        /// The receiver.
        to: Pid,
        /// The term.
        payload: Document,
    },
    /// A process sent a term to a registered name.
    RegSend {
        /// The sender.
        from: Pid,
        /// The name.
        name: String,
        /// The term.
        payload: Document,
    },
    /// A process sent a term to one of our references.
    AliasSend {
        /// The receiver.
        alias: Reference,
        /// The term.
        payload: Document,
    },
    /// A process linked to one of our pids has exited.
    Exit {
        /// The process.
        from: Pid,
        /// Our pid.
        to: Pid,
        /// The exit reason.
        reason: Document,
    },
    /// The answer to a spawn request.
    SpawnReply {
        /// The request.
        request: Reference,
        /// The pid of the new process, or the error.
        result: Result<Pid, String>,
    },
    /// A link to one of our pids was removed. This must be acknowledged.
    Unlink {
        /// The frame to send in reply.
        acknowledgement: Vec<u8>,
    },
    /// Any other operation, such as a link, a monitor or a new group leader. It is ignored.
    Other {
        /// The control tuple's first element.
        operation: i64,
    },
}

impl Message {
    /// Decodes the content of a frame.
    pub fn decode(frame: Vec<u8>, limits: Limits) -> Result<Message, TermError> {
        if frame.first() != Some(&PASS_THROUGH) {
            return Err(TermError::Malformed {
                what: "a distribution header, which was not negotiated",
                offset: 0,
            });
        }
        let (control, end) = Document::decode_prefix(frame, 1, limits)?;
        let mut elements = control.root().tuple()?;
        let mut next = || {
            elements
                .next()
                .ok_or(TermError::Malformed { what: "a control tuple with too few elements", offset: 1 })
        };
        let operation = next()?.as_i64()?;
        let head = match operation {
            operation::SEND | operation::SEND_TT => {
                next()?;
                Head::Send { to: next()?.as_pid()? }
            }
            operation::SEND_SENDER | operation::SEND_SENDER_TT => {
                next()?;
                Head::Send { to: next()?.as_pid()? }
            }
            operation::REG_SEND | operation::REG_SEND_TT => {
                let from = next()?.as_pid()?;
                next()?;
                Head::RegSend { from, name: next()?.as_atom()?.to_owned() }
            }
            operation::ALIAS_SEND | operation::ALIAS_SEND_TT => {
                next()?;
                Head::AliasSend { alias: next()?.as_reference()? }
            }
            operation::EXIT | operation::EXIT_TT | operation::PAYLOAD_EXIT | operation::PAYLOAD_EXIT_TT => {
                Head::Exit { from: next()?.as_pid()?, to: next()?.as_pid()? }
            }
            operation::SPAWN_REPLY | operation::SPAWN_REPLY_TT => {
                let request = next()?.as_reference()?;
                next()?;
                next()?;
                let result = next()?;
                let result = match result.kind() {
                    Kind::Pid => Ok(result.as_pid()?),
                    _ => Err(result.as_atom()?.to_owned()),
                };
                return Ok(Message::SpawnReply { request, result });
            }
            operation::UNLINK_ID => {
                let id = next()?.as_u64()?;
                let (from, to) = (next()?.as_pid()?, next()?.as_pid()?);
                let acknowledgement = unlink_acknowledgement(id, &to, &from)
                    .map_err(|_| TermError::Malformed { what: "an unlink with invalid pids", offset: 1 })?;
                return Ok(Message::Unlink { acknowledgement });
            }
            _ => return Ok(Message::Other { operation }),
        };
        // The exit reason is in the control tuple only if the node encoded the message before it knew our capabilities.
        let payload = match operation {
            operation::EXIT | operation::EXIT_TT => control.narrow(last_element)?,
            _ => Document::decode(control.into_bytes(), end, limits)?,
        };
        Ok(match head {
            Head::Send { to } => Message::Send { to, payload },
            Head::RegSend { from, name } => Message::RegSend { from, name, payload },
            Head::AliasSend { alias } => Message::AliasSend { alias, payload },
            Head::Exit { from, to } => Message::Exit { from, to, reason: payload },
        })
    }

    /// Returns the approximate memory that the content takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Message::Send { payload, .. }
            | Message::RegSend { payload, .. }
            | Message::AliasSend { payload, .. } => payload.memory_bytes(),
            Message::Exit { reason, .. } => reason.memory_bytes(),
            Message::Unlink { acknowledgement } => acknowledgement.capacity(),
            Message::SpawnReply { .. } | Message::Other { .. } => 0,
        }
    }
}

/// The parsed control tuple of a message with a payload.
enum Head {
    Send { to: Pid },
    RegSend { from: Pid, name: String },
    AliasSend { alias: Reference },
    Exit { from: Pid, to: Pid },
}

fn last_element(control: Term<'_>) -> Result<Term<'_>, TermError> {
    control.tuple()?.last().ok_or(TermError::Malformed { what: "an empty control tuple", offset: 1 })
}

/// A function to call in a new process on the node.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// Module of the function.
    pub module: &'a str,
    /// The function's name.
    pub function: &'a str,
    /// Its arguments.
    pub arguments: Vec<Value<'a>>,
}

/// Builds a frame that requests a new process, linked to our pid `from`. So the process exits when we or the connection end, and
/// we are notified when it exits. No monitor is used: if the process exited while the connection goes down, its VM would connect
/// to us again to signal the monitor. (`erts_proc_exit_handle_dist_monitor` in erl_process.c, OTP 23 to 29. It does not do so for
/// a link.)
///
/// The process gets `from` as its group leader, so its output does not appear on the node's terminal. We do not answer I/O
/// requests, so a process that prints blocks until the connection ends.
pub fn spawn_request(request: &Reference, from: &Pid, spawn: Spawn<'_>) -> Result<Vec<u8>, EncodeError> {
    // At normal priority, the process would wait for the whole run queue before its first instruction.
    let options = [Value::atom("link"), Value::tuple([Value::atom("priority"), Value::atom("high")])];
    let control = Value::tuple([
        Value::from(operation::SPAWN_REQUEST),
        Value::from(request),
        Value::from(from),
        Value::from(from),
        Value::tuple([
            Value::atom(spawn.module),
            Value::atom(spawn.function),
            Value::from(spawn.arguments.len() as u64),
        ]),
        Value::list(options),
    ]);
    frame(&control, Some(&Value::List(spawn.arguments)))
}

/// Builds a frame that sends a term to a process on the node.
pub fn send(from: &Pid, to: &Pid, payload: &Value<'_>) -> Result<Vec<u8>, EncodeError> {
    let control = [Value::from(operation::SEND_SENDER), Value::from(from), Value::from(to)];
    frame(&Value::tuple(control), Some(payload))
}

/// Builds a frame that sends a term to a registered process on the node. The name should be a constant, since it becomes an atom
/// on the node even if it is not registered there.
pub fn send_to_name(from: &Pid, name: &str, payload: &Value<'_>) -> Result<Vec<u8>, EncodeError> {
    let control = [Value::from(operation::REG_SEND), Value::from(from), Value::atom(""), Value::atom(name)];
    frame(&Value::tuple(control), Some(payload))
}

fn unlink_acknowledgement(id: u64, from: &Pid, to: &Pid) -> Result<Vec<u8>, EncodeError> {
    let control =
        [Value::from(operation::UNLINK_ID_ACK), Value::from(id), Value::from(from), Value::from(to)];
    frame(&Value::tuple(control), None)
}

fn frame(control: &Value<'_>, payload: Option<&Value<'_>>) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = vec![0, 0, 0, 0, PASS_THROUGH];
    control.write(&mut bytes)?;
    if let Some(payload) = payload {
        payload.write(&mut bytes)?;
    }
    let length = bytes.len() - 4;
    let header = u32::try_from(length).map_err(|_| EncodeError::TooLong(length))?.to_be_bytes();
    for (byte, header) in bytes.iter_mut().zip(header) {
        *byte = header;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pid(id: u32) -> Pid {
        Pid { node: "a@h".into(), id, serial: 0, creation: 3 }
    }

    fn reference() -> Reference {
        Reference { node: "b@h".into(), creation: 4, words: vec![1, 2, 3] }
    }

    /// Decodes a frame as the node sends it: a control tuple and an optional payload.
    fn message(control: Vec<Value<'_>>, payload: Option<Value<'_>>) -> Result<Message, TermError> {
        let frame = frame(&Value::Tuple(control), payload.as_ref()).unwrap();
        Message::decode(frame[4..].to_vec(), Limits::default())
    }

    #[test]
    fn each_operation_becomes_its_message() {
        let (from, to, alias) = (pid(1), pid(2), reference());
        let control = |operation: i64, rest: &[Value<'static>]| [&[Value::from(operation)], rest].concat();
        let (a, b, r) = (Value::from(&from), Value::from(&to), Value::from(&alias));
        let (unused, token) = (Value::atom(""), Value::list([]));
        let yes = || Some(Value::atom("yes"));
        for rest in [
            control(2, &[unused.clone(), b.clone()]),
            control(22, &[a.clone(), b.clone()]),
            control(23, &[a.clone(), b.clone(), token.clone()]),
        ] {
            let Ok(Message::Send { to: found, payload }) = message(rest.clone(), yes()) else {
                panic!("{rest:?}")
            };
            assert_eq!(found, to);
            assert!(payload.root().is_atom("yes"));
        }
        assert!(matches!(
            message(control(6, &[a.clone(), unused, Value::atom("name")]), yes()),
            Ok(Message::RegSend { name, .. }) if name == "name"
        ));
        assert!(matches!(
            message(control(33, &[a.clone(), r.clone()]), yes()),
            Ok(Message::AliasSend { alias: found, .. }) if found == alias
        ));
        for (control, payload) in [
            (control(3, &[a.clone(), b.clone(), Value::atom("yes")]), None),
            (control(24, &[a.clone(), b.clone()]), yes()),
        ] {
            let Ok(Message::Exit { from: found, reason, .. }) = message(control, payload) else { panic!() };
            assert_eq!(found, from);
            assert!(reason.root().is_atom("yes"));
        }
        // Any process can send an EXIT2 with `exit/2`. It does not mean that a process has exited.
        assert!(matches!(
            message(control(26, &[a.clone(), b.clone()]), yes()),
            Ok(Message::Other { operation: 26 })
        ));
        let reply = |result| message(control(31, &[r.clone(), b.clone(), Value::from(2u64), result]), None);
        assert!(
            matches!(reply(a.clone()), Ok(Message::SpawnReply { result: Ok(found), .. }) if found == from)
        );
        assert!(matches!(
            reply(Value::atom("system_limit")),
            Ok(Message::SpawnReply { result: Err(reason), .. }) if reason == "system_limit"
        ));
        let unlink = message(control(35, &[Value::from(7u64), a.clone(), b.clone()]), None);
        let Ok(Message::Unlink { acknowledgement }) = unlink else { panic!("{unlink:?}") };
        assert_eq!(acknowledgement, unlink_acknowledgement(7, &to, &from).unwrap());
        assert!(matches!(message(control(1, &[a, b]), None), Ok(Message::Other { operation: 1 })));
        assert!(matches!(message(control(99, &[]), None), Ok(Message::Other { operation: 99 })));
    }

    #[test]
    fn malformed_frame_is_an_error() {
        fn check(frame: &[u8], expect: &str) {
            let error = Message::decode(frame.to_vec(), Limits::default()).unwrap_err();
            assert_eq!(error.to_string(), expect, "{frame:?}");
        }
        check(&[], "malformed at byte 0: a distribution header, which was not negotiated");
        check(&[131, 68, 0], "malformed at byte 0: a distribution header, which was not negotiated");
        check(&[112, 131, 104, 0], "malformed at byte 1: a control tuple with too few elements");
        check(&[112, 131, 104, 1, 97, 22], "malformed at byte 1: a control tuple with too few elements");
        check(&[112, 131, 104, 3, 97, 22, 106, 106], "expected a pid at byte 7, found a list");
        let send =
            frame(&Value::tuple([Value::from(22i64), Value::from(&pid(1)), Value::from(&pid(2))]), None);
        let send = &send.unwrap()[4..];
        check(send, "the term is truncated at byte 42");
    }

    #[test]
    fn spawn_request_follows_the_protocol() {
        let spawn = Spawn { module: "m", function: "f", arguments: vec![Value::from(1i64)] };
        let frame = spawn_request(&reference(), &pid(1), spawn).unwrap();
        assert_eq!(frame.len() - 4, u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize);
        assert_eq!(frame[4], 112);
        let (control, end) = Document::decode_prefix(frame, 5, Limits::default()).unwrap();
        assert_eq!(
            control.root().to_string(),
            "{29,#Ref<>,<a@h.1.0>,<a@h.1.0>,{m,f,1},[link,{priority,high}]}"
        );
        let arguments = Document::decode(control.into_bytes(), end, Limits::default()).unwrap();
        assert_eq!(arguments.root().list().unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic(frame in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut frame = frame;
            let _ = Message::decode(frame.clone(), Limits::default());
            frame.splice(0..0, [112, 131, 104, 4, 97]);
            let _ = Message::decode(frame, Limits::default());
        }
    }
}
