//! The transport of the distribution protocol: a socket with or without TLS. Every read and write has a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::deadline::{Deadline, Timed};
use crate::tls::Session;

/// A connection to a peer.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<Session>),
}

/// A failed write.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub error: io::Error,
    /// Whether some bytes were sent, or will be as soon as there is room. Nothing else can be sent after them.
    pub in_part: bool,
}

impl Stream {
    /// Waits for data and reads what is available. Returns 0 at the end of the stream.
    pub fn read(&mut self, into: &mut [u8], deadline: Deadline) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => Timed { socket, deadline }.read(into),
            Stream::Tls(session) => session.read(into, deadline),
        }
    }

    /// Writes all bytes.
    pub fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), Unsent> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = match self {
                Stream::Plain(socket) => Timed { socket, deadline }.write(rest),
                Stream::Tls(session) => session.write(rest, deadline),
            };
            let in_part = matches!(self, Stream::Tls(_)) || rest.len() < bytes.len();
            match written {
                Ok(0) => return Err(Unsent { error: ErrorKind::WriteZero.into(), in_part }),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) => return Err(Unsent { error, in_part }),
            }
        }
        Ok(())
    }
}
