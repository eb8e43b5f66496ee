//! WebSocket frames (RFC 6455, section 5): parses the heads of a server's frames, and writes a client's frames.

use super::WebSocketFault;

/// Maximum payload of a control frame (RFC 6455, 5.5).
const MAX_CONTROL_BYTES: u64 = 125;

/// The opcode of a frame (RFC 6455, 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// Continues a fragmented message.
    Continuation = 0x0,
    /// Begins a text message.
    Text = 0x1,
    /// Begins a binary message.
    Binary = 0x2,
    /// Closes the session.
    Close = 0x8,
    /// Requests a pong.
    Ping = 0x9,
    /// Answers a ping.
    Pong = 0xA,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Whether the frame ends its message.
    pub is_final: bool,
    /// The opcode.
    pub opcode: Opcode,
    /// Size of the head in bytes.
    pub head_bytes: usize,
    /// Size of the payload in bytes.
    pub payload_bytes: u64,
}

/// Parses the head of a server's frame; `None` if it is incomplete.
pub fn head(input: &[u8]) -> Result<Option<Head>, WebSocketFault> {
    let Some(&first) = input.first() else { return Ok(None) };
    if first & 0x70 != 0 {
        // These bits are reserved for extensions, and no extension was negotiated.
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
    if is_control && short > MAX_CONTROL_BYTES {
        return Err(WebSocketFault::LongControl);
    }
    let (head_bytes, payload_bytes, min_bytes) = match (short, &input[2..]) {
        (126, [a, b, ..]) => (4, u64::from(u16::from_be_bytes([*a, *b])), 126),
        (127, [a, b, c, d, e, f, g, h, ..]) => {
            (10, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 1 << 16)
        }
        (126 | 127, _) => return Ok(None),
        _ => (2, short, 0),
    };
    // The first bit of an eight-byte length must be zero.
    if payload_bytes < min_bytes || payload_bytes >> 63 != 0 {
        return Err(WebSocketFault::Length);
    }
    Ok(Some(Head { is_final, opcode, head_bytes, payload_bytes }))
}

/// Generates masking keys with xorshift (Marsaglia 2003).
///
/// RFC 6455 requires unpredictable keys, so that a web page cannot choose the bytes that a proxy receives. Here the user chooses all bytes
/// anyway.
#[derive(Debug, Clone, Copy)]
pub struct Masks(u32);

impl Masks {
    /// Creates a generator with any seed.
    pub fn new(seed: u64) -> Self {
        // A state of zero would stay zero.
        Self((seed >> 32) as u32 | 1)
    }

    fn draw(&mut self) -> [u8; 4] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0.to_ne_bytes()
    }
}

/// Appends a client's frame to `out`.
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

/// Masks or unmasks the payload, eight bytes at a time, which the compiler vectorizes to sixteen or more.
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
