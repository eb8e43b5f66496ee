//! TCP sockets from the kernel's sock_diag netlink interface (sock_diag(7)): length and limit of accept queues (no file contains the
//! limit), and unread bytes of connections.
//!
//! For accept queues, only listening sockets are requested, so the number of connections and the size of the kernel's tables hardly matter.
//! A request took 0.05 ms, and 0.4 ms with 120,000 connections. Reading `/proc/net/tcp` up to the last listening socket took 7 and 42 ms.
//!
//! A netlink socket belongs to the network namespace in which it was created. For a process in another namespace, a temporary thread enters
//! that namespace (setns(2), needs root) and sends the requests there.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::sockets::{ClosedConnection, Connection, ConnectionId, Socket};

/// Name of the data source, for error messages.
const SUBJECT: &str = "TCP sockets (netlink, sock_diag)";

// From linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// NLM_F_REQUEST and NLM_F_DUMP.
const REQUEST_ALL: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u32 = 1;
const TCP_TIME_WAIT: u32 = 6;
const TCP_CLOSE_WAIT: u32 = 8;
const TCP_LISTEN: u32 = 10;
/// NLM_F_REQUEST.
const REQUEST_ONE: u16 = 1;
const INET_DIAG_INFO: u8 = 2;
/// Size of a `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;
/// Offset of `tcpi_bytes_received` in a `struct tcp_info` (linux/tcp.h).
const RECEIVED_AT: usize = 128;
/// Offset of `tcpi_last_data_recv` in a `struct tcp_info`: milliseconds since data last arrived, or since the connection was established.
const LAST_DATA_AT: usize = 52;
/// Duration of TIME_WAIT: TCP_TIMEWAIT_LEN of net/tcp.h.
const TIME_WAIT_MS: u32 = 60_000;
/// Sizes of a `struct nlmsghdr` and of a `struct inet_diag_req_v2`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
// Offsets in a `struct inet_diag_msg`. Port and address are in network byte order; for a listening socket `idiag_rqueue` is the length of
// the accept queue and `idiag_wqueue` its limit (net/ipv4/tcp_diag.c).
const PORT_AT: usize = 4;
const PEER_PORT_AT: usize = 6;
const ADDRESS_AT: usize = 8;
const PEER_ADDRESS_AT: usize = 24;
const EXPIRES_AT: usize = 52;
const RQUEUE_AT: usize = 56;
const WQUEUE_AT: usize = 60;
const INODE_AT: usize = 68;

/// The kernel's limit for one answer (net/netlink/af_netlink.c).
const ANSWER_BYTES: usize = 32 * 1024;
/// Maximum number of answers to a request; enough for tens of thousands of sockets.
const MAX_ANSWERS: usize = 200;

/// Lists the listening TCP sockets of a process's network namespace.
pub(crate) fn listening(pid: u32) -> Result<Vec<Socket>, HostError> {
    in_network_of(pid, || {
        let mut sockets = Vec::new();
        ask_for_all(1 << TCP_LISTEN, 0, |message| {
            sockets.push(socket(message)?);
            Some(Next::Continue)
        })?;
        Ok(sockets)
    })
}

/// Lists at most `max` TCP connections of a process's network namespace that belong to a process. If there are more, they are selected in
/// the order of the kernel's hash table, so the next call returns the same ones.
///
/// With `since`, [`Connection::silent_ms`] is set, which makes the answer three times as long.
pub(crate) fn connections(pid: u32, max: usize, since: bool) -> Result<Vec<Connection>, HostError> {
    in_network_of(pid, || {
        let mut connections = Vec::new();
        let extensions = if since { 1 << (INET_DIAG_INFO - 1) } else { 0 };
        ask_for_all(1 << TCP_ESTABLISHED | 1 << TCP_CLOSE_WAIT, extensions, |message| {
            let connection = connection(message)?;
            // Connections in an accept queue have no inode yet.
            if connection.inode != 0 {
                connections.push(connection);
            }
            Some(if connections.len() < max { Next::Continue } else { Next::Stop })
        })?;
        Ok(connections)
    })
}

/// Lists connections of a process's network namespace that the local side closed first: at most `max` per address family. The socket on
/// that side remains in TIME_WAIT for 60 s (TCP_TIMEWAIT_LEN of net/tcp.h).
pub(crate) fn closed(pid: u32, max: usize) -> Result<Vec<ClosedConnection>, HostError> {
    in_network_of(pid, || {
        let mut all = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let before = all.len();
            ask_for_family(family, 1 << TCP_TIME_WAIT, 0, |message| {
                all.push(time_wait(message)?);
                Some(if all.len() - before < max { Next::Continue } else { Next::Stop })
            })?;
        }
        Ok(all)
    })
}

/// Returns the number of bytes that each connection has received since it was established; `None` if it is closed, and before Linux 4.1.
pub(crate) fn bytes_received(
    pid: u32,
    ids: &[(IpAddr, ConnectionId)],
) -> Result<Vec<Option<i64>>, HostError> {
    in_network_of(pid, || {
        let socket = open()?;
        let mut answer = vec![0; ANSWER_BYTES];
        let mut ask = |(address, id): &(IpAddr, ConnectionId)| -> io::Result<Option<i64>> {
            let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
            send(
                &socket,
                &request(family, REQUEST_ONE, 0, 1 << (INET_DIAG_INFO - 1), id),
                SendFlags::empty(),
            )?;
            let (_, length) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
            let mut received = None;
            let result = read(answer.get(..length).unwrap_or_default(), &mut |message| {
                received = info(message).and_then(|info| bytes_at(info, RECEIVED_AT));
                Some(Next::Continue)
            });
            match result {
                Ok(_) => Ok(received.and_then(|bytes| i64::try_from(u64::from_ne_bytes(bytes)).ok())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        ids.iter().map(&mut ask).collect()
    })
}

/// Runs a function in a process's network namespace.
fn in_network_of<T: Send>(pid: u32, ask: impl FnOnce() -> io::Result<T> + Send) -> Result<T, HostError> {
    let path = format!("/proc/{pid}/ns/net");
    let denied = |error| HostError::from_io(&path, error);
    let theirs = fs::read_link(&path).map_err(denied)?;
    if fs::read_link("/proc/self/ns/net").is_ok_and(|ours| ours == theirs) {
        return ask().map_err(|error| HostError::from_io(SUBJECT, error));
    }
    let namespace = File::open(&path).map_err(denied)?;
    let enter_and_ask = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        ask()
    };
    let asked = thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, enter_and_ask)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the netlink thread panicked")))
    });
    asked.map_err(|error| HostError::from_io(SUBJECT, error))
}

fn open() -> io::Result<OwnedFd> {
    let netlink = Some(netlink::SOCK_DIAG);
    Ok(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, netlink)?)
}

/// Whether to read more messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

/// Requests the TCP sockets in some states, in the thread's namespace. `each` is called for each message, and returns `None` if it is
/// truncated.
fn ask_for_all(states: u32, extensions: u8, mut each: impl FnMut(&[u8]) -> Option<Next>) -> io::Result<()> {
    for family in [AF_INET, AF_INET6] {
        if ask_for_family(family, states, extensions, &mut each)? == Progress::Stopped {
            break;
        }
    }
    Ok(())
}

/// Like [`ask_for_all`], for one address family.
fn ask_for_family(
    family: u8,
    states: u32,
    extensions: u8,
    mut each: impl FnMut(&[u8]) -> Option<Next>,
) -> io::Result<Progress> {
    let mut answer = vec![0; ANSWER_BYTES];
    let socket = open()?;
    send(&socket, &request(family, REQUEST_ALL, states, extensions, &[0; 48]), SendFlags::empty())?;
    for _ in 0..MAX_ANSWERS {
        // The kernel prepares the answer during send and recv, so recv does not need to wait.
        let (_, length) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        match read(answer.get(..length).unwrap_or_default(), &mut each)? {
            Progress::More => {}
            end => return Ok(end),
        }
    }
    Ok(Progress::More)
}

/// Encodes a request for TCP sockets of an address family: all sockets in some states, or one by its id.
fn request(family: u8, flags: u16, states: u32, extensions: u8, id: &ConnectionId) -> Vec<u8> {
    let length = HEADER_BYTES + REQUEST_BYTES;
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    // Sequence number, and port id, which the kernel sets.
    request.extend([0; 8]);
    request.extend([family, IPPROTO_TCP, extensions, 0]);
    request.extend(states.to_ne_bytes());
    request.extend(id);
    request
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// More answers follow.
    More,
    /// The answer is complete.
    Done,
    /// `each` returned [`Next::Stop`].
    Stopped,
}

/// Parses one answer, which contains several messages.
fn read(mut answer: &[u8], each: &mut impl FnMut(&[u8]) -> Option<Next>) -> io::Result<Progress> {
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is truncated");
    while !answer.is_empty() {
        let length = u32_at(answer, 0).ok_or_else(cut)? as usize;
        let kind = bytes_at(answer, 4).map(u16::from_ne_bytes);
        let message = answer.get(HEADER_BYTES..length).ok_or_else(cut)?;
        match kind {
            Some(NLMSG_DONE) => return Ok(Progress::Done),
            Some(NLMSG_ERROR) => {
                let errno = u32_at(message, 0).ok_or_else(cut)? as i32;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            Some(SOCK_DIAG_BY_FAMILY) => match each(message).ok_or_else(cut)? {
                Next::Continue => {}
                Next::Stop => return Ok(Progress::Stopped),
            },
            _ => {}
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Progress::More)
}

/// Finds the `struct tcp_info` among a message's attributes, each of which begins with its length and its kind.
fn info(message: &[u8]) -> Option<&[u8]> {
    let mut attributes = message.get(MESSAGE_BYTES..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes_at(attributes, 0)?));
        let kind = u16::from_ne_bytes(bytes_at(attributes, 2)?);
        let value = attributes.get(4..length)?;
        if kind == u16::from(INET_DIAG_INFO) {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn address(message: &[u8], at: usize) -> Option<IpAddr> {
    Some(match *message.first()? {
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(bytes_at::<16>(message, at)?)),
        _ => IpAddr::V4(Ipv4Addr::from(bytes_at::<4>(message, at)?)),
    })
}

fn time_wait(message: &[u8]) -> Option<ClosedConnection> {
    let port = u16::from_be_bytes(bytes_at(message, PORT_AT)?);
    let left_ms = u32_at(message, EXPIRES_AT)?;
    Some(ClosedConnection {
        local: Listener { address: address(message, ADDRESS_AT)?, port },
        ago_ms: TIME_WAIT_MS.saturating_sub(left_ms),
    })
}

fn connection(message: &[u8]) -> Option<Connection> {
    let end = |port, at| {
        let port = u16::from_be_bytes(bytes_at(message, port)?);
        Some(Listener { address: address(message, at)?, port })
    };
    Some(Connection {
        local: end(PORT_AT, ADDRESS_AT)?,
        peer: end(PEER_PORT_AT, PEER_ADDRESS_AT)?,
        unread_bytes: i64::from(u32_at(message, RQUEUE_AT)?),
        inode: u64::from(u32_at(message, INODE_AT)?),
        id: Some(bytes_at(message, PORT_AT)?),
        silent_ms: info(message).and_then(|info| u32_at(info, LAST_DATA_AT)),
    })
}

fn socket(message: &[u8]) -> Option<Socket> {
    Some(Socket {
        listener: Listener {
            address: address(message, ADDRESS_AT)?,
            port: u16::from_be_bytes(bytes_at(message, PORT_AT)?),
        },
        waiting: i64::from(u32_at(message, RQUEUE_AT)?),
        limit: Some(i64::from(u32_at(message, WQUEUE_AT)?)),
        inode: u64::from(u32_at(message, INODE_AT)?),
    })
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    fn socket_message(family: u8, address: &[u8], waiting: u32, limit: u32, inode: u32) -> Vec<u8> {
        let mut body = vec![0; 72];
        let numbers = [(RQUEUE_AT, waiting), (WQUEUE_AT, limit), (INODE_AT, inode)];
        body[0] = family;
        body[PORT_AT..PORT_AT + 2].copy_from_slice(&5_672_u16.to_be_bytes());
        body[ADDRESS_AT..ADDRESS_AT + address.len()].copy_from_slice(address);
        numbers.iter().for_each(|(at, number)| body[*at..at + 4].copy_from_slice(&number.to_ne_bytes()));
        message(SOCK_DIAG_BY_FAMILY, &body)
    }

    fn at(address: &str, waiting: i64, limit: i64, inode: u64) -> Socket {
        let listener = Listener { address: address.parse().unwrap(), port: 5_672 };
        Socket { listener, waiting, limit: Some(limit), inode }
    }

    #[test]
    fn sockets_are_read_until_the_end_of_the_answer() {
        let mut sockets = Vec::new();
        let read_all = |answer: &[u8], sockets: &mut Vec<Socket>| {
            read(answer, &mut |message: &[u8]| {
                sockets.push(socket(message)?);
                Some(Next::Continue)
            })
        };
        let first =
            [socket_message(AF_INET, &[127, 0, 0, 1], 3, 128, 7), socket_message(AF_INET, &[0; 4], 0, 5, 8)]
                .concat();
        assert_eq!(read_all(&first, &mut sockets).unwrap(), Progress::More);
        let last = [socket_message(AF_INET6, &[0; 16], 1, 4_096, 9), message(NLMSG_DONE, &[0; 4])].concat();
        assert_eq!(read_all(&last, &mut sockets).unwrap(), Progress::Done);
        assert_eq!(sockets, [at("127.0.0.1", 3, 128, 7), at("0.0.0.0", 0, 5, 8), at("::", 1, 4_096, 9)]);
        let missing = (-2_i32).to_ne_bytes();
        let error = read_all(&message(NLMSG_ERROR, &missing), &mut sockets).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "a kernel without tcp_diag");
        assert!(read_all(&first[..first.len() - 1], &mut sockets).is_err());
    }

    #[test]
    fn netlink_and_files_give_the_same_listening_sockets() {
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        let _pending = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let own =
            |sockets: Vec<Socket>| sockets.into_iter().find(|socket| socket.listener.port == port).unwrap();
        // connect() may return before the kernel adds the connection to the accept queue.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while listening(std::process::id()).is_ok_and(|sockets| own(sockets).waiting == 0) {
            assert!(std::time::Instant::now() < until, "the connection is not in the queue");
            thread::sleep(std::time::Duration::from_millis(1));
        }
        match listening(std::process::id()) {
            Ok(sockets) => {
                let found = own(sockets);
                assert_eq!(found.waiting, 1);
                assert!(found.limit.is_some_and(|limit| limit > 0), "{found:?}");
                let tree = crate::tree::LocalTree::default();
                let read = crate::sockets::listening_in_namespace(&tree, std::process::id());
                assert_eq!(own(read.unwrap()), Socket { limit: None, ..found });
            }
            Err(HostError::Missing { .. } | HostError::Unsupported { .. }) => {
                println!("skipped, because this kernel has no sock_diag");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn unread_bytes_are_reported_for_their_connection() {
        use std::io::Write;
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(here.local_addr().unwrap()).unwrap();
        let (_accepted, from) = here.accept().unwrap();
        peer.write_all(&[7; 5_000]).unwrap();
        let pid = std::process::id();
        let own = |found: Vec<Connection>| found.into_iter().find(|c| c.peer.port == from.port());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let found = loop {
            match connections(pid, 100_000, true) {
                Ok(found) => match own(found) {
                    Some(found) if found.unread_bytes == 5_000 => break found,
                    _ => assert!(std::time::Instant::now() < until, "the bytes have not arrived"),
                },
                Err(error) => return eprintln!("skipped, because the kernel does not answer: {error}"),
            }
            thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(found.local.port, here.local_addr().unwrap().port());
        // The data arrived during this test; a value counted from boot would be much larger.
        assert!(found.silent_ms.is_some_and(|ms| ms <= 120_000), "{found:?}");
        let id = (found.local.address, found.id.unwrap());
        assert_eq!(bytes_received(pid, &[id, id]).unwrap(), [Some(5_000), Some(5_000)]);
        let read = crate::sockets::connections_in_namespace(&crate::tree::LocalTree::default(), pid).unwrap();
        if let Some(read) = own(read) {
            assert_eq!(Connection { id: None, silent_ms: None, ..found }, read);
        }
        assert!(connections(pid, 1, false).unwrap().iter().all(|one| one.silent_ms.is_none()));
        assert!(connections(pid, 1, false).unwrap().len() <= 1);
    }

    #[test]
    fn time_wait_shows_the_side_that_closed_first() {
        use std::io::Read as _;
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        let mut peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop(here.accept().unwrap());
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "the other side closed");
        drop(peer);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            match closed(std::process::id(), 100_000) {
                Ok(found) => {
                    if let Some(one) = found.iter().find(|one| one.local.port == port) {
                        assert!(one.ago_ms < 30_000, "{one:?}");
                        break;
                    }
                }
                Err(error) => return eprintln!("skipped, because the kernel does not answer: {error}"),
            }
            assert!(std::time::Instant::now() < until, "the kernel lists no socket in TIME_WAIT");
            thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(closed(std::process::id(), 1).unwrap().len() <= 2, "at most one per address family");
    }

    proptest! {
        #[test]
        fn arbitrary_answers_do_not_panic_and_end(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&answer, &mut |message: &[u8]| {
                let _ = (socket(message)?, connection(message)?, time_wait(message)?, info(message));
                Some(Next::Continue)
            });
        }
    }
}
