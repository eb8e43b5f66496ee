//! What the kernel tells of TCP sockets by netlink (sock_diag(7)): how many connections wait to be accepted, and
//! how many may, which stands in no file; and how much of what has come nobody has read.
//!
//! Only sockets that listen are asked for, so that connections and the size of the kernel's tables cost little: 0.05 ms
//! measured, 0.4 ms beside 120,000 connections. The files, as far as the listening sockets, take 7 and 42 ms.
//!
//! A netlink socket tells of the network namespace that it was made in; for a process in another one a thread of its own
//! enters that (setns(2), which wants root), asks, and ends.

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
use crate::sockets::{Closed, Connection, ConnectionId, Socket};

/// What is asked, for messages.
const WHAT: &str = "TCP sockets (netlink, sock_diag)";

// Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
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
/// Of a `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;
/// `tcpi_bytes_received` within a `struct tcp_info` (linux/tcp.h).
const RECEIVED_AT: usize = 128;
/// `tcpi_last_data_recv` within it: milliseconds since data came last, or since it was set up.
const LAST_DATA_AT: usize = 52;
/// How long a socket stays in TIME_WAIT: TCP_TIMEWAIT_LEN of net/tcp.h.
const TIME_WAIT_MS: u32 = 60_000;
/// Of a `struct nlmsghdr`, and of a `struct inet_diag_req_v2`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
/// Within a `struct inet_diag_msg`: the port and the address are as on the wire; of a listening socket `idiag_rqueue` is
/// how many wait, `idiag_wqueue` how many may (net/ipv4/tcp_diag.c).
const PORT_AT: usize = 4;
const PEER_PORT_AT: usize = 6;
const ADDRESS_AT: usize = 8;
const PEER_ADDRESS_AT: usize = 24;
const EXPIRES_AT: usize = 52;
const RQUEUE_AT: usize = 56;
const WQUEUE_AT: usize = 60;
const INODE_AT: usize = 68;

/// The kernel fills no more than this at once (net/netlink/af_netlink.c).
const ANSWER_BYTES: usize = 32 * 1024;
/// Enough for tens of thousands of sockets.
const MOST_ANSWERS: usize = 200;

/// The listening TCP sockets of a process's network namespace.
pub(crate) fn listening(pid: u32) -> Result<Vec<Socket>, HostError> {
    in_network_of(pid, || {
        let mut sockets = Vec::new();
        ask_for_all(1 << TCP_LISTEN, 0, |message| {
            sockets.push(socket(message)?);
            Some(Go::On)
        })?;
        Ok(sockets)
    })
}

/// TCP connections of a process's network namespace that have a socket in some process, at most `max`. Which of more these are follows
/// from the kernel's hash table, so the next look finds the same ones.
///
/// With `since` each says when data came last: that makes the answer three times as long.
pub(crate) fn connections(pid: u32, max: usize, since: bool) -> Result<Vec<Connection>, HostError> {
    in_network_of(pid, || {
        let mut connections = Vec::new();
        let extensions = if since { 1 << (INET_DIAG_INFO - 1) } else { 0 };
        ask_for_all(1 << TCP_ESTABLISHED | 1 << TCP_CLOSE_WAIT, extensions, |message| {
            let connection = connection(message)?;
            // What waits to be accepted has no socket yet.
            if connection.inode != 0 {
                connections.push(connection);
            }
            Some(if connections.len() < max { Go::On } else { Go::Stop })
        })?;
        Ok(connections)
    })
}

/// Local addresses of connections of a process's network namespace that their own side closed first, at most `max` of each address family: a
/// socket in TIME_WAIT stays for 60 s (TCP_TIMEWAIT_LEN of net/tcp.h), and only on that side. Each with how long ago it was closed, in
/// milliseconds.
pub(crate) fn closed(pid: u32, max: usize) -> Result<Vec<Closed>, HostError> {
    in_network_of(pid, || {
        let mut all = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let before = all.len();
            ask_for_family(family, 1 << TCP_TIME_WAIT, 0, |message| {
                all.push(time_wait(message)?);
                Some(if all.len() - before < max { Go::On } else { Go::Stop })
            })?;
        }
        Ok(all)
    })
}

/// Bytes that each of these connections has received since it was set up; `None` for one that is gone, and before Linux 4.1.
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
            let told = read(answer.get(..length).unwrap_or_default(), &mut |message| {
                received = info(message).and_then(|info| bytes_at(info, RECEIVED_AT));
                Some(Go::On)
            });
            match told {
                Ok(_) => Ok(received.and_then(|bytes| i64::try_from(u64::from_ne_bytes(bytes)).ok())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        ids.iter().map(&mut ask).collect()
    })
}

/// Does something in a process's network namespace.
fn in_network_of<T: Send>(pid: u32, ask: impl FnOnce() -> io::Result<T> + Send) -> Result<T, HostError> {
    let path = format!("/proc/{pid}/ns/net");
    let denied = |error| HostError::from_io(&path, error);
    let theirs = fs::read_link(&path).map_err(denied)?;
    if fs::read_link("/proc/self/ns/net").is_ok_and(|ours| ours == theirs) {
        return ask().map_err(|error| HostError::from_io(WHAT, error));
    }
    let door = File::open(&path).map_err(denied)?;
    let enter_and_ask = move || {
        move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
        ask()
    };
    let asked = thread::scope(|scope| {
        let visitor = thread::Builder::new().spawn_scoped(scope, enter_and_ask)?;
        visitor.join().unwrap_or_else(|_| Err(io::Error::other("the thread that asked has failed")))
    });
    asked.map_err(|error| HostError::from_io(WHAT, error))
}

fn open() -> io::Result<OwnedFd> {
    let netlink = Some(netlink::SOCK_DIAG);
    Ok(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, netlink)?)
}

/// Whether more messages are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

/// Asks for the TCP sockets in some states of the namespace that the thread is in, with extensions. `None` of a message says that it is cut.
fn ask_for_all(states: u32, extensions: u8, mut each: impl FnMut(&[u8]) -> Option<Go>) -> io::Result<()> {
    for family in [AF_INET, AF_INET6] {
        if ask_for_family(family, states, extensions, &mut each)? == Read::Enough {
            break;
        }
    }
    Ok(())
}

/// The same of one address family.
fn ask_for_family(
    family: u8,
    states: u32,
    extensions: u8,
    mut each: impl FnMut(&[u8]) -> Option<Go>,
) -> io::Result<Read> {
    let mut answer = vec![0; ANSWER_BYTES];
    let socket = open()?;
    send(&socket, &request(family, REQUEST_ALL, states, extensions, &[0; 48]), SendFlags::empty())?;
    for _ in 0..MOST_ANSWERS {
        // The answer is made while it is asked and received, so there is nothing to wait for.
        let (_, length) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        match read(answer.get(..length).unwrap_or_default(), &mut each)? {
            Read::Some => {}
            end => return Ok(end),
        }
    }
    Ok(Read::Some)
}

/// Asks for TCP sockets of a family: those in some states, or one by its id, with extensions.
fn request(family: u8, flags: u16, states: u32, extensions: u8, id: &ConnectionId) -> Vec<u8> {
    let length = HEADER_BYTES + REQUEST_BYTES;
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    // Number of the request and of who asks: the kernel fills the second in.
    request.extend([0; 8]);
    request.extend([family, IPPROTO_TCP, extensions, 0]);
    request.extend(states.to_ne_bytes());
    request.extend(id);
    request
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// There is more to come.
    Some,
    All,
    /// There may be more, and it is not wanted.
    Enough,
}

/// Reads one answer, which is of many messages.
fn read(mut answer: &[u8], each: &mut impl FnMut(&[u8]) -> Option<Go>) -> io::Result<Read> {
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is cut");
    while !answer.is_empty() {
        let length = u32_at(answer, 0).ok_or_else(cut)? as usize;
        let kind = bytes_at(answer, 4).map(u16::from_ne_bytes);
        let message = answer.get(HEADER_BYTES..length).ok_or_else(cut)?;
        match kind {
            Some(NLMSG_DONE) => return Ok(Read::All),
            Some(NLMSG_ERROR) => {
                let errno = u32_at(message, 0).ok_or_else(cut)? as i32;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            Some(SOCK_DIAG_BY_FAMILY) => match each(message).ok_or_else(cut)? {
                Go::On => {}
                Go::Stop => return Ok(Read::Enough),
            },
            _ => {}
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Read::Some)
}

/// The `struct tcp_info` among a message's attributes (a length and a kind before each).
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

fn time_wait(message: &[u8]) -> Option<Closed> {
    let port = u16::from_be_bytes(bytes_at(message, PORT_AT)?);
    let left_ms = u32_at(message, EXPIRES_AT)?;
    Some(Closed {
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

    fn told(family: u8, address: &[u8], waiting: u32, limit: u32, inode: u32) -> Vec<u8> {
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
    fn each_socket_is_read_until_the_kernel_says_that_it_was_all() {
        let mut sockets = Vec::new();
        let read_all = |answer: &[u8], sockets: &mut Vec<Socket>| {
            read(answer, &mut |message: &[u8]| {
                sockets.push(socket(message)?);
                Some(Go::On)
            })
        };
        let first = [told(AF_INET, &[127, 0, 0, 1], 3, 128, 7), told(AF_INET, &[0; 4], 0, 5, 8)].concat();
        assert_eq!(read_all(&first, &mut sockets).unwrap(), Read::Some);
        let last = [told(AF_INET6, &[0; 16], 1, 4_096, 9), message(NLMSG_DONE, &[0; 4])].concat();
        assert_eq!(read_all(&last, &mut sockets).unwrap(), Read::All);
        assert_eq!(sockets, [at("127.0.0.1", 3, 128, 7), at("0.0.0.0", 0, 5, 8), at("::", 1, 4_096, 9)]);
        let missing = (-2_i32).to_ne_bytes();
        let error = read_all(&message(NLMSG_ERROR, &missing), &mut sockets).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "a kernel without tcp_diag");
        assert!(read_all(&first[..first.len() - 1], &mut sockets).is_err());
    }

    #[test]
    fn the_kernel_tells_by_netlink_what_stands_in_its_files() {
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        let _waits = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let own =
            |sockets: Vec<Socket>| sockets.into_iter().find(|socket| socket.listener.port == port).unwrap();
        // The one that connects may go on before the kernel has put the connection into the queue.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while listening(std::process::id()).is_ok_and(|sockets| own(sockets).waiting == 0) {
            assert!(std::time::Instant::now() < until, "the connection is not in the queue");
            thread::sleep(std::time::Duration::from_millis(1));
        }
        match listening(std::process::id()) {
            Ok(sockets) => {
                let told = own(sockets);
                assert_eq!(told.waiting, 1);
                assert!(told.limit.is_some_and(|limit| limit > 0), "{told:?}");
                let read =
                    crate::sockets::of_namespace(&crate::tree::LocalTree::default(), std::process::id());
                assert_eq!(own(read.unwrap()), Socket { limit: None, ..told });
            }
            Err(HostError::Missing { .. } | HostError::Unsupported { .. }) => {
                println!("skipped, because this kernel has no sock_diag");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn bytes_that_nobody_reads_are_told_of_the_connection_that_has_them() {
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
                    _ => assert!(std::time::Instant::now() < until, "the bytes have not come"),
                },
                Err(error) => return eprintln!("skipped, because the kernel does not tell: {error}"),
            }
            thread::sleep(std::time::Duration::from_millis(1));
        };
        assert_eq!(found.local.port, here.local_addr().unwrap().port());
        // They came within this test; a connection that has waited since the machine was started would have a large number.
        assert!(found.silent_ms.is_some_and(|ms| ms <= 120_000), "{found:?}");
        let id = (found.local.address, found.id.unwrap());
        assert_eq!(bytes_received(pid, &[id, id]).unwrap(), [Some(5_000), Some(5_000)]);
        let read = crate::sockets::connections_of_namespace(&crate::tree::LocalTree::default(), pid).unwrap();
        if let Some(read) = own(read) {
            assert_eq!(Connection { id: None, silent_ms: None, ..found }, read);
        }
        assert!(connections(pid, 1, false).unwrap().iter().all(|one| one.silent_ms.is_none()));
        assert!(connections(pid, 1, false).unwrap().len() <= 1);
    }

    #[test]
    fn the_side_that_closed_first_is_known_from_time_wait() {
        use std::io::Read as _;
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        let mut peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop(here.accept().unwrap());
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "the other side has closed");
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
                Err(error) => return eprintln!("skipped, because the kernel does not tell: {error}"),
            }
            assert!(std::time::Instant::now() < until, "no socket in TIME_WAIT");
            thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(closed(std::process::id(), 1).unwrap().len() <= 2, "one of each family");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_to_an_end(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&answer, &mut |message: &[u8]| {
                let _ = (socket(message)?, connection(message)?, time_wait(message)?, info(message));
                Some(Go::On)
            });
        }
    }
}
