//! Watches this process: samples of its own thread are unwound and named.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use beamtune_host::LocalTree;
use beamtune_profile::native::{NativeStack, NativeUnwinder};
use beamtune_profile::record::Record;
use beamtune_profile::stream::{Event, Options, Refusal, Stream};
use beamtune_profile::{Image, StackEnd};

/// Timeout for operations that take milliseconds on a quiet host.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Room for some samples.
const RING_BYTES: usize = 256 << 10;

#[inline(never)]
fn outermost_of_three(rounds: u64) -> u64 {
    middle_of_three(black_box(rounds)) + 1
}

#[inline(never)]
fn middle_of_three(rounds: u64) -> u64 {
    innermost_of_three(black_box(rounds)) + 1
}

#[inline(never)]
fn innermost_of_three(rounds: u64) -> u64 {
    (0..rounds).fold(0, |sum, n| black_box(sum ^ n))
}

/// Opens an event, or prints why the test is skipped.
fn open(event: Event<'_>, options: &Options) -> Option<Stream> {
    match Stream::open(event, 0, options) {
        Ok(mut stream) => {
            stream.start();
            Some(stream)
        }
        Err(Refusal::Denied) => {
            eprintln!(
                "skipped, because the kernel does not allow perf events of our own process (kernel.perf_event_paranoid)"
            );
            None
        }
        Err(refusal) => panic!("{refusal:?}"),
    }
}

#[test]
fn a_sample_of_a_running_thread_is_unwound_and_named() {
    let options = Options { period: 1_000_000, ring_bytes: RING_BYTES, ..Options::default() };
    let Some(mut stream) = open(Event::Clock, &options) else { return };
    let image = Image::read(&LocalTree::default(), std::process::id()).expect("our own image");
    let mut unwinder = NativeUnwinder::new(&image);
    let began = Instant::now();
    let mut seen: Vec<String> = Vec::new();
    while began.elapsed() < TIMEOUT {
        black_box(outermost_of_three(black_box(200_000)));
        let mut stacks: Vec<NativeStack> = Vec::new();
        stream.drain(|record| {
            if let Record::Sample(sample) = record {
                assert!(sample.t > 0);
                let registers = sample.registers.expect("a running thread has registers");
                stacks.push(unwinder.unwind(registers, None, |address| sample.word(address)));
            }
        });
        for stack in stacks {
            let names: Vec<String> = stack
                .frames
                .iter()
                .map(|address| image.frame(*address).function.unwrap_or_else(|| "?".to_owned()))
                .collect();
            let at = |name: &str| names.iter().position(|found| found.contains(name));
            let three = [at("innermost_of_three"), at("middle_of_three"), at("outermost_of_three")];
            if let [Some(inner), Some(middle), Some(outer)] = three {
                assert!(inner < middle && middle < outer, "{names:?}");
                // The C library starts the thread of a test, and its unwind tables mark the outermost function.
                assert_eq!(stack.end, StackEnd::Bottom, "{names:?}");
                return;
            }
            seen = names;
        }
    }
    panic!("no stack has all three functions; the last one was {seen:?}");
}

#[test]
fn a_sleeping_thread_is_switched_out_and_in() {
    let options = Options {
        includes_kernel: true,
        records_switches: true,
        ring_bytes: RING_BYTES,
        ..Options::default()
    };
    let Some(mut stream) = open(Event::Switches, &options) else { return };
    let slept = Duration::from_millis(20);
    std::thread::sleep(slept);
    let (mut samples, mut outs, mut ins) = (0, Vec::new(), Vec::new());
    stream.drain(|record| match record {
        Record::Sample(_) => samples += 1,
        Record::Out { t, is_voluntary: true } => outs.push(t),
        Record::In { t } => ins.push(t),
        Record::Out { .. } | Record::Lost { .. } => {}
    });
    let longest = outs
        .iter()
        .filter_map(|out| ins.iter().filter(|back| *back > out).min().map(|back| back - out))
        .max();
    let longest = Duration::from_nanos(longest.expect("a sleep"));
    assert!(longest >= slept, "{longest:?}");
    assert!(samples >= 1 && stream.count() >= 1);
}
