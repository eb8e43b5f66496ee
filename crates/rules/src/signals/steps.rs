//! Steps outside the node that processes wait for: name resolution, connecting, a handshake, a sync to disk, a reply.

/// A step outside the node.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    /// Prefixes of functions on the stack of a process that waits for it.
    pub within: &'static [&'static str],
    /// What such processes wait for.
    pub what: &'static str,
    /// Whether it should never take long. Handshakes may: clients may leave them open, and distant hosts are slow.
    pub is_short: bool,
    /// What to do.
    pub change: &'static str,
    /// Why that helps.
    pub why: &'static str,
}

/// Prefixes of functions within which a process waits for a sync.
const SYNC: &[&str] =
    &["prim_file:sync", "prim_file:datasync", "file:sync/", "file:datasync/", "disk_log:sync/"];

/// All steps; the first one that matches is used.
pub(crate) const STEPS: &[Step] = &[
    // https://www.rabbitmq.com/docs/access-control#cached-backend
    Step {
        within: &["rabbit_auth_backend_http:"],
        what: "the HTTP service that authorizes clients (rabbit_auth_backend_http)",
        is_short: true,
        change: "rabbitmq_auth_backend_cache in front of it (auth_backends.1 = cache, auth_cache.cached_backend = http, auth_cache.cache_ttl), \
                 and a faster service",
        why: "each channel queries it again for each resource that it has not cached, and publishes or consumes only after the reply",
    },
    Step {
        within: &["rabbit_auth_backend_ldap:", "eldap:"],
        what: "the LDAP server",
        is_short: true,
        change: "a cache in front of it (in RabbitMQ rabbitmq_auth_backend_cache: auth_backends.1 = cache, auth_cache.cached_backend = ldap), \
                 and a nearer or faster server",
        why: "each login, and in RabbitMQ each resource that the channel has not cached, queries it again",
    },
    Step {
        within: HTTP,
        what: "HTTP replies (httpc)",
        is_short: false,
        change: "find out why the called service is slow; cache its replies, set a timeout below that of the callers, and limit concurrent \
                 requests",
        why: "each of these processes waits for the service",
    },
    Step {
        within: &[
            "inet_res:",
            // Not its main_loop, where the process inet_gethost_native waits for requests.
            "inet_gethost_native:get",
            "inet:gethostbyname_tm/",
            "inet:gethostbyname/",
            "inet:getaddr",
        ],
        what: "name resolution (DNS)",
        is_short: true,
        change: "repair the name server, or use another one (inet_db:res_option(nameservers), /etc/resolv.conf); keep connections open, or addresses in a cache",
        why: "each new connection resolves its name first, and waits until the name server replies",
    },
    Step {
        within: &["ssl:handshake/", "ssl_gen_statem:handshake/"],
        what: "peers to start or continue a TLS handshake",
        is_short: false,
        change: "set a timeout in ssl:handshake/2 or /3 (for example 5 s), and close the socket on {error, timeout}; then find out who connects",
        why: "without a timeout, a silent peer keeps its socket and processes forever",
    },
    Step {
        within: &["tls_gen_connection:", "ssl:connect/", "ssl_gen_statem:connect/", "tls_socket:connect/"],
        what: "TLS connections to be set up",
        is_short: false,
        change: "reuse connections instead of opening one per request; allow resumption (reuse_sessions, session_tickets)",
        why: "a handshake takes several round trips and most of the CPU that TLS costs",
    },
    Step {
        within: &[
            "prim_inet:connect",
            "gen_tcp_socket:connect",
            "socket:connect",
            "inet_tcp:connect",
            "gen_tcp:connect",
        ],
        what: "TCP connections to be accepted",
        is_short: false,
        change: "see whether the other end is up and whether a firewall drops packets; a shorter timeout for gen_tcp:connect/4, and a pool of open connections",
        why: "without a timeout, an unanswered attempt is retried for two minutes",
    },
    Step {
        within: SYNC,
        what: "data to be synced to disk",
        is_short: true,
        change: "sync once for many writes (group commit: collect, sync, then reply to all), or once per second if that much may be lost; \
                 use file:datasync/1 instead of file:sync/1; a faster disk",
        why: "each sync waits for the disk, and later writes wait for the next sync",
    },
];

/// Functions in which a process waits for an HTTP reply. It then waits for no process, whichever processes it monitors.
pub(crate) const HTTP: &[&str] = &["httpc:handle_answer/"];

/// Waiting for a peer; meant for single processes with queued messages. Many servers wait for peers all the time without being delayed.
pub(crate) const PEER: Step = Step {
    within: &[
        "prim_inet:recv",
        "gen_tcp_socket:recv",
        "gen_tcp:recv/",
        "gen_udp:recv/",
        "socket:recv",
        "ssl:recv/",
        "ssl_gen_statem:recv/",
        "gun:await",
    ],
    what: "its peer's reply",
    is_short: false,
    change: "give the read a timeout, and use a pool of connections or send requests without waiting for the previous reply (pipelining)",
    why: "it handles one message per reply of the peer, so it is as slow as the peer",
};

impl Step {
    /// Returns the first step that matches.
    pub(crate) fn of(stack: &[String]) -> Option<&'static Step> {
        STEPS.iter().chain([&PEER]).find(|step| step.is_within(stack))
    }

    /// Returns the sync to disk.
    pub(crate) fn of_sync() -> Option<&'static Step> {
        STEPS.iter().find(|step| step.is_sync())
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.within == SYNC
    }

    pub(crate) fn is_peer(&self) -> bool {
        self.within == PEER.within
    }

    /// Returns what to do. If the step is a wait for a peer, that has to be examined first, and is named by its address if known.
    pub(crate) fn change_at(&self, address: Option<&str>) -> String {
        match self.is_peer() {
            true => format!("find out why {} is slow; {}", address.unwrap_or("the peer"), self.change),
            false => self.change.to_owned(),
        }
    }

    pub(crate) fn is_within(&self, stack: &[String]) -> bool {
        stack.iter().any(|function| self.within.iter().any(|begin| function.starts_with(begin)))
    }
}
