//! Reads binary fields from the front, in the byte order of this host. At the end, reads return `None`.

/// Bytes that are not read yet.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn skip(&mut self, length: usize) {
        if self.bytes(length).is_none() {
            self.0 = &[];
        }
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }
}
