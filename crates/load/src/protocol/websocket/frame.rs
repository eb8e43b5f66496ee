//! Frames of WebSocket (RFC 6455, section 5): the heads of a server's, and whole ones of a client's.

use super::WebSocketFault;

/// Longest payload of a control frame (RFC 6455, 5.5).
const LONGEST_CONTROL_BYTES: u64 = 125;

/// What a frame is (RFC 6455, 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// Goes on with the message that was begun.
    Continuation = 0x0,
    /// Begins a message of text.
    Text = 0x1,
    /// Begins a message of bytes.
    Binary = 0x2,
    /// Says goodbye.
    Close = 0x8,
    /// Asks for a pong.
    Ping = 0x9,
    /// Answers a ping.
    Pong = 0xA,
}

/// What stands before a frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Whether the message ends with it.
    pub is_final: bool,
    /// What it is.
    pub opcode: Opcode,
    /// Bytes of the head itself.
    pub head_bytes: usize,
    /// Bytes behind it.
    pub payload_bytes: u64,
}

/// Reads the head of a server's frame; `None` if more of it has to come.
pub fn head(input: &[u8]) -> Result<Option<Head>, WebSocketFault> {
    let Some(&first) = input.first() else { return Ok(None) };
    if first & 0x70 != 0 {
        // They belong to extensions, and none was agreed upon.
        return Err(WebSocketFault::Reserved);
    }
    let opcode = match first & 0x0F {
        0x0 => Opcode::Continuation,
        0x1 => Opcode::Text,
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xA => Opcode::Pong,
        unknown => return Err(WebSocketFault::Opcode(unknown)),
    };
    let is_final = first & 0x80 != 0;
    let is_control = first & 0x08 != 0;
    if is_control && !is_final {
        return Err(WebSocketFault::FragmentedControl);
    }
    let Some(&second) = input.get(1) else { return Ok(None) };
    if second & 0x80 != 0 {
        return Err(WebSocketFault::Masked);
    }
    let short = u64::from(second & 0x7F);
    if is_control && short > LONGEST_CONTROL_BYTES {
        return Err(WebSocketFault::LongControl);
    }
    let (head_bytes, payload_bytes, least) = match (short, &input[2..]) {
        (126, [a, b, ..]) => (4, u64::from(u16::from_be_bytes([*a, *b])), 126),
        (127, [a, b, c, d, e, f, g, h, ..]) => {
            (10, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 1 << 16)
        }
        (126 | 127, _) => return Ok(None),
        _ => (2, short, 0),
    };
    // The first bit of a length of eight bytes is zero.
    if payload_bytes < least || payload_bytes >> 63 != 0 {
        return Err(WebSocketFault::Length);
    }
    Ok(Some(Head { is_final, opcode, head_bytes, payload_bytes }))
}

/// Where masking keys come from: a xorshift generator (Marsaglia 2003).
///
/// RFC 6455 wants keys that nobody can foresee, so that a page in a browser cannot make a proxy see a request that it
/// chose. Here the user chooses all bytes anyway.
#[derive(Debug, Clone, Copy)]
pub struct Masks(u32);

impl Masks {
    /// Any seed does.
    pub fn new(seed: u64) -> Self {
        // From zero the generator would never leave.
        Self((seed >> 32) as u32 | 1)
    }

    fn draw(&mut self) -> [u8; 4] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0.to_ne_bytes()
    }
}

/// Appends a whole frame of a client's to `out`.
pub fn write(opcode: Opcode, payload: &[u8], masks: &mut Masks, out: &mut Vec<u8>) {
    out.reserve(14 + payload.len());
    out.push(0x80 | opcode as u8);
    match payload.len() {
        length @ 0..126 => out.push(0x80 | length as u8),
        length @ 126..0x1_0000 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let key = masks.draw();
    out.extend_from_slice(&key);
    let from = out.len();
    out.extend_from_slice(payload);
    mask(&mut out[from..], key);
}

/// Masks, or unmasks: eight bytes at a time, of which the compiler makes sixteen or more.
pub fn mask(payload: &mut [u8], [a, b, c, d]: [u8; 4]) {
    let key = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ key).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.to_ne_bytes()) {
        *byte ^= key;
    }
}
