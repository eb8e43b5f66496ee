//! The outermost layer of every blob: compression and checksum.

use std::borrow::Cow;
use std::io::{Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::Garbled;

/// Not compressed.
pub(crate) const PLAIN: i64 = 0;
/// zlib stream. zstd compresses text a little better, but zlib is in the standard library of nearly every language. The columns of a
/// busy node, which take nearly all space in a recording, cannot be compressed by either.
pub(crate) const ZLIB: i64 = 1;

/// Maximum size of an unpacked blob: a crafted zlib stream of one megabyte can unpack to a gigabyte.
const MAX_BYTES: usize = 256 << 20;

/// A blob as stored in the file.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    /// [`PLAIN`] or [`ZLIB`].
    pub codec: i64,
    /// CRC-32 of `bytes`, as in zlib and PNG.
    pub crc: u32,
    /// The stored bytes.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Packed<'a> {
    /// Stores the bytes uncompressed.
    pub(crate) fn plain(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        Packed { codec: PLAIN, crc: crc(&bytes), bytes }
    }

    /// Compresses the bytes if this saves at least an eighth. Columns of noise shrink by a fiftieth at most, but their decompression
    /// would take seconds when a whole day is read.
    pub(crate) fn compressed(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        match encoder.write_all(&bytes).and_then(|()| encoder.finish()) {
            Ok(packed) if packed.len() < bytes.len() - bytes.len() / 8 => {
                Packed { codec: ZLIB, crc: crc(&packed), bytes: packed.into() }
            }
            _ => Packed::plain(bytes),
        }
    }

    /// Checks and unpacks the content.
    pub(crate) fn unpack(self) -> Result<Cow<'a, [u8]>, Garbled> {
        // Not checked while fuzzing: hardly any input of a fuzzer has a valid checksum.
        if crc(&self.bytes) != self.crc && !cfg!(fuzzing) {
            return Err(Garbled("checksum mismatch"));
        }
        match self.codec {
            PLAIN => Ok(self.bytes),
            ZLIB => {
                let mut content = Vec::new();
                ZlibDecoder::new(&*self.bytes)
                    .take(MAX_BYTES as u64 + 1)
                    .read_to_end(&mut content)
                    .map_err(|_| Garbled("invalid zlib stream"))?;
                if content.len() > MAX_BYTES {
                    return Err(Garbled("unpacked content is too large"));
                }
                Ok(content.into())
            }
            _ => Err(Garbled("unknown codec")),
        }
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_round_trips_and_a_changed_byte_is_detected() {
        let text = b"gen_server:loop/7 ".repeat(50);
        let noise: Vec<u8> =
            (0..100_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        for content in [&text[..], &noise[..], &[]] {
            let packed = Packed::compressed(content);
            assert_eq!(packed.codec, if content.len() > 500 { ZLIB } else { PLAIN });
            for index in 0..packed.bytes.len() {
                let mut bytes = packed.bytes.to_vec();
                bytes[index] ^= 4;
                let changed = Packed { bytes: bytes.into(), ..packed };
                assert_eq!(changed.unpack(), Err(Garbled("checksum mismatch")));
            }
            assert_eq!(packed.unpack().as_deref(), Ok(content));
        }
    }

    #[test]
    fn a_stream_that_unpacks_to_too_much_is_rejected() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        for _ in 0..=MAX_BYTES >> 20 {
            encoder.write_all(&zeros).expect("in memory");
        }
        let bytes = encoder.finish().expect("in memory");
        let packed = Packed { codec: ZLIB, crc: crc(&bytes), bytes: bytes.into() };
        assert_eq!(packed.unpack(), Err(Garbled("unpacked content is too large")));
    }

    #[test]
    fn an_unknown_codec_is_rejected() {
        let packed = Packed { codec: 7, crc: crc(b"x"), bytes: b"x".into() };
        assert!(packed.unpack().is_err());
    }
}
