//! A synthetic dump of any size, which is generated while it is read.

use std::io::Read;

/// Number of processes. All of them precede the heaps; every thousandth process is large.
pub const PROCESSES: u64 = 100_000;

/// A dump of at least a given size: it contains processes, then heaps up to that size.
pub struct SyntheticDump {
    left: u64,
    /// Number of sections generated so far, without the head.
    number: u64,
    text: Vec<u8>,
    given: usize,
    is_ended: bool,
}

impl SyntheticDump {
    pub fn new(megabytes: u64) -> SyntheticDump {
        let text = b"=erl_crash_dump:0.5\nSlogan: made\nSystem version: Erlang/OTP 27 [64-bit]\n".to_vec();
        SyntheticDump { left: megabytes << 20, number: 0, text, given: 0, is_ended: false }
    }

    fn more(&mut self) {
        self.left = self.left.saturating_sub(self.text.len() as u64);
        self.number += 1;
        self.given = 0;
        self.text = if self.left == 0 {
            self.is_ended = true;
            b"=end\n".to_vec()
        } else if self.number <= PROCESSES {
            process(self.number).into_bytes()
        } else {
            heap(self.number % PROCESSES).into_bytes()
        };
    }
}

fn process(number: u64) -> String {
    let memory = if number.is_multiple_of(1_000) { 1_000_000 + number } else { 2_600 };
    format!(
        "=proc:<0.{number}.0>\nState: Waiting\nSpawned as: worker{}:init/1\nSpawned by: <0.9.0>\nMessage queue length: 0\n\
         Number of heap fragments: 0\nReductions: {number}\nStack+heap: 233\nOldHeap: 0\nHeap unused: 100\nMemory: {memory}\n\
         Program counter: 0x00007f5a69b9a694 (gen_server:loop/7 + 452)\nInternal State: ACT_PRIO_NORMAL\n",
        number % 10
    )
}

fn heap(number: u64) -> String {
    let lines: String =
        (0..2_000).map(|line| format!("7F5A6B{line:06X}:t3:A5:order,I{line},H7F5A6B000000\n")).collect();
    format!("=proc_heap:<0.{number}.0>\n{lines}")
}

impl Read for SyntheticDump {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        if self.given == self.text.len() && !self.is_ended {
            self.more();
        }
        let rest = self.text.get(self.given..).unwrap_or_default();
        let taken = rest.len().min(room.len());
        room[..taken].copy_from_slice(&rest[..taken]);
        self.given += taken;
        Ok(taken)
    }
}
