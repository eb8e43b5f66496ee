//! The records that the kernel writes into the ring of an event, as bytes. See perf_event_open(2).
//!
//! Which fields a record has follows from what was asked for; here always the same: thread, instant, registers, stack. They are
//! read here, because of a switch the instant is needed, and because a sample without registers or without a stack is shorter than
//! one with.

use crate::stack::Registers;

/// What of perf_event.h is used, by the names there.
mod kernel {
    pub const RECORD_LOST: u32 = 2;
    pub const RECORD_SAMPLE: u32 = 9;
    pub const RECORD_LOST_SAMPLES: u32 = 13;
    pub const RECORD_SWITCH: u32 = 14;
    pub const RECORD_MISC_SWITCH_OUT: u16 = 1 << 13;
    pub const RECORD_MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
}

/// The registers that are asked for, as bits of the kernel's numbers (asm/perf_regs.h): BP 6, SP 7, IP 8.
#[cfg(target_arch = "x86_64")]
pub const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// The registers that are asked for, as bits of the kernel's numbers (asm/perf_regs.h): X29 29, LR 30, SP 31, PC 32.
#[cfg(target_arch = "aarch64")]
pub const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// A thread at the instant at which an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// When, in nanoseconds of the kernel's clock of events.
    pub t: u64,
    /// Its registers; `None` where the thread has none in user mode any more.
    pub registers: Option<Registers>,
    /// Its stack from the stack's pointer on, as far as it was copied.
    pub stack: &'a [u8],
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// The event.
    Sample(Sample<'a>),
    /// The thread was taken off its CPU, by itself or because another one got it.
    Out {
        /// When.
        t: u64,
        /// By itself: it sleeps.
        is_voluntary: bool,
    },
    /// It got one.
    In {
        /// When.
        t: u64,
    },
    /// The ring was full.
    Lost {
        /// Records that are missing.
        count: u64,
    },
}

/// Takes fields from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn word(&mut self) -> Option<u64> {
        self.bytes(8)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }
}

impl<'a> Record<'a> {
    /// Reads what follows a record's header; `None` for kinds that are not needed, and for what makes no sense.
    pub fn parse(kind: u32, misc: u16, body: &'a [u8]) -> Option<Record<'a>> {
        let mut fields = Fields(body);
        match kind {
            kernel::RECORD_SAMPLE => {
                let _thread = fields.word()?;
                let t = fields.word()?;
                let registers = registers(&mut fields)?;
                let stack = stack(&mut fields)?;
                Some(Record::Sample(Sample { t, registers, stack }))
            }
            kernel::RECORD_SWITCH => {
                let _thread = fields.word()?;
                let t = fields.word()?;
                let is_out = misc & kernel::RECORD_MISC_SWITCH_OUT != 0;
                let is_voluntary = misc & kernel::RECORD_MISC_SWITCH_OUT_PREEMPT == 0;
                Some(if is_out { Record::Out { t, is_voluntary } } else { Record::In { t } })
            }
            kernel::RECORD_LOST => {
                let _event = fields.word()?;
                Some(Record::Lost { count: fields.word()? })
            }
            kernel::RECORD_LOST_SAMPLES => Some(Record::Lost { count: fields.word()? }),
            _ => None,
        }
    }
}

/// An ABI, and if that is not "none", as many words as were asked for.
fn registers(fields: &mut Fields<'_>) -> Option<Option<Registers>> {
    if fields.word()? == 0 {
        return Some(None);
    }
    let mut words = [0; REGISTERS.count_ones() as usize];
    for word in &mut words {
        *word = fields.word()?;
    }
    #[cfg(target_arch = "x86_64")]
    let [fp, sp, ip] = words;
    #[cfg(target_arch = "x86_64")]
    let lr = 0;
    #[cfg(target_arch = "aarch64")]
    let [fp, lr, sp, ip] = words;
    Some(Some(Registers { ip, sp, fp, lr }))
}

/// How much room there is, that, and how much of it was filled; the latter only where there is room.
fn stack<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let room = usize::try_from(fields.word()?).ok()?;
    if room == 0 {
        return Some(&[]);
    }
    let bytes = fields.bytes(room)?;
    let filled = usize::try_from(fields.word()?).ok()?;
    bytes.get(..filled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// A sample with as many registers as are asked for, numbered from 1.
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
    fn a_sample_has_registers_and_as_much_stack_as_was_copied() {
        let body = sample(2, &[16, 0x11, 0x22, 8]);
        let expect = Sample {
            t: 1_000,
            registers: Some(Registers { ip: 3, sp: 2, fp: 1, lr: 0 }),
            stack: &0x11_u64.to_ne_bytes(),
        };
        assert_eq!(Record::parse(9, 2, &body), Some(Record::Sample(expect)));
    }

    #[test]
    fn a_sample_of_a_thread_that_is_ending_has_neither() {
        let body = sample(0, &[0]);
        let expect = Sample { t: 1_000, registers: None, stack: &[] };
        assert_eq!(Record::parse(9, 1, &body), Some(Record::Sample(expect)));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let check = |body: &[u8]| assert_eq!(Record::parse(9, 2, body), None, "{body:?}");
        check(&[]);
        check(&sample(2, &[]));
        // More stack than there is room, and more than the record.
        check(&sample(2, &[8, 0x11, 9]));
        check(&sample(2, &[u64::MAX, 0x11, 8]));
        assert_eq!(Record::parse(4, 0, &sample(2, &[0])), None);
    }

    #[test]
    fn a_switch_says_whether_the_thread_wanted_it() {
        let body = words(&[0x0000_0002_0000_0001, 5_000]);
        let check = |misc, expect| assert_eq!(Record::parse(14, misc, &body), Some(expect), "{misc:x}");
        check(1 << 13, Record::Out { t: 5_000, is_voluntary: true });
        check(1 << 13 | 1 << 14, Record::Out { t: 5_000, is_voluntary: false });
        check(0, Record::In { t: 5_000 });
    }

    #[test]
    fn what_was_lost_is_counted() {
        assert_eq!(Record::parse(2, 0, &words(&[77, 12, 0, 0])), Some(Record::Lost { count: 12 }));
        assert_eq!(Record::parse(13, 0, &words(&[3, 0, 0])), Some(Record::Lost { count: 3 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(kind in 0_u32..16, misc: u16, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            Record::parse(kind, misc, &body);
        }
    }
}
