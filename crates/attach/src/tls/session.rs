//! A TLS session over a socket: driven by hand rather than by rustls' own streams, so that no step outlasts its deadline
//! however slowly the peer sends, and so that a failure keeps its reason.

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

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    tls: ClientConnection,
    socket: TcpStream,
    asked: Arc<Asked>,
    /// For messages.
    peer: String,
    remarks: Vec<String>,
    /// Whether the peer has said anything.
    heard: bool,
    /// Whether it will say nothing any more.
    ended: bool,
}

impl Session {
    /// Says hello.
    pub(super) fn begin(
        tls: ClientConnection,
        socket: TcpStream,
        asked: Arc<Asked>,
        located: &Located,
        remarks: Vec<String>,
        deadline: Deadline,
    ) -> Result<Session, AttachError> {
        let peer = located.label.clone();
        let mut session = Session { tls, socket, asked, peer, remarks, heard: false, ended: false };
        session.flush(deadline).map_err(|error| session.failed(&error, deadline))?;
        Ok(session)
    }

    /// Whether the peer answers in TLS until then; it can still do so later.
    pub fn is_answered(&mut self, deadline: Deadline) -> bool {
        let mut first = [0; 2];
        let peeked =
            self.socket.set_read_timeout(Some(deadline.left())).and_then(|()| self.socket.peek(&mut first));
        // A record of an alert or of the handshake; version 3.x.
        peeked.is_ok_and(|length| length > 1) && matches!(first, [0x15 | 0x16, 3])
    }

    /// Completes the handshake of TLS.
    pub fn shake_hands(&mut self, deadline: Deadline) -> Result<(), AttachError> {
        while self.tls.is_handshaking() {
            let taken = self.take_in(deadline).and_then(|()| self.say(deadline));
            taken.map_err(|error| self.failed(&error, deadline))?;
            if self.ended {
                return Err(self.failed(&ErrorKind::UnexpectedEof.into(), deadline));
            }
            if deadline.passed() && self.tls.is_handshaking() {
                return Err(self.failed(&ErrorKind::TimedOut.into(), deadline));
            }
        }
        Ok(())
    }

    /// Reads what there is, at least a byte; 0 is the end.
    pub fn read(&mut self, into: &mut [u8], deadline: Deadline) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Without a farewell, as nodes do it.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.take_in(deadline)?;
            // An answer to a change of keys.
            self.say(deadline)?;
            if deadline.passed() && self.tls.wants_read() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    /// Writes some bytes, and returns how many when they are with the operating system.
    pub fn write(&mut self, bytes: &[u8], deadline: Deadline) -> io::Result<usize> {
        let written = self.tls.writer().write(bytes)?;
        self.say(deadline)?;
        Ok(written)
    }

    /// Writes what there is to say. Where the peer does not listen any more, its last words are the reason.
    fn say(&mut self, deadline: Deadline) -> io::Result<()> {
        match self.flush(deadline) {
            Err(error) if !is_timeout(&error) => {
                while !self.ended && !deadline.passed() {
                    self.take_in(deadline)?;
                }
                Err(error)
            }
            said => said,
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
    fn take_in(&mut self, deadline: Deadline) -> io::Result<()> {
        let length = self.tls.read_tls(&mut Timed { socket: &self.socket, deadline })?;
        self.heard |= length > 0;
        self.ended |= length == 0;
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The reason goes to the peer, if that still listens.
                let _ = self.flush(deadline);
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    /// Why the handshake of TLS has failed.
    fn failed(&self, error: &io::Error, deadline: Deadline) -> AttachError {
        let peer = self.peer.clone();
        if is_timeout(error) {
            let step = if self.heard { Step::Tls } else { Step::Handshake };
            return AttachError::TimedOut { step, peer, after: deadline.given };
        }
        self.refusal(Some(error)).unwrap_or(AttachError::ClosedEarly { peer, over_tls: true })
    }

    /// What an error, or the end of the connection before any word of the distribution's, says of TLS.
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
            // The alert is lost where the connection was reset because of what we were still saying.
            None => self.certificate_refused("no reason was given")?,
        })
    }

    fn distrust(&self, refusal: Refusal) -> AttachError {
        let peer = self.peer.clone();
        match refusal {
            Refusal::Untrusted { subject, issuer } => {
                AttachError::CertificateUntrusted { peer, subject, issuer, remarks: self.remarks.clone() }
            }
            Refusal::ForOthers { wanted, names } => AttachError::CertificateForOthers { peer, wanted, names },
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
                failed("the node finds no common ground: has it a certificate, and which ciphers do its options allow?")
            }),
            // OTP 23 says this where its options allow no version that we speak, too.
            Alert::InsufficientSecurity => failed(
                "the node finds no cipher that both allow: its options must leave TLS 1.2 or 1.3 (versions), and ciphers of \
                 these with forward secrecy (ciphers)",
            ),
            Alert::UnrecognisedName => failed("the node knows no such name: give --tls-server-name"),
            _ => failed("the node has refused"),
        }
    }

    /// That the node wants a certificate, or another one; `None` if it has not asked for any.
    fn certificate_refused(&self, why: &str) -> Option<AttachError> {
        let issuers = self.asked.issuers.get()?.clone();
        let peer = self.peer.clone();
        Some(match &self.asked.shown {
            None => AttachError::CertificateDemanded { peer, issuers, remarks: self.remarks.clone() },
            Some(shown) => {
                let read = shown.cert.first().and_then(|own| Certificate::read(own));
                let (subject, issuer) =
                    read.map_or_else(Default::default, |read| (read.subject, read.issuer));
                AttachError::CertificateRefused { peer, subject, issuer, issuers, why: why.to_owned() }
            }
        })
    }
}

/// The certificate to be shown, and whether the node has asked for one.
#[derive(Debug)]
pub(super) struct Asked {
    shown: Option<Arc<CertifiedKey>>,
    /// Whose certificates the node takes, as far as it says.
    issuers: OnceLock<Vec<String>>,
}

impl Asked {
    pub fn new(shown: Option<Arc<CertifiedKey>>) -> Asked {
        Asked { shown, issuers: OnceLock::new() }
    }
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, issuers: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        /// More of them only hide the message.
        const MOST_ISSUERS: usize = 5;
        let names = issuers.iter().filter_map(|name| distinguished_name(name)).take(MOST_ISSUERS);
        // It asks once.
        let _ = self.issuers.set(names.collect());
        self.shown.clone()
    }

    fn has_certs(&self) -> bool {
        self.shown.is_some()
    }
}
