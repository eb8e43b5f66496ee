//! Parses the binary records in an event's ring buffer. See perf_event_open(2).
//!
//! The fields of a record depend on the event's attributes; here they are: thread, time, kernel stack if requested, registers, stack. We parse
//! them ourselves for two reasons: we need the time of context switches, and a sample may lack registers and stack, which makes it shorter.

use crate::fields::Fields;
use crate::memory::word_at;
use crate::native::{self, RegisterSet};

/// Constants of perf_event.h.
mod kernel {
    pub const RECORD_LOST: u32 = 2;
    pub const RECORD_SAMPLE: u32 = 9;
    pub const RECORD_LOST_SAMPLES: u32 = 13;
    pub const RECORD_SWITCH: u32 = 14;
    pub const RECORD_MISC_SWITCH_OUT: u16 = 1 << 13;
    pub const RECORD_MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
}

/// The sampled registers, in the order of the kernel's numbers (asm/perf_regs.h): the number there, and that of DWARF. The last ones are those that a
/// function preserves for its caller, and in which the interpreter and the JIT keep their state.
#[cfg(target_arch = "x86_64")]
const SAMPLED: [(u32, Option<usize>); 10] = [
    (1, Some(3)),
    (6, Some(6)),
    (7, Some(7)),
    (8, None),
    (16, Some(8)),
    (18, Some(10)),
    (20, Some(12)),
    (21, Some(13)),
    (22, Some(14)),
    (23, Some(15)),
];
/// The sampled registers, in the order of the kernel's numbers (asm/perf_regs.h): the number there, and that of DWARF.
#[cfg(target_arch = "aarch64")]
const SAMPLED: [(u32, Option<usize>); 14] = [
    (19, Some(19)),
    (20, Some(20)),
    (21, Some(21)),
    (22, Some(22)),
    (23, Some(23)),
    (24, Some(24)),
    (25, Some(25)),
    (26, Some(26)),
    (27, Some(27)),
    (28, Some(28)),
    (29, Some(29)),
    (30, Some(30)),
    (31, Some(31)),
    (32, None),
];

/// The sampled registers as bits of the kernel's numbers.
pub const REGISTERS: u64 = {
    let mut mask = 0;
    let mut index = 0;
    while index < SAMPLED.len() {
        mask |= 1 << SAMPLED[index].0;
        index += 1;
    }
    mask
};

/// A thread at the time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Time, in nanoseconds of the perf clock.
    pub t: u64,
    /// The kernel's return addresses, innermost first, as bytes; empty in user mode, and if they were not wanted.
    pub kernel: &'a [u8],
    /// User-mode registers; `None` if the thread no longer has any.
    pub registers: Option<RegisterSet>,
    /// The copied part of the stack, from the stack pointer on.
    pub stack: &'a [u8],
}

impl Sample<'_> {
    /// The word at an address, if it is in the copied part of the stack.
    pub fn word(&self, address: u64) -> Option<u64> {
        let sp = self.registers.as_ref()?.values[native::SP]?;
        word_at(self.stack, address.checked_sub(sp)?)
    }
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "records are handled one by one, on the stack")]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// The thread was switched out.
    Out {
        /// Time, in nanoseconds of the perf clock.
        t: u64,
        /// Whether it blocked; otherwise it was preempted.
        is_voluntary: bool,
    },
    /// The thread was switched in.
    In {
        /// Time, in nanoseconds of the perf clock.
        t: u64,
    },
    /// The ring was full, and records were dropped.
    Lost {
        /// Number of dropped records.
        count: u64,
    },
}

impl<'a> Record<'a> {
    /// Parses a record's body; `None` for other kinds of records, and for invalid ones. `has_kernel_stack`: the event has
    /// [`crate::stream::Options::kernel_stack`].
    pub fn parse(kind: u32, misc: u16, body: &'a [u8], has_kernel_stack: bool) -> Option<Record<'a>> {
        let mut fields = Fields(body);
        match kind {
            kernel::RECORD_SAMPLE => {
                let _thread = fields.u64()?;
                let t = fields.u64()?;
                let kernel = if has_kernel_stack { kernel_stack(&mut fields)? } else { &[] };
                let registers = registers(&mut fields)?;
                let stack = stack(&mut fields)?;
                Some(Record::Sample(Sample { t, kernel, registers, stack }))
            }
            kernel::RECORD_SWITCH => {
                let _thread = fields.u64()?;
                let t = fields.u64()?;
                let is_out = misc & kernel::RECORD_MISC_SWITCH_OUT != 0;
                let is_voluntary = misc & kernel::RECORD_MISC_SWITCH_OUT_PREEMPT == 0;
                Some(if is_out { Record::Out { t, is_voluntary } } else { Record::In { t } })
            }
            kernel::RECORD_LOST => {
                let _event = fields.u64()?;
                Some(Record::Lost { count: fields.u64()? })
            }
            kernel::RECORD_LOST_SAMPLES => Some(Record::Lost { count: fields.u64()? }),
            _ => None,
        }
    }
}

/// Parses the kernel stack: the number of addresses, and the addresses.
fn kernel_stack<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let count = usize::try_from(fields.u64()?).ok()?;
    fields.bytes(count.checked_mul(8)?)
}

/// Parses the registers: the ABI and, unless it is 0 ("none"), one word for each register.
fn registers(fields: &mut Fields<'_>) -> Option<Option<RegisterSet>> {
    if fields.u64()? == 0 {
        return Some(None);
    }
    let mut registers = RegisterSet::default();
    for (_, number) in SAMPLED {
        let value = fields.u64()?;
        match number {
            Some(number) => registers.values[number] = Some(value),
            None => registers.ip = value,
        }
    }
    Some(Some(registers))
}

/// Parses the stack: the size of the copy, the copy, and its number of valid bytes, which is missing if the size is 0.
fn stack<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let room = usize::try_from(fields.u64()?).ok()?;
    if room == 0 {
        return Some(&[]);
    }
    let bytes = fields.bytes(room)?;
    let filled = usize::try_from(fields.u64()?).ok()?;
    bytes.get(..filled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// A sample with all registers, numbered from 1.
    fn sample(abi: u64, stack: &[u64]) -> Vec<u8> {
        let mut all = vec![0x0000_0002_0000_0001, 1_000, abi];
        if abi != 0 {
            all.extend(1..=u64::from(REGISTERS.count_ones()));
        }
        all.extend(stack);
        words(&all)
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_sample_has_registers_and_the_valid_part_of_the_stack() {
        let body = sample(2, &[16, 0x11, 0x22, 8]);
        let mut registers = RegisterSet { ip: 4, ..RegisterSet::default() };
        for (number, value) in [(3, 1), (6, 2), (7, 3), (8, 5), (10, 6), (12, 7), (13, 8), (14, 9), (15, 10)]
        {
            registers.values[number] = Some(value);
        }
        let expect =
            Sample { t: 1_000, kernel: &[], registers: Some(registers), stack: &0x11_u64.to_ne_bytes() };
        assert_eq!(Record::parse(9, 2, &body, false), Some(Record::Sample(expect)));
    }

    #[test]
    fn a_word_of_the_stack_is_read_only_if_all_of_it_was_copied() {
        let mut registers = RegisterSet::default();
        registers.values[native::SP] = Some(0x1000);
        let stack: Vec<u8> = words(&[7, 8]);
        let sample = Sample { t: 0, kernel: &[], registers: Some(registers), stack: &stack };
        assert_eq!((sample.word(0x1000), sample.word(0x1008)), (Some(7), Some(8)));
        assert_eq!((sample.word(0x1009), sample.word(0xff8), sample.word(u64::MAX)), (None, None, None));
        assert_eq!(Sample { registers: None, ..sample }.word(0x1000), None);
    }

    #[test]
    fn a_sample_of_an_exiting_thread_has_no_registers_and_no_stack() {
        let body = sample(0, &[0]);
        let expect = Sample { t: 1_000, kernel: &[], registers: None, stack: &[] };
        assert_eq!(Record::parse(9, 1, &body, false), Some(Record::Sample(expect)));
    }

    #[test]
    fn the_kernel_stack_comes_before_the_registers() {
        let body = words(&[0x0000_0002_0000_0001, 1_000, 2, 0xff80, 0xff90, 0, 0]);
        let kernel: Vec<u8> = words(&[0xff80, 0xff90]);
        let expect = Sample { t: 1_000, kernel: &kernel, registers: None, stack: &[] };
        assert_eq!(Record::parse(9, 1, &body, true), Some(Record::Sample(expect)));
        let forged = words(&[0x0000_0002_0000_0001, 1_000, u64::MAX, 0, 0]);
        assert_eq!(Record::parse(9, 1, &forged, true), None);
    }

    #[test]
    fn invalid_records_are_ignored() {
        let check = |body: &[u8]| assert_eq!(Record::parse(9, 2, body, false), None, "{body:?}");
        check(&[]);
        check(&sample(2, &[]));
        // More valid bytes than copied ones, and a copy larger than the record.
        check(&sample(2, &[8, 0x11, 9]));
        check(&sample(2, &[u64::MAX, 0x11, 8]));
        assert_eq!(Record::parse(4, 0, &sample(2, &[0]), false), None);
    }

    #[test]
    fn a_switch_says_whether_it_was_voluntary() {
        let body = words(&[0x0000_0002_0000_0001, 5_000]);
        let check =
            |misc, expect| assert_eq!(Record::parse(14, misc, &body, false), Some(expect), "{misc:x}");
        check(1 << 13, Record::Out { t: 5_000, is_voluntary: true });
        check(1 << 13 | 1 << 14, Record::Out { t: 5_000, is_voluntary: false });
        check(0, Record::In { t: 5_000 });
    }

    #[test]
    fn lost_records_are_counted() {
        assert_eq!(Record::parse(2, 0, &words(&[77, 12, 0, 0]), false), Some(Record::Lost { count: 12 }));
        assert_eq!(Record::parse(13, 0, &words(&[3, 0, 0]), false), Some(Record::Lost { count: 3 }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(
            kind in 0_u32..16, misc: u16, kernel: bool, body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            Record::parse(kind, misc, &body, kernel);
        }
    }
}
