//! Pressure stall information: total time in which tasks waited for CPU, memory or I/O.
//!
//! See the kernel's Documentation/accounting/psi.rst. Available since Linux 4.20, unless disabled at build time or at boot (psi=0). The
//! files `/proc/pressure/*` of the host and `*.pressure` of a v2 control group have the same format.

use beamtune_model::Nanos;

use crate::text::{self, Garble};

/// The stall times of a resource; `None` for those that the kernel does not provide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task waited.
    pub some_ns: Option<Nanos>,
    /// Time in which all non-idle tasks waited. Not meaningful for the CPU of a whole host.
    pub full_ns: Option<Nanos>,
}

impl Pressure {
    /// Parses the lines `some avg10=… total=MICROSECONDS` and `full …`.
    pub fn parse(content: &[u8]) -> Result<Self, Garble> {
        let total = |kind: &str| {
            let total =
                text::fields(text::value(content, kind)?).find_map(|field| field.strip_prefix(b"total="))?;
            text::reading(total)?.checked_mul(1_000)
        };
        let pressure = Pressure { some_ns: total("some "), full_ns: total("full ") };
        if pressure.some_ns.is_none() {
            return Err(Garble::new("a line `some … total=N`", content));
        }
        Ok(pressure)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn totals_are_in_nanoseconds() {
        let check = |content: &str, expect: Option<(Option<i64>, Option<i64>)>| {
            let read = Pressure::parse(content.as_bytes()).ok().map(|read| (read.some_ns, read.full_ns));
            assert_eq!(read, expect, "{content:?}");
        };
        check(
            "some avg10=0.85 avg60=3.62 avg300=3.50 total=27816884\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            Some((Some(27_816_884_000), Some(7_000))),
        );
        // Before Linux 5.13, there was no line `full` for the CPU.
        check("some avg10=0.85 avg60=3.62 avg300=3.50 total=5\n", Some((Some(5_000), None)));
        check("some avg10=0.85 total=9223372036854775807\n", None);
        check("some avg10=0.85\n", None);
        check("full total=1\n", None);
        check("", None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Pressure::parse(&content);
        }
    }
}
