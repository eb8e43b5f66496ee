//! Measures the latency of requests at a constant rate, from the time at which each was due.
//!
//! If a request is sent late because the previous one was slow, its delay includes the waiting time. This avoids coordinated omission
//! (Tene, "How NOT to Measure Latency").

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::process::TIMEOUT;

/// Interval between requests: a thousand per second.
const INTERVAL: Duration = Duration::from_millis(1);
/// Size of a request and of its response.
const BYTES: usize = 64;

/// Sends requests until `work` has ended. Returns their delays, in order, and the result of `work`.
pub fn while_working<T>(at: SocketAddr, work: impl FnOnce() -> Result<T>) -> Result<(Vec<Duration>, T)> {
    let stream = TcpStream::connect_timeout(&at, TIMEOUT).context("the node does not answer requests")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| request(stream, &is_over));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let delays = requests.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))?;
        Ok((delays?, done?))
    })
}

fn request(mut stream: TcpStream, is_over: &AtomicBool) -> Result<Vec<Duration>> {
    let mut delays = Vec::new();
    let mut bytes = [0; BYTES];
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes).context("a request was not answered")?;
        delays.push(due.elapsed());
        due += INTERVAL;
    }
    Ok(delays)
}

/// Returns the 99th percentile, in milliseconds.
pub fn p99_ms(mut delays: Vec<Duration>) -> Result<f64> {
    ensure!(delays.len() >= 1000, "only {} requests were answered", delays.len());
    delays.sort_unstable();
    let rank = (delays.len() * 99).div_ceil(100);
    Ok(delays[rank - 1].as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_99th_percentile_is_exceeded_by_one_in_a_hundred() {
        let delays = (1..=1000).rev().map(Duration::from_millis).collect();
        assert_eq!(p99_ms(delays).expect("enough"), 990.0);
        assert!(p99_ms(vec![Duration::ZERO; 999]).is_err());
    }

    #[test]
    fn a_stall_delays_all_requests_that_are_due_during_it() {
        const STALL: Duration = Duration::from_millis(60);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut bytes = [0; BYTES];
                let mut answered = 0;
                while stream.read_exact(&mut bytes).is_ok() {
                    answered += 1;
                    if answered == 20 {
                        std::thread::sleep(STALL);
                    }
                    stream.write_all(&bytes).expect("the client listens");
                }
            });
            let work = || {
                std::thread::sleep(4 * STALL);
                Ok("done")
            };
            let (delays, done) = while_working(at, work).expect("all answered");
            assert_eq!(done, "done");
            let late = delays.iter().filter(|delay| **delay > STALL / 2).count();
            // These are the requests that were due in the first half of the stall.
            assert!(late >= 30, "{late} of {}", delays.len());
        });
    }
}
