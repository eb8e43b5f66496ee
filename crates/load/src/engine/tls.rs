//! TLS below a session: rustls, fed by hand.

use std::io::{Read as _, Write as _};

use rustls::ClientConnection;

use crate::program::Tls;

/// Of a socket's bytes that are taken at once: rustls wants no more before what they hold has been read.
pub const READ_BYTES: usize = 16 * 1024;

/// The TLS state of one connection.
pub struct Stream {
    connection: ClientConnection,
    was_secured: bool,
}

/// What can be read for the session.
#[derive(Debug, PartialEq, Eq)]
pub enum Plain {
    /// So many bytes.
    Bytes(usize),
    /// More has to come from the socket first.
    More,
    /// The peer has ended TLS.
    End,
}

/// What came of encrypted bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Took {
    /// Perhaps something to read.
    Nothing,
    /// The handshake is done.
    Secured,
    /// Something is to be written.
    Said,
}

impl Stream {
    /// For a new connection.
    pub fn new(tls: &Tls) -> Result<Self, rustls::Error> {
        let connection = ClientConnection::new(tls.config.clone(), tls.name.clone())?;
        Ok(Self { connection, was_secured: false })
    }

    /// Encrypts `bytes` and appends to `out` all that has to be sent.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // rustls buffers 64 kB of plain text; what is longer goes in pieces. Nothing of this fails on a vector.
        let mut rest = bytes;
        loop {
            let taken = self.connection.writer().write(rest).unwrap_or(rest.len());
            rest = &rest[taken..];
            while self.connection.wants_write() && self.connection.write_tls(out).is_ok_and(|bytes| bytes > 0)
            {
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Reads for the session.
    pub fn read(&mut self, input: &mut [u8]) -> Plain {
        match self.connection.reader().read(input) {
            Ok(0) => Plain::End,
            Ok(bytes) => Plain::Bytes(bytes),
            Err(_) => Plain::More,
        }
    }

    /// Takes what came from the socket.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<Took, String> {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).map_err(|error| error.to_string())?;
            self.connection.process_new_packets().map_err(|error| error.to_string())?;
        }
        if !self.was_secured && !self.connection.is_handshaking() {
            self.was_secured = true;
            return Ok(Took::Secured);
        }
        Ok(if self.connection.wants_write() { Took::Said } else { Took::Nothing })
    }
}
