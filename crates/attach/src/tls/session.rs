//! A TLS session over a socket. It does not use rustls' streams. So no step exceeds its deadline, however slowly the peer sends,
//! and the reasons for failures are kept.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConnection, Error, OtherError, PeerIncompatible,
    SignatureScheme,
};

use super::certificate::{Certificate, distinguished_name};
use super::verify::Refusal;
use crate::deadline::{Deadline, Timed, is_timeout};
use crate::error::{AttachError, Step, printable};
use crate::locate::Located;

/// A TLS session with a node.
#[derive(Debug)]
pub(crate) struct Session {
    tls: ClientConnection,
    socket: TcpStream,
    own: Arc<ClientCertificate>,
    /// The peer's name in error messages.
    peer: String,
    remarks: Vec<String>,
    /// Whether the peer has sent anything.
    has_received: bool,
    /// Whether the peer has closed the connection.
    ended: bool,
}

impl Session {
    /// Sends the ClientHello.
    pub(super) fn begin(
        tls: ClientConnection,
        socket: TcpStream,
        own: Arc<ClientCertificate>,
        located: &Located,
        remarks: Vec<String>,
        deadline: Deadline,
    ) -> Result<Session, AttachError> {
        let peer = located.label.clone();
        let mut session = Session { tls, socket, own, peer, remarks, has_received: false, ended: false };
        session.flush(deadline).map_err(|error| session.failed(&error, deadline))?;
        Ok(session)
    }

    /// Returns whether the peer answers with TLS before the deadline. Consumes no data.
    pub fn is_answered(&mut self, deadline: Deadline) -> bool {
        let mut first = [0; 2];
        let peeked =
            self.socket.set_read_timeout(Some(deadline.left())).and_then(|()| self.socket.peek(&mut first));
        // An alert or handshake record, version 3.x.
        peeked.is_ok_and(|length| length > 1) && matches!(first, [0x15 | 0x16, 3])
    }

    /// Completes the TLS handshake.
    pub fn complete_handshake(&mut self, deadline: Deadline) -> Result<(), AttachError> {
        while self.tls.is_handshaking() {
            let exchanged = self.receive(deadline).and_then(|()| self.send(deadline));
            exchanged.map_err(|error| self.failed(&error, deadline))?;
            if self.ended {
                return Err(self.failed(&ErrorKind::UnexpectedEof.into(), deadline));
            }
            if deadline.passed() && self.tls.is_handshaking() {
                return Err(self.failed(&ErrorKind::TimedOut.into(), deadline));
            }
        }
        Ok(())
    }

    /// Waits for data and reads what is available. Returns 0 at the end of the stream.
    pub fn read(&mut self, into: &mut [u8], deadline: Deadline) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Nodes close the connection without a close_notify alert.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.receive(deadline)?;
            // Sends the answer to a key update, if there was one.
            self.send(deadline)?;
            if deadline.passed() && self.tls.wants_read() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    /// Writes some of the bytes to the operating system, and returns their number.
    pub fn write(&mut self, bytes: &[u8], deadline: Deadline) -> io::Result<usize> {
        let written = self.tls.writer().write(bytes)?;
        self.send(deadline)?;
        Ok(written)
    }

    /// Writes pending TLS records. If the peer has closed the connection, reads its alert, which gives the reason.
    fn send(&mut self, deadline: Deadline) -> io::Result<()> {
        match self.flush(deadline) {
            Err(error) if !is_timeout(&error) => {
                while !self.ended && !deadline.passed() {
                    self.receive(deadline)?;
                }
                Err(error)
            }
            sent => sent,
        }
    }

    fn flush(&mut self, deadline: Deadline) -> io::Result<()> {
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut Timed { socket: &self.socket, deadline })? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Reads from the socket once.
    fn receive(&mut self, deadline: Deadline) -> io::Result<()> {
        let length = self.tls.read_tls(&mut Timed { socket: &self.socket, deadline })?;
        self.has_received |= length > 0;
        self.ended |= length == 0;
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // Send our alert to the peer, if the peer is still reading.
                let _ = self.flush(deadline);
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    /// Returns the error for a failed TLS handshake.
    fn failed(&self, error: &io::Error, deadline: Deadline) -> AttachError {
        let peer = self.peer.clone();
        if is_timeout(error) {
            let step = if self.has_received { Step::Tls } else { Step::Handshake };
            return AttachError::TimedOut { step, peer, after: deadline.given };
        }
        self.refusal(Some(error)).unwrap_or(AttachError::ClosedDuringHandshake { peer, over_tls: true })
    }

    /// Returns the TLS error that caused an I/O error, or that made the peer close the connection before the distribution
    /// handshake.
    pub fn refusal(&self, error: Option<&io::Error>) -> Option<AttachError> {
        let reason =
            error.and_then(|error| error.get_ref()).and_then(|reason| reason.downcast_ref::<Error>());
        let peer = self.peer.clone();
        Some(match reason {
            Some(Error::InvalidCertificate(CertificateError::Other(OtherError(refusal)))) => {
                match refusal.downcast_ref::<Refusal>() {
                    Some(refusal) => self.distrust(refusal.clone()),
                    None => AttachError::TlsFailed { peer, what: printable(&refusal.to_string()) },
                }
            }
            Some(Error::AlertReceived(alert)) => self.alert(*alert),
            Some(Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            )) => AttachError::TlsTooOld { peer },
            Some(Error::InvalidMessage(_)) if self.tls.is_handshaking() => AttachError::NoTls { peer },
            Some(other) => AttachError::TlsFailed { peer, what: printable(&other.to_string()) },
            // The alert is lost if the connection was reset because we were still sending.
            None => self.certificate_refused("no reason was given")?,
        })
    }

    fn distrust(&self, refusal: Refusal) -> AttachError {
        let peer = self.peer.clone();
        match refusal {
            Refusal::Untrusted { subject, issuer } => {
                AttachError::CertificateUntrusted { peer, subject, issuer, remarks: self.remarks.clone() }
            }
            Refusal::ForOthers { wanted, names } => {
                AttachError::CertificateHostMismatch { peer, wanted, names }
            }
            Refusal::Outdated { subject, when } => AttachError::CertificateOutdated { peer, subject, when },
            Refusal::Unusable { subject, what } => {
                AttachError::CertificateUnusable { peer, subject, what: printable(&what) }
            }
        }
    }

    fn alert(&self, alert: AlertDescription) -> AttachError {
        use AlertDescription as Alert;
        let (peer, name) = (self.peer.clone(), format!("{alert:?}"));
        let failed =
            |what: &str| AttachError::TlsFailed { peer: peer.clone(), what: format!("{what} ({name})") };
        match alert {
            Alert::ProtocolVersion => AttachError::TlsTooOld { peer: peer.clone() },
            Alert::HandshakeFailure
            | Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied => self.certificate_refused(&name).unwrap_or_else(|| {
                failed("no common parameters: does the node have a certificate, and which ciphers do its options allow?")
            }),
            // OTP 23 also sends this alert if its options allow none of our TLS versions.
            Alert::InsufficientSecurity => failed(
                "no common cipher: the node's options must allow TLS 1.2 or 1.3 (versions), and ciphers of these with \
                 forward secrecy (ciphers)",
            ),
            Alert::UnrecognisedName => failed("the node does not accept the server name: give --tls-server-name"),
            _ => failed("refused by the node"),
        }
    }

    /// Returns the error for a node that requires a client certificate, or one other than ours. Returns `None` if the node has
    /// not requested one.
    fn certificate_refused(&self, why: &str) -> Option<AttachError> {
        let issuers = self.own.accepted_issuers.get()?.clone();
        let peer = self.peer.clone();
        Some(match &self.own.key {
            None => AttachError::ClientCertificateRequired { peer, issuers, remarks: self.remarks.clone() },
            Some(own) => {
                let read = own.cert.first().and_then(|own| Certificate::read(own));
                let (subject, issuer) =
                    read.map_or_else(Default::default, |read| (read.subject, read.issuer));
                AttachError::ClientCertificateRefused { peer, subject, issuer, issuers, why: why.to_owned() }
            }
        })
    }
}

/// Our certificate, and whether the node has requested one.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    key: Option<Arc<CertifiedKey>>,
    /// Issuers that the node accepts, if it names them. Unset until the node requests a certificate.
    accepted_issuers: OnceLock<Vec<String>>,
}

impl ClientCertificate {
    pub fn new(key: Option<Arc<CertifiedKey>>) -> ClientCertificate {
        ClientCertificate { key, accepted_issuers: OnceLock::new() }
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, issuers: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        /// A longer list would hide the message itself.
        const MAX_ISSUERS: usize = 5;
        let names = issuers.iter().filter_map(|name| distinguished_name(name)).take(MAX_ISSUERS);
        // This is called once per session.
        let _ = self.accepted_issuers.set(names.collect());
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}
