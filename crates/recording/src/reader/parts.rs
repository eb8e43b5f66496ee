//! Access to readings: the rows of `chunk`, and then those of `hot`, as one sequence of segments.

use std::borrow::Cow;
use std::collections::HashMap;

use beamtune_model::{Group, Nanos, ProcessTick};
use rusqlite::params;

use super::{Reader, scan};
use crate::codec::chunk::Chunk;
use crate::codec::column::Column;
use crate::codec::packed::Packed;
use crate::codec::{Garbled, busiest, hot};
use crate::error::Error;
use crate::schema::BUSIEST;

/// The kind of data in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Content {
    Readings(Group),
    Busiest,
}

impl Content {
    /// Name for the source of a gap.
    pub(super) fn source(self) -> String {
        match self {
            Content::Readings(group) if group.is_host() => format!("host.{group}"),
            Content::Readings(group) => format!("vm.{group}"),
            Content::Busiest => format!("vm.{BUSIEST}"),
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        if text == BUSIEST { Some(Content::Busiest) } else { Group::from_text(text).map(Content::Readings) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    Chunk,
    Hot,
}

/// One row of `chunk` or `hot`, without its blob.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    table: Table,
    id: i64,
    pub(super) content: Content,
}

/// Receives the decoded content of parts.
pub(super) trait Sink {
    /// Starts the readings of a group; columns that follow refer to these ticks.
    fn readings(&mut self, group: Group, times: &[Nanos]);
    /// Receives a column: a series id of the file, and values with the indices of their ticks.
    fn column(&mut self, series: u32, values: impl Iterator<Item = (usize, i64)>);
    /// Receives the busiest processes of a tick.
    fn busiest(&mut self, t: Nanos, list: Vec<ProcessTick>);
}

/// Decodes parts, which must be passed in order.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    column: Column,
    hot: HashMap<Group, hot::Decoder>,
}

/// The parts that cover the same ticks.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    /// The first tick.
    pub(super) begin: Nanos,
    /// The last tick.
    pub(super) end: Nanos,
    pub(super) parts: Vec<Part>,
}

impl Segment {
    /// The parts with this content; there is more than one only in a damaged file.
    pub(super) fn parts_of(&self, content: Content) -> impl Iterator<Item = Part> {
        self.parts.iter().copied().filter(move |part| part.content == content)
    }
}

impl Reader {
    /// Returns the segments in `chunk` with ids above the cursor, and whether segments may be missing. Advances the cursor.
    pub(super) fn chunks(&self, cursor: &mut i64) -> Result<(Vec<Segment>, bool), Error> {
        let sql = "SELECT id, grp, t0, t1 FROM chunk WHERE id > ?1 ORDER BY id";
        self.segments(sql, Table::Chunk, cursor)
    }

    /// Returns the segments in `hot`, each of one tick, with ids above the cursor, and whether segments may be missing. Advances the
    /// cursor. Ids restart whenever the rows of `hot` have become chunks.
    pub(super) fn hot(&self, cursor: &mut i64) -> Result<(Vec<Segment>, bool), Error> {
        let sql = "SELECT id, grp, t, t FROM hot WHERE id > ?1 ORDER BY id";
        self.segments(sql, Table::Hot, cursor)
    }

    fn segments(&self, sql: &str, table: Table, cursor: &mut i64) -> Result<(Vec<Segment>, bool), Error> {
        let mut segments: Vec<Segment> = Vec::new();
        let damaged = self.scan(sql, *cursor, 1, |row| {
            let (id, begin, end) = (row.get(0)?, row.get(2)?, row.get(3)?);
            *cursor = id;
            let Some(content) = Content::from_text(row.get_ref(1)?.as_str()?) else { return scan::MORE };
            let part = Part { table, id, content };
            match segments.last_mut() {
                Some(segment) if segment.end == end => segment.parts.push(part),
                _ => segments.push(Segment { begin, end, parts: vec![part] }),
            }
            scan::MORE
        })?;
        Ok((segments, damaged))
    }

    /// Reads a part as stored; the inner error is the reason why it is unreadable.
    pub(super) fn packed(&self, part: Part) -> Result<Result<Packed<'static>, String>, Error> {
        let sql = match part.table {
            Table::Chunk => "SELECT codec, crc, blob FROM chunk WHERE id = ?1",
            Table::Hot => "SELECT codec, crc, blob FROM hot WHERE id = ?1",
        };
        let packed = self.connection.prepare_cached(sql).and_then(|mut select| {
            select.query_row(params![part.id], |row| {
                let bytes = row.get_ref(2)?.as_blob()?.to_vec();
                Ok(Packed { codec: row.get(0)?, crc: row.get(1)?, bytes: bytes.into() })
            })
        });
        match packed {
            Ok(packed) => Ok(Ok(packed)),
            Err(error) if scan::is_damage(&error) => Ok(Err(error.to_string())),
            Err(error) => Err(Error::sqlite(&self.path, error)),
        }
    }

    /// Reads and unpacks a part; the inner error is the reason why it is unreadable.
    fn load(&self, part: Part) -> Result<Result<Cow<'static, [u8]>, String>, Error> {
        let unpack = |packed: Packed<'static>| packed.unpack().map_err(|garbled| garbled.to_string());
        Ok(self.packed(part)?.and_then(unpack))
    }

    /// Decodes a part into a sink; the inner error is the reason why it is unreadable.
    pub(super) fn take(
        &self,
        part: Part,
        t: Nanos,
        decoder: &mut Decoder,
        sink: &mut impl Sink,
    ) -> Result<Result<(), String>, Error> {
        Ok(match self.load(part)? {
            Ok(bytes) => decoder.decode(part, t, &bytes, sink).map_err(|garbled| garbled.to_string()),
            Err(why) => {
                decoder.skip(part);
                Err(why)
            }
        })
    }
}

impl Decoder {
    fn decode(&mut self, part: Part, t: Nanos, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Garbled> {
        match (part.content, part.table) {
            (Content::Readings(group), Table::Chunk) => {
                let chunk = Chunk::parse(bytes)?;
                sink.readings(group, &chunk.times);
                for (series, bytes) in chunk.columns {
                    self.column.decode(bytes, chunk.times.len())?;
                    sink.column(series, self.column.pairs());
                }
            }
            (Content::Readings(group), Table::Hot) => {
                let readings = self.hot.entry(group).or_default().decode(bytes)?;
                sink.readings(group, &[t]);
                for (series, value) in readings {
                    sink.column(series, std::iter::once((0, value)));
                }
            }
            (Content::Busiest, _) => {
                for (t, list) in busiest::decode(bytes)? {
                    sink.busiest(t, list);
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, part: Part) {
        if let (Content::Readings(group), Table::Hot) = (part.content, part.table) {
            self.hot.entry(group).or_default().skip();
        }
    }
}
