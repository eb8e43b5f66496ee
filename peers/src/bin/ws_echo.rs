//! A WebSocket server that echoes frames: one thread on epoll, which does as little as possible per message, so that the
//! benchmark measures the clients.
//!
//! With a port as its argument, it shares that port with other instances, and the kernel distributes connections among
//! them: for more connections than one process may have descriptors. Prints `port N` when it is ready, and for each line
//! of its standard input `seen MESSAGES CONNECTIONS`: data frames so far, and open connections. Exits at the end of its
//! standard input.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// RFC 6455, 1.3.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// RFC 6455, 5.2: bits of a frame's first byte: the last frame of a message, and its opcode.
const FINAL: u8 = 0x80;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// Maximum size of a frame, of a request, and of the echoes that a client has not read.
const MAX_BYTES: usize = 64 * 1024;
const BACKLOG: i32 = 4096;

/// Event data of events that do not belong to a connection.
const LISTENER: u64 = u64::MAX;
const INPUT: u64 = u64::MAX - 1;

fn main() -> Result<()> {
    beamtune_peers::raise_descriptors();
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse()).context("invalid port")?;
    let mut server = Server::listen(port)?;
    println!("port {}", server.port()?);
    server.serve()
}

struct Server {
    poll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// Indices of the empty entries.
    free: Vec<usize>,
    messages: u64,
}

struct Connection {
    socket: OwnedFd,
    is_upgraded: bool,
    /// The start of an incomplete request or frame.
    unread: Vec<u8>,
    /// Bytes that did not fit into the socket's buffer.
    unsent: Vec<u8>,
}

impl Server {
    fn listen(port: u16) -> Result<Server> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        sockopt::set_socket_reuseport(&listener, true)?;
        rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        rustix::net::listen(&listener, BACKLOG)?;
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&poll, std::io::stdin(), EventData::new_u64(INPUT), EventFlags::IN)?;
        Ok(Server { poll, listener, connections: Vec::new(), free: Vec::new(), messages: 0 })
    }

    fn port(&self) -> Result<u16> {
        let address = SocketAddr::try_from(rustix::net::getsockname(&self.listener)?)?;
        Ok(address.port())
    }

    fn serve(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(512);
        let (mut input, mut output) = (vec![0; 2 * MAX_BYTES], Vec::new());
        loop {
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("epoll_wait"),
            }
            for Event { flags, data } in events.iter().copied() {
                match data.u64() {
                    LISTENER => self.accept()?,
                    INPUT => {
                        if !self.answer()? {
                            return Ok(());
                        }
                    }
                    place => self.on_event(place as usize, flags, &mut input, &mut output),
                }
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(errno).context("accept"),
            };
            sockopt::set_tcp_nodelay(&socket, true)?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.poll, socket.as_fd(), EventData::new_u64(place as u64), flags)?;
            self.connections[place] =
                Some(Connection { socket, is_upgraded: false, unread: Vec::new(), unsent: Vec::new() });
        }
    }

    /// Answers lines of the standard input. Returns false at its end.
    fn answer(&self) -> Result<bool> {
        let mut bytes = [0; 256];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(std::io::stdin(), &mut bytes))?;
        let mut output = std::io::stdout().lock();
        for _ in bytes[..read].iter().filter(|byte| **byte == b'\n') {
            writeln!(output, "seen {} {}", self.messages, self.connections.len() - self.free.len())?;
        }
        output.flush()?;
        Ok(read > 0)
    }

    fn on_event(&mut self, place: usize, flags: EventFlags, input: &mut [u8], output: &mut Vec<u8>) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else { return };
        let is_open = (!flags.contains(EventFlags::OUT) || connection.flush().is_ok())
            && connection.read(input, output, &mut self.messages).is_ok();
        if !is_open || flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.connections[place] = None;
            self.free.push(place);
        }
    }
}

impl Connection {
    /// Reads and echoes all available frames. An error closes the connection.
    fn read(&mut self, input: &mut [u8], output: &mut Vec<u8>, messages: &mut u64) -> Result<()> {
        loop {
            let held = self.unread.len();
            input[..held].copy_from_slice(&self.unread);
            let room = input.len() - held;
            let read = match rustix::net::recv(&self.socket, &mut input[held..], RecvFlags::empty()) {
                Ok((read, _)) => read,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            ensure!(read > 0, "closed");
            self.unread.clear();
            output.clear();
            let bytes = &mut input[..held + read];
            let used = if self.is_upgraded {
                echo(bytes, output, messages)?
            } else {
                let used = upgrade(bytes, output)?;
                self.is_upgraded = used > 0;
                used
            };
            ensure!(bytes.len() - used <= MAX_BYTES, "request or frame too long");
            self.unread.extend_from_slice(&bytes[used..]);
            self.send(output)?;
            // Later bytes cause a new event (epoll(7), question 9).
            if read < room {
                return Ok(());
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = if self.unsent.is_empty() { self.put(bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[sent..]);
        ensure!(self.unsent.len() <= MAX_BYTES, "the client does not read");
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.unsent.is_empty() {
            let sent = self.put(&self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    fn put(&self, bytes: &[u8]) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        match rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)) {
            Err(Errno::AGAIN) => Ok(0),
            sent => Ok(sent?),
        }
    }
}

/// Answers the upgrade request, if it is complete. Returns its length in bytes, 0 if it is incomplete.
fn upgrade(bytes: &[u8], output: &mut Vec<u8>) -> Result<usize> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(0) };
    let head = std::str::from_utf8(&bytes[..end]).context("the request is not UTF-8")?;
    let is_key = |name: &str| name.eq_ignore_ascii_case("sec-websocket-key");
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, key) = fields.find(|(name, _)| is_key(name)).context("the request has no Sec-WebSocket-Key")?;
    let mut digest = sha1_smol::Sha1::from(key.trim());
    digest.update(KEY_SUFFIX);
    let accept = base64::engine::general_purpose::STANDARD.encode(digest.digest().bytes());
    write!(
        output,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )?;
    Ok(end + 4)
}

/// Echoes the complete frames, a ping as a pong and a fragment as a fragment. Returns their length in bytes.
fn echo(bytes: &mut [u8], output: &mut Vec<u8>, messages: &mut u64) -> Result<usize> {
    let mut used = 0;
    loop {
        let frame = &mut bytes[used..];
        let (length, head) = match *frame {
            [_, length, ..] if length & 0x7f < 126 => (usize::from(length & 0x7f), 2),
            [_, length, high, low, ..] if length & 0x7f == 126 => {
                (usize::from(u16::from_be_bytes([high, low])), 4)
            }
            [_, length, ..] if length & 0x7f == 127 => anyhow::bail!("frame too long"),
            _ => return Ok(used),
        };
        let end = head + 4 + length;
        if frame.len() < end {
            return Ok(used);
        }
        ensure!(frame[1] & 0x80 != 0, "frame without a mask");
        let mask = [frame[head], frame[head + 1], frame[head + 2], frame[head + 3]];
        let payload = &mut frame[head + 4..end];
        for (index, byte) in payload.iter_mut().enumerate() {
            *byte ^= mask[index % 4];
        }
        let first = match frame[0] & 0x0f {
            PING => FINAL | PONG,
            PONG => {
                used += end;
                continue;
            }
            CLOSE => FINAL | CLOSE,
            _ => {
                *messages += 1;
                frame[0]
            }
        };
        output.push(first);
        output.push(frame[1] & 0x7f);
        output.extend_from_slice(&frame[2..head]);
        output.extend_from_slice(&frame[head + 4..end]);
        used += end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_that_of_the_rfc_example() {
        let mut output = Vec::new();
        let request = b"GET / HTTP/1.1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nmore";
        assert_eq!(upgrade(&request[..request.len() - 5], &mut output).expect("the start of a request"), 0);
        assert_eq!(upgrade(request, &mut output).expect("a request"), request.len() - 4);
        let reply = String::from_utf8(output).expect("text");
        assert!(reply.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{reply}");
    }

    #[test]
    fn complete_frames_are_echoed_without_their_mask() {
        // RFC 6455, 5.7: "Hello", masked; and the start of another one.
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let mut bytes = [&hello[..], &hello[..4]].concat();
        let (mut output, mut messages) = (Vec::new(), 0);
        assert_eq!(echo(&mut bytes, &mut output, &mut messages).expect("frames"), hello.len());
        assert_eq!((output.as_slice(), messages), (&b"\x81\x05Hello"[..], 1));
        let ping = [0x89, 0x80, 1, 2, 3, 4];
        output.clear();
        assert_eq!(echo(&mut ping.clone(), &mut output, &mut messages).expect("a ping"), ping.len());
        assert_eq!((output.as_slice(), messages), (&[0x8a, 0][..], 1));
    }
}
