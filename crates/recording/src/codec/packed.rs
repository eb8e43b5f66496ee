//! The outermost layer of every blob: how it is stored, and the check sum that tells whether it still is what was written.

use std::borrow::Cow;
use std::io::{Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::Garbled;

/// Stored as it is.
pub(crate) const PLAIN: i64 = 0;
/// Stored as a zlib stream. Not zstd, which packs text a little better: zlib can be read by the standard library
/// of every language, and the columns of a busy node, which are nearly all of a recording, gain nothing from either.
pub(crate) const ZLIB: i64 = 1;

/// Bytes that a blob holds at most. A zlib stream of one megabyte can be made to unpack to a gigabyte.
const MAX_BYTES: usize = 256 << 20;

/// A blob as it stands in the file.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    /// [`PLAIN`] or [`ZLIB`].
    pub codec: i64,
    /// CRC-32 of `bytes`, the one of zlib and PNG.
    pub crc: u32,
    /// What is stored.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Packed<'a> {
    /// As it is.
    pub(crate) fn plain(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        Packed { codec: PLAIN, crc: crc(&bytes), bytes }
    }

    /// Compressed, if that makes it smaller by an eighth. Columns of noise become smaller by a fiftieth at most, for which
    /// a reader of a whole day would have to unpack for seconds.
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

    /// The content.
    pub(crate) fn unpack(self) -> Result<Cow<'a, [u8]>, Garbled> {
        // A fuzzer would hardly get past the sum to what is behind it.
        if crc(&self.bytes) != self.crc && !cfg!(fuzzing) {
            return Err(Garbled("its check sum is wrong"));
        }
        match self.codec {
            PLAIN => Ok(self.bytes),
            ZLIB => {
                let mut content = Vec::new();
                ZlibDecoder::new(&*self.bytes)
                    .take(MAX_BYTES as u64 + 1)
                    .read_to_end(&mut content)
                    .map_err(|_| Garbled("it cannot be unpacked"))?;
                if content.len() > MAX_BYTES {
                    return Err(Garbled("it unpacks to more than a recording can hold"));
                }
                Ok(content.into())
            }
            _ => Err(Garbled("it is packed in a way that this version does not know")),
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
    fn what_was_packed_is_unpacked_and_a_changed_byte_is_noticed() {
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
                assert_eq!(changed.unpack(), Err(Garbled("its check sum is wrong")));
            }
            assert_eq!(packed.unpack().as_deref(), Ok(content));
        }
    }

    #[test]
    fn a_stream_that_unpacks_to_too_much_is_refused() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        for _ in 0..=MAX_BYTES >> 20 {
            encoder.write_all(&zeros).expect("in memory");
        }
        let bytes = encoder.finish().expect("in memory");
        let packed = Packed { codec: ZLIB, crc: crc(&bytes), bytes: bytes.into() };
        assert_eq!(packed.unpack(), Err(Garbled("it unpacks to more than a recording can hold")));
    }

    #[test]
    fn a_way_of_packing_that_is_not_known_is_refused() {
        let packed = Packed { codec: 7, crc: crc(b"x"), bytes: b"x".into() };
        assert!(packed.unpack().is_err());
    }
}
