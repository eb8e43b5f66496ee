//! Every key that a scenario may hold, by the place where it may stand. The parser takes no others; the schema and the
//! reference are held against this list.

/// A table of a scenario.
#[derive(Debug)]
pub struct Place {
    /// What it is: `a step "request"`. Titles of the reference's sections.
    pub title: &'static str,
    /// The keys that it may hold.
    pub keys: &'static [&'static str],
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident = $title:literal: [$($key:literal),*];)*) => {
        $($(#[$doc])* pub const $name: Place = Place { title: $title, keys: &[$($key),*] };)*

        /// All of them, in the reference's order.
        pub const PLACES: &[Place] = &[$($name),*];
    };
}

places! {
    /// The file itself.
    FILE = "the file": ["load", "devices"];
    /// When what is begun.
    LOAD = "load": ["rate", "spacing", "ramp", "for", "turns", "connect_within", "rundown", "seed"];
    /// A kind of devices.
    DEVICES = "devices.NAME": [
        "target", "count", "steps", "on_connect", "table", "sources", "connect_timeout", "timeout", "pause", "fields",
        "subprotocols", "mqtt", "framing", "tls"
    ];
    /// MQTT's options.
    MQTT = "mqtt": [
        "version", "client_id", "user", "password", "keep_alive", "clean", "session_expiry", "will"
    ];
    /// MQTT's last will.
    WILL = "will": ["topic", "payload", "qos", "retain"];
    /// How messages are told apart in a stream of bytes.
    FRAMING = "framing": ["prefix_bytes", "byte_order", "fixed_bytes"];
    /// What to trust, and to be trusted by.
    TLS = "tls": ["verify", "ca", "certificate", "key", "server_name"];
    /// What an answer must be.
    CHECK = "check": ["status", "fields", "body"];
    /// A step.
    CONNECT = "step connect": ["connect", "name"];
    /// A step.
    REQUEST = "step request": ["request", "fields", "body", "json", "check", "name"];
    /// A step.
    SEND = "step send": ["send", "as", "name"];
    /// A step.
    EXPECT = "step expect": ["expect", "name"];
    /// A step.
    PUBLISH = "step publish": ["publish", "payload", "json", "qos", "retain", "name"];
    /// A step.
    SUBSCRIBE = "step subscribe": ["subscribe", "qos", "name"];
    /// A step.
    UNSUBSCRIBE = "step unsubscribe": ["unsubscribe", "name"];
    /// A step.
    PING = "step ping": ["ping", "name"];
    /// A step.
    SLEEP = "step sleep": ["sleep", "give_or_take", "exponential"];
    /// A step.
    REPEAT = "step repeat": ["repeat", "steps"];
    /// A step.
    CLOSE = "step close": ["close"];
}

/// The places that are steps; the first key of each is what the step does.
pub const STEPS: &[Place] =
    &[CONNECT, REQUEST, SEND, EXPECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PING, SLEEP, REPEAT, CLOSE];
