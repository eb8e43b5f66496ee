//! TLS below a session: rustls without I/O.

use std::io::{Read as _, Write as _};

use rustls::ClientConnection;

use crate::program::Tls;
use crate::tls::describe;

/// Number of bytes that are read from the socket at once: about a TLS record.
pub const READ_BYTES: usize = 16 * 1024;
/// rustls' limit on unread plain text: above it, rustls accepts no more input.
const MAX_UNREAD_BYTES: usize = 16 * 1024;

/// The TLS state of one connection.
pub struct Stream {
    connection: ClientConnection,
    is_handshake_done: bool,
    /// Plain text that was taken from rustls to make room there. It precedes the plain text that is still in rustls.
    plain: Vec<u8>,
}

/// The result of reading plain text.
#[derive(Debug, PartialEq, Eq)]
pub enum Plain {
    /// This number of bytes.
    Bytes(usize),
    /// More must be read from the socket first.
    More,
    /// The peer has ended TLS.
    End,
}

/// The result of processing encrypted bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Processed {
    /// There may be plain text to read.
    Input,
    /// The handshake was completed.
    HandshakeDone,
    /// TLS has output to send.
    Output,
}

impl Stream {
    /// Creates the TLS state of a new connection.
    pub fn new(tls: &Tls) -> Result<Self, rustls::Error> {
        let connection = ClientConnection::new(tls.config.clone(), tls.name.clone())?;
        Ok(Self { connection, is_handshake_done: false, plain: Vec::new() })
    }

    /// Whether the handshake is done.
    pub fn is_handshake_done(&self) -> bool {
        self.is_handshake_done
    }

    /// Encrypts `bytes` and appends all pending output to `out`.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // rustls buffers 64 kB of plain text, so longer messages are written in pieces. Writing to a vector does not fail.
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

    /// Reads plain text for the session.
    pub fn read(&mut self, input: &mut [u8]) -> Plain {
        if !self.plain.is_empty() {
            let bytes = self.plain.len().min(input.len());
            input[..bytes].copy_from_slice(&self.plain[..bytes]);
            self.plain.drain(..bytes);
            if self.plain.is_empty() {
                self.plain = Vec::new();
            }
            return Plain::Bytes(bytes);
        }
        match self.connection.reader().read(input) {
            Ok(0) => Plain::End,
            Ok(bytes) => Plain::Bytes(bytes),
            Err(_) => Plain::More,
        }
    }

    /// Processes encrypted bytes from the socket.
    pub fn process(&mut self, mut bytes: &[u8]) -> Result<Processed, String> {
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes).map_err(|error| error.to_string())? == 0 {
                // Bytes after close_notify are ignored.
                break;
            }
            let state = self.connection.process_new_packets().map_err(|error| describe(&error))?;
            let unread = state.plaintext_bytes_to_read();
            if unread > MAX_UNREAD_BYTES {
                let held = self.plain.len();
                self.plain.resize(held + unread, 0);
                self.connection.reader().read_exact(&mut self.plain[held..]).map_err(|e| e.to_string())?;
            }
        }
        if !self.is_handshake_done && !self.connection.is_handshaking() {
            self.is_handshake_done = true;
            return Ok(Processed::HandshakeDone);
        }
        Ok(if self.connection.wants_write() { Processed::Output } else { Processed::Input })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// A client and a server after their handshake, with a certificate of an authority.
    fn connected() -> (Stream, ServerConnection) {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |words: &str| {
            let mut command = Command::new("openssl");
            let made = command.args(words.split(' ')).current_dir(folder.path()).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout";
        openssl(&format!("req -x509 {key} ca.key -out ca.pem -days 2 -subj /CN=authority"));
        openssl(&format!(
            "req {key} key.pem -out csr.pem -subj /CN=server -addext subjectAltName=DNS:server"
        ));
        openssl(
            "x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -out cert.pem -days 2 -copy_extensions copyall",
        );
        let path = |name: &str| folder.path().join(name);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let server =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from_pem_file(path("cert.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(path("key.pem")).unwrap();
        let server = server.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let tls = Tls { config: Arc::new(client), name: "server".try_into().unwrap() };
        let mut stream = Stream::new(&tls).unwrap();
        let mut out = Vec::new();
        loop {
            stream.write(b"", &mut out);
            server.read_tls(&mut std::mem::take(&mut out).as_slice()).unwrap();
            server.process_new_packets().unwrap();
            let mut output = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut output).unwrap();
            }
            if stream.process(&output).unwrap() == Processed::HandshakeDone {
                stream.write(b"hello", &mut out);
                server.read_tls(&mut out.as_slice()).unwrap();
                server.process_new_packets().unwrap();
                return (stream, server);
            }
        }
    }

    /// Encrypts each piece as a separate record.
    fn records(server: &mut ServerConnection, pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut output = Vec::new();
        for piece in pieces {
            server.writer().write_all(piece).unwrap();
            while server.wants_write() {
                server.write_tls(&mut output).unwrap();
            }
        }
        output
    }

    fn read_all(stream: &mut Stream) -> Vec<u8> {
        let (mut all, mut input) = (Vec::new(), [0; 1000]);
        while let Plain::Bytes(bytes) = stream.read(&mut input) {
            all.extend_from_slice(&input[..bytes]);
        }
        all
    }

    #[test]
    fn large_and_small_records_in_one_read_are_decrypted() {
        let (mut stream, mut server) = connected();
        let piece = |number: u8, bytes| vec![number; bytes];
        let small = (1..=40).map(|number| piece(number, 1000));
        let pieces: Vec<_> = std::iter::once(piece(0, 16_384)).chain(small).collect();
        let sent = records(&mut server, &pieces);
        let mut received = Vec::new();
        // As with a socket, the rest of a large record arrives together with the small records after it.
        for bytes in [&sent[..10], &sent[10..10 + READ_BYTES], &sent[10 + READ_BYTES..]] {
            stream.process(bytes).unwrap();
            received.extend(read_all(&mut stream));
        }
        assert!(received == pieces.concat(), "{}", received.len());
    }

    #[test]
    fn bytes_after_close_notify_are_ignored() {
        let (mut stream, mut server) = connected();
        server.send_close_notify();
        let mut sent = records(&mut server, &[Vec::new()]);
        sent.extend_from_slice(&[0x17; 10_000]);
        let _ = stream.process(&sent);
        assert_eq!(stream.read(&mut [0; 10]), Plain::End);
    }
}
