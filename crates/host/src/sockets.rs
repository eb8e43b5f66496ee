//! TCP and UDP sockets of a process, from the tables of its network namespace (`/proc/PID/net/tcp`, `tcp6`, `udp` and `udp6`) and its open
//! files.
//!
//! A message broker can have a hundred thousand connections, each with a line in the table and an open file. Listening sockets come first
//! in the table (net/ipv4/tcp_ipv4.c, `tcp_seq_start`), and have low descriptors because they are opened early. So only the beginning of
//! the table and of the list of open files is read.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::text;
use crate::tree::FileTree;

/// Enough for 400 listening sockets.
const TABLE_BYTES: usize = 64 * 1024;
/// Maximum number of open files that are read.
const MAX_DESCRIPTORS: usize = 2_000;

/// A listening socket of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Address and port.
    pub listener: Listener,
    /// Number of connections in the accept queue (net/ipv4/tcp_ipv4.c, `get_tcp4_sock`: the `rx_queue` of a listening socket).
    pub waiting: i64,
    /// Limit of the accept queue; `None` if read from the table, which does not contain it.
    pub limit: Option<i64>,
    /// Inode, by which open files refer to the socket.
    pub inode: u64,
}

/// Parses the listening sockets at the beginning of `/proc/net/tcp` or `tcp6`; a truncated last line is ignored.
pub fn listening(content: &[u8]) -> Vec<Socket> {
    const LISTEN: &[u8] = b"0A";
    let line = |line: &[u8]| {
        let mut fields = text::fields(line);
        let local = fields.nth(1)?;
        let state = fields.nth(1)?;
        let queues = fields.next()?;
        let inode = text::number(fields.nth(4)?)?;
        // At least two more fields must follow; otherwise, the number may be truncated.
        fields.next()?;
        (state == LISTEN).then_some(())?;
        let (_, waiting) = std::str::from_utf8(queues).ok()?.split_once(':')?;
        let waiting = i64::from(u32::from_str_radix(waiting, 16).ok()?);
        Some(Socket { listener: address(std::str::from_utf8(local).ok()?)?, waiting, limit: None, inode })
    };
    text::lines(content).filter_map(line).collect()
}

/// Identifies a TCP connection: `struct inet_diag_sockid` of linux/inet_diag.h, as the kernel sent it.
pub type ConnectionId = [u8; 48];

/// A TCP connection of a network namespace that belongs to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Local address.
    pub local: Listener,
    /// Remote address.
    pub peer: Listener,
    /// Received bytes that the process has not read (net/ipv4/tcp_diag.c, `idiag_rqueue`; `rx_queue` in the table).
    pub unread_bytes: i64,
    /// Inode, by which open files refer to the socket.
    pub inode: u64,
    /// Id for further queries; `None` if read from the table, which does not contain it.
    pub id: Option<ConnectionId>,
    /// Milliseconds since data last arrived, or since the connection was established; `None` if not queried.
    pub silent_ms: Option<u32>,
}

/// A connection that the local side closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedConnection {
    /// Local address.
    pub local: Listener,
    /// Time since it was closed, in milliseconds.
    pub ago_ms: u32,
}

/// Parses the connections at the beginning of `/proc/net/tcp` or `tcp6`; a truncated last line is ignored.
pub(crate) fn connected(content: &[u8]) -> Vec<Connection> {
    const ESTABLISHED_AND_CLOSE_WAIT: [&[u8]; 2] = [b"01", b"08"];
    let line = |line: &[u8]| {
        let mut fields = text::fields(line);
        let local = fields.nth(1)?;
        let peer = fields.next()?;
        let state = fields.next()?;
        let queues = fields.next()?;
        let inode = text::number(fields.nth(4)?)?;
        // At least two more fields must follow; otherwise, the number may be truncated.
        fields.next()?;
        (ESTABLISHED_AND_CLOSE_WAIT.contains(&state) && inode != 0).then_some(())?;
        let (_, unread) = std::str::from_utf8(queues).ok()?.split_once(':')?;
        let unread_bytes = i64::from(u32::from_str_radix(unread, 16).ok()?);
        let at = |field| address(std::str::from_utf8(field).ok()?);
        Some(Connection {
            local: at(local)?,
            peer: at(peer)?,
            unread_bytes,
            inode,
            id: None,
            silent_ms: None,
        })
    };
    text::lines(content).filter_map(line).collect()
}

/// A UDP socket of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UdpSocket {
    /// Local address.
    pub(crate) listener: Listener,
    /// Memory that unread datagrams occupy, in bytes.
    pub(crate) queue: i64,
    /// Number of datagrams dropped at this socket (net/ipv4/udp.c, `udp4_format_sock`: the last field).
    pub(crate) drops: i64,
    /// Inode, by which open files refer to the socket.
    pub(crate) inode: u64,
}

/// Parses the sockets at the beginning of `/proc/net/udp` or `udp6`; a truncated last line is ignored.
pub(crate) fn udp(content: &[u8]) -> Vec<UdpSocket> {
    let complete = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let line = |line: &[u8]| {
        let mut fields = text::fields(line);
        let local = fields.nth(1)?;
        let queues = fields.nth(2)?;
        let inode = text::number(fields.nth(4)?)?;
        // A reference count and an address are skipped.
        let drops = text::reading(fields.nth(2)?)?;
        let (_, waiting) = std::str::from_utf8(queues).ok()?.split_once(':')?;
        let queue = i64::from(u32::from_str_radix(waiting, 16).ok()?);
        Some(UdpSocket { listener: address(std::str::from_utf8(local).ok()?)?, queue, drops, inode })
    };
    text::lines(&content[..complete]).filter_map(line).collect()
}

/// Parses `0100007F:1538`: an address as 32-bit words in native byte order, and a port.
fn address(text: &str) -> Option<Listener> {
    let (words, port) = text.split_once(':')?;
    let word = |index: usize| {
        Some(u32::from_str_radix(words.get(index * 8..index * 8 + 8)?, 16).ok()?.to_ne_bytes())
    };
    let address = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(Listener { address, port: u16::from_str_radix(port, 16).ok()? })
}

/// The listening sockets of each network namespace, read once for all of its processes. In a namespace without connections, the kernel
/// searches its whole table before it reports the end. This took 1.5 ms on a small host, and takes longer on larger ones.
#[derive(Debug, Default)]
pub struct Sockets(HashMap<String, Vec<Socket>>);

impl Sockets {
    /// Returns the addresses and ports on which a process listens.
    pub fn listeners(&mut self, tree: &impl FileTree, pid: u32) -> Result<Vec<Listener>, HostError> {
        // If the open files are not accessible, the sockets need not be read.
        let open = open_sockets(tree, pid, MAX_DESCRIPTORS)?;
        let namespace = tree.read_link(&format!("/proc/{pid}/ns/net"))?;
        let sockets = match self.0.entry(namespace) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(listening_in_namespace(tree, pid)?),
        };
        let own = sockets.iter().filter(|socket| open.contains(&socket.inode));
        let found: BTreeSet<Listener> = own.map(|socket| socket.listener).collect();
        Ok(found.into_iter().collect())
    }
}

/// Returns the inodes of the sockets among the first `max` open files of a process.
pub(crate) fn open_sockets(tree: &impl FileTree, pid: u32, max: usize) -> Result<HashSet<u64>, HostError> {
    let folder = format!("/proc/{pid}/fd");
    let inode = |descriptor: String| {
        // The file may have been closed in the meantime.
        let target = tree.read_link(&format!("{folder}/{descriptor}")).ok()?;
        text::number(target.strip_prefix("socket:[")?.strip_suffix(']')?.as_bytes())
    };
    Ok(tree.list(&folder, max)?.into_iter().filter_map(inode).collect())
}

/// Reads the listening sockets of a process's network namespace.
pub(crate) fn listening_in_namespace(tree: &impl FileTree, pid: u32) -> Result<Vec<Socket>, HostError> {
    read_tables(tree, pid, ["tcp", "tcp6"], listening)
}

/// Reads the first TCP connections of a process's network namespace.
pub(crate) fn connections_in_namespace(tree: &impl FileTree, pid: u32) -> Result<Vec<Connection>, HostError> {
    read_tables(tree, pid, ["tcp", "tcp6"], connected)
}

/// Reads the UDP sockets of a process's network namespace.
pub(crate) fn udp_in_namespace(tree: &impl FileTree, pid: u32) -> Result<Vec<UdpSocket>, HostError> {
    read_tables(tree, pid, ["udp", "udp6"], udp)
}

/// Reads and parses the beginning of two tables, for IPv4 and IPv6.
fn read_tables<S>(
    tree: &impl FileTree,
    pid: u32,
    tables: [&str; 2],
    parse: fn(&[u8]) -> Vec<S>,
) -> Result<Vec<S>, HostError> {
    let mut sockets = Vec::new();
    for table in tables {
        let mut content = Vec::new();
        match tree.read_start(&format!("/proc/{pid}/net/{table}"), TABLE_BYTES, &mut content) {
            Ok(()) => sockets.extend(parse(&content)),
            // A kernel without IPv6.
            Err(HostError::Missing { .. }) if table.ends_with('6') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::FakeHost;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 00000000:D978 00000000:0000 0A 00000000:00000000 00:00000000 00000000   112        0 68134 1 0000 100 0 0 10 0\n   \
        1: 0100007F:1538 00000000:0000 0A 00000000:0000000B 00:00000000 00000000   112        0 68140 1 0000 100 0 0 10 0\n   \
        2: 0100007F:1538 0100007F:9C40 01 00000000:00000000 00:00000000 00000000   112        0 68150 1 0000 20 4 30 10 -1\n";
    const TABLE6: &str = "  sl  local_address                         remote_address                        st tx_queue\n   \
        0: 00000000000000000000000000000000:8B58 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 \
        00000000   112        0 68160 1 0000 100 0 0 10 0\n   \
        1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 \
        00000000   112        0 68161 1 0000 100 0 0 10 0\n";

    fn at(address: &str, port: u16) -> Listener {
        Listener { address: address.parse().unwrap(), port }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_listening_sockets_are_returned() {
        let read = |content: &str| {
            listening(content.as_bytes()).iter().map(|s| (s.listener, s.waiting, s.inode)).collect::<Vec<_>>()
        };
        assert_eq!(read(TABLE), [(at("0.0.0.0", 55_672), 0, 68_134), (at("127.0.0.1", 5_432), 11, 68_140)]);
        assert_eq!(read(TABLE6), [(at("::", 35_672), 0, 68_160), (at("::1", 8_080), 0, 68_161)]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn unread_bytes_of_connections_are_parsed() {
        let table = TABLE.replace("01 00000000:00000000", "01 00000000:00000900");
        let expect = Connection {
            local: at("127.0.0.1", 5_432),
            peer: at("127.0.0.1", 40_000),
            unread_bytes: 0x900,
            inode: 68_150,
            id: None,
            silent_ms: None,
        };
        assert_eq!(connected(table.as_bytes()), [expect]);
        // A connection in an accept queue belongs to no process yet.
        assert_eq!(connected(table.replace(" 68150 ", " 0 ").as_bytes()), []);
    }

    const UDP: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
        713: 0100007F:2456 00000000:0000 07 00000000:00000940 00:00000000 00000000     0        0 68142 2 000000002b7e2bc5 1275\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn drops_of_udp_sockets_are_parsed() {
        let expect =
            UdpSocket { listener: at("127.0.0.1", 9_302), queue: 0x940, drops: 1_275, inode: 68_142 };
        assert_eq!(udp(UDP.as_bytes()), [expect]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_process_listens_on_its_open_sockets() {
        let host = FakeHost::new();
        host.file("/proc/7/net/tcp", TABLE).file("/proc/7/net/tcp6", TABLE6);
        host.link("/proc/7/fd/0", "/dev/null")
            .link("/proc/7/fd/3", "socket:[68140]")
            .link("/proc/7/fd/4", "socket:[68150]");
        host.link("/proc/7/fd/5", "socket:[68160]")
            .link("/proc/7/fd/6", "socket:[x")
            .link("/proc/7/fd/7", "socket:[68140]");
        host.link("/proc/7/ns/net", "net:[1]");
        let listeners = || Sockets::default().listeners(&host.tree(), 7).unwrap();
        assert_eq!(listeners(), [at("127.0.0.1", 5_432), at("::", 35_672)]);
        host.remove("/proc/7/net/tcp6");
        assert_eq!(listeners(), [at("127.0.0.1", 5_432)]);
    }

    #[test]
    fn each_network_namespace_has_its_own_sockets() {
        let host = FakeHost::new();
        for (pid, namespace, table) in [(7, "net:[1]", TABLE), (8, "net:[2]", ""), (9, "net:[1]", "")] {
            host.file(&format!("/proc/{pid}/net/tcp"), table).link(&format!("/proc/{pid}/ns/net"), namespace);
            host.link(&format!("/proc/{pid}/fd/3"), "socket:[68140]");
        }
        let mut sockets = Sockets::default();
        let mut count = |pid| sockets.listeners(&host.tree(), pid).unwrap().len();
        // Process 9 shares the network namespace of process 7, so the table is not read again.
        assert_eq!([count(7), count(8), count(9)], [1, 0, 1]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = listening(&content);
            let _ = udp(&content);
            let _ = connected(&content);
            let _ = address(&String::from_utf8_lossy(&content));
        }

        #[test]
        fn a_truncated_udp_line_is_ignored(cut in 0..UDP.len()) {
            prop_assert_eq!(udp(&UDP.as_bytes()[..cut]), []);
        }

        #[test]
        fn a_truncated_table_gives_no_wrong_socket(cut in 0..TABLE.len()) {
            let whole = listening(TABLE.as_bytes());
            for socket in listening(&TABLE.as_bytes()[..cut]) {
                prop_assert!(whole.contains(&socket), "{:?}", socket);
            }
        }
    }
}
