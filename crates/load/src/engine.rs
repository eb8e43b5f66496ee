//! One thread of the generator: its share of the devices, on one epoll instance.
//!
//! Times are measured from the schedule. A step's due time is fixed before the step is sent: by the arrival schedule, or by the previous
//! answer and the sleep after it. The time from then until the step is sent is its lag. Delays in the thread itself are recorded separately
//! ([`Tally::own_lag`]): they are caused by the generator, whereas waiting for a free device is caused by the target.
//!
//! In the steady state a request costs one read, one write and one clock reading, and allocates nothing.

mod device;
mod socket;
mod steps;
mod tls;
mod traffic;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::clock::{SECOND_NS, now_ns, thread_cpu_ns};
use crate::program::{Model, Plan};
use crate::schedule::{Arrival, Schedule};
use crate::tally::{ErrorKind, Tally};
use crate::wheel::Wheel;
use device::{Device, NEVER_NS, State};

/// Size of the read buffer.
const READ_BYTES: usize = 64 * 1024;
/// Maximum number of events per epoll_wait.
const MAX_EVENTS: usize = 512;
/// Maximum number of due timers and arrivals that are served before the next epoll_wait.
const MAX_DUE_AT_ONCE: usize = 64;
/// Interval at which devices are checked for timeouts.
const SWEEP_INTERVAL_NS: u64 = SECOND_NS / 4;
/// Interval at which `stop` is checked.
const STOP_POLL_INTERVAL_NS: u64 = SECOND_NS / 10;
/// Maximum number of arrivals that wait for a free device; more are dropped and counted.
const MAX_WAITING: usize = 1_000_000;
/// Event data of the timer.
const TIMER: u64 = u64::MAX;

/// The devices and arrivals of a thread: those whose number modulo `of` is `index`.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Number of the thread, from 0.
    pub index: u64,
    /// Number of threads in all processes.
    pub of: u64,
}

/// The report that a thread makes once a second and at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadSecond {
    /// The second of the run in which the interval began, counted from the start of the schedule.
    pub second: i64,
    /// Length of the interval in nanoseconds: more than a second if the thread was stalled.
    pub length_ns: u64,
    /// The tally of the interval.
    pub tally: Tally,
}

/// Runs a share of the plan in this thread, until the plan's time is over or `stop` is set. Calls `sink` for each second.
pub fn run(
    plan: &Plan,
    share: Share,
    stop: &AtomicBool,
    sink: &mut dyn FnMut(ThreadSecond),
) -> Result<(), LoadError> {
    Engine::new(plan, share)?.run(stop, sink)
}

struct Engine<'p> {
    plan: &'p Plan,
    devices: Vec<Device>,
    wheel: Wheel,
    /// Devices that have more to read, which continues in the next iteration: index and generation.
    deferred: Vec<(u32, u32)>,
    /// The devices that are being continued. Swapped with `deferred` to reuse its memory.
    continued: Vec<(u32, u32)>,
    poll: OwnedFd,
    timer: OwnedFd,
    /// The instant for which `timer` is set; 0: not set.
    timer_ns: u64,
    /// The arrivals after `next_arrival`.
    arrivals: Option<Schedule>,
    next_arrival: Option<Arrival>,
    /// Free devices of an open model; the first one has been free for longest.
    free: VecDeque<u32>,
    /// Due times of the arrivals that wait for a free device.
    waiting: VecDeque<u64>,
    /// From this instant on (CLOCK_MONOTONIC), no turn starts.
    end_ns: u64,
    /// Number of devices that are in a turn, or before their first turn.
    active: usize,
    connected: u64,
    tally: Tally,
    second: i64,
    cpu_ns: u64,
    input: Box<[u8]>,
    output: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'p> Engine<'p> {
    fn new(plan: &'p Plan, share: Share) -> Result<Self, LoadError> {
        let system = |what| move |errno: Errno| LoadError::System { what, cause: errno.into() };
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?;
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map_err(system("timerfd_create"))?;
        epoll::add(&poll, &timer, epoll::EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)
            .map_err(system("epoll_ctl"))?;
        // The default timer slack is 50 µs (prctl(2), PR_SET_TIMERSLACK). If this fails, the only effect is that timers fire later.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));

        let mut devices = Vec::new();
        for (index, kind) in plan.kinds.iter().enumerate() {
            devices.extend(
                (share.index..kind.devices)
                    .step_by(share.of as usize)
                    .map(|number| Device::new(plan.seed, index, kind, number)),
            );
        }
        let now = now_ns();
        let wheel = Wheel::new(devices.len(), now);
        let (arrivals, active) = match plan.model {
            Model::Open { profile, spacing } => {
                // A thread without devices takes no arrivals.
                let serving =
                    plan.kinds.iter().map(|kind| kind.devices).max().unwrap_or_default().min(share.of);
                let schedule = || Schedule::new(profile, spacing, plan.seed, share.index, serving);
                ((share.index < serving).then(schedule), 0)
            }
            Model::Closed { .. } => (None, devices.len()),
        };
        let mut engine = Self {
            plan,
            devices,
            wheel,
            deferred: Vec::new(),
            continued: Vec::new(),
            poll,
            timer,
            timer_ns: 0,
            arrivals,
            next_arrival: None,
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            end_ns: plan.start_ns + plan.model.length_ns(),
            active,
            connected: 0,
            tally: Tally::new(plan.steps.len()),
            second: 0,
            cpu_ns: thread_cpu_ns(),
            input: vec![0; READ_BYTES].into_boxed_slice(),
            output: Vec::new(),
            scratch: Vec::new(),
        };
        engine.schedule_starts();
        Ok(engine)
    }

    /// Schedules the start of each device.
    fn schedule_starts(&mut self) {
        for index in 0..self.devices.len() {
            let device = &self.devices[index];
            let share = device.number as f64 / self.plan.kinds[device.kind as usize].devices as f64;
            let due_ns = match self.plan.model {
                Model::Closed { ramp_ns, .. } => self.plan.start_ns + (share * ramp_ns as f64) as u64,
                Model::Open { .. } => {
                    self.plan.start_ns - self.plan.connect_ns + (share * self.plan.connect_ns as f64) as u64
                }
            };
            self.wake_at(index as u32, due_ns);
        }
        self.take_next_arrival();
    }

    fn take_next_arrival(&mut self) {
        self.next_arrival = self.arrivals.as_mut().and_then(Iterator::next);
    }

    fn run(mut self, stop: &AtomicBool, sink: &mut dyn FnMut(ThreadSecond)) -> Result<(), LoadError> {
        let mut began_ns = now_ns();
        let mut sweep_ns = began_ns;
        let mut stop_ns = began_ns;
        self.second = self.second_of(began_ns);
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let mut resumed_ns = began_ns;
        loop {
            let now = now_ns();
            self.tally.stall_ns = self.tally.stall_ns.max(now - resumed_ns);
            let second = self.second_of(now);
            if second != self.second {
                let boundary = self.boundary_ns(self.second);
                self.tally.own_lag.record(now.saturating_sub(boundary));
                self.report(now - began_ns, sink);
                began_ns = now;
                self.second = second;
            }
            if now >= stop_ns {
                stop_ns = now + STOP_POLL_INTERVAL_NS;
                if stop.load(Ordering::Relaxed) || self.is_over(now) {
                    let is_waiting = |device: &&Device| {
                        matches!(
                            device.state,
                            State::Connecting | State::Opening | State::Sending | State::Waiting
                        )
                    };
                    self.tally.unfinished =
                        (self.devices.iter().filter(is_waiting).count() + self.waiting.len()) as u64;
                    self.count_missed_arrivals(now);
                    self.report(now - began_ns, sink);
                    for index in 0..self.devices.len() as u32 {
                        self.close(index);
                    }
                    return Ok(());
                }
            }
            if now >= sweep_ns {
                sweep_ns = now + SWEEP_INTERVAL_NS;
                self.sweep(now);
            }
            let more = self.serve_due(now);
            let next = if more || !self.deferred.is_empty() {
                events.clear();
                self.wait(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
                now
            } else {
                let next = self.next_due_ns().min(self.boundary_ns(self.second)).min(stop_ns).min(sweep_ns);
                self.arm(next)?;
                events.clear();
                self.wait(&mut events, None)?;
                next.max(now)
            };
            // Time beyond `next` is a stall: the devices of these events had to wait for the thread.
            resumed_ns = now_ns();
            self.tally.stall_ns = self.tally.stall_ns.max(resumed_ns.saturating_sub(next));
            for event in &events {
                match event.data.u64() {
                    // A timer that has fired must be set again, even for the same instant.
                    TIMER => self.timer_ns = 0,
                    data => self.on_event(data as u32, (data >> 32) as u32, event.flags),
                }
            }
            std::mem::swap(&mut self.deferred, &mut self.continued);
            for at in 0..self.continued.len() {
                let (index, generation) = self.continued[at];
                self.on_readable(index, generation, true);
            }
            self.continued.clear();
        }
    }

    fn second_of(&self, now_ns: u64) -> i64 {
        (now_ns as i64 - self.plan.start_ns as i64).div_euclid(SECOND_NS as i64)
    }

    /// Returns the end of a second, as an instant of CLOCK_MONOTONIC.
    fn boundary_ns(&self, second: i64) -> u64 {
        (self.plan.start_ns as i64 + (second + 1) * SECOND_NS as i64) as u64
    }

    /// Whether no more turns start, and all have ended or the rundown is over.
    fn is_over(&self, now: u64) -> bool {
        let is_idle = self.active == 0 && self.waiting.is_empty() && self.next_arrival.is_none();
        let is_closed_by_turns = matches!(self.plan.model, Model::Closed { turns: Some(_), .. }) && is_idle;
        is_closed_by_turns || (now >= self.end_ns && (is_idle || now >= self.end_ns + self.plan.rundown_ns))
    }

    /// Reports the current interval and starts a new tally.
    fn report(&mut self, length_ns: u64, sink: &mut dyn FnMut(ThreadSecond)) {
        let cpu_ns = thread_cpu_ns();
        self.tally.cpu_ns = cpu_ns - self.cpu_ns;
        self.cpu_ns = cpu_ns;
        self.tally.waiting = self.waiting.len() as u64;
        let tally = std::mem::replace(&mut self.tally, Tally::new(self.plan.steps.len()));
        self.tally.connected = self.connected;
        sink(ThreadSecond { second: self.second, length_ns, tally });
    }

    fn next_due_ns(&mut self) -> u64 {
        let timer = self.wheel.next_ns().unwrap_or(u64::MAX);
        let arrival = self.next_arrival.map_or(u64::MAX, |arrival| self.plan.start_ns + arrival.due_ns);
        timer.min(arrival)
    }

    fn arm(&mut self, due_ns: u64) -> Result<(), LoadError> {
        if due_ns == self.timer_ns {
            return Ok(());
        }
        self.timer_ns = due_ns;
        // An instant in the past fires at once; 0 would disarm the timer.
        let due = due_ns.max(1);
        let value = Timespec { tv_sec: (due / SECOND_NS) as i64, tv_nsec: (due % SECOND_NS) as _ };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::time::timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: zero, it_value: value },
        )
        .map_err(|errno| LoadError::System { what: "timerfd_settime", cause: errno.into() })?;
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) -> Result<(), LoadError> {
        match epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(LoadError::System { what: "epoll_wait", cause: errno.into() }),
        }
    }

    /// Serves due timers and arrivals. Returns whether more may be due.
    fn serve_due(&mut self, now: u64) -> bool {
        for _ in 0..MAX_DUE_AT_ONCE {
            let timer = self.wheel.pop(now);
            if let Some((index, due_ns)) = timer {
                self.tally.own_lag.record(now - due_ns);
                self.on_timer(index, due_ns, now);
            }
            let arrival = self
                .next_arrival
                .map(|arrival| self.plan.start_ns + arrival.due_ns)
                .filter(|due_ns| *due_ns <= now);
            if let Some(due_ns) = arrival {
                self.tally.own_lag.record(now - due_ns);
                self.take_next_arrival();
                self.on_arrival(due_ns);
            }
            if timer.is_none() && arrival.is_none() {
                return false;
            }
        }
        true
    }

    /// Counts arrivals that were due but not served before the end.
    fn count_missed_arrivals(&mut self, now: u64) {
        while self.next_arrival.is_some_and(|arrival| self.plan.start_ns + arrival.due_ns <= now) {
            self.tally.asked += 1;
            self.tally.unfinished += 1;
            self.take_next_arrival();
        }
    }

    fn on_arrival(&mut self, due_ns: u64) {
        self.tally.asked += 1;
        if let Some(index) = self.free.pop_front() {
            self.begin_turn(index, due_ns);
            self.advance(index);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(due_ns);
        } else {
            self.tally
                .step(0)
                .errors
                .record(ErrorKind::Dropped, || "a million arrivals are waiting for a free device".to_owned());
        }
    }

    /// Schedules a device to continue at this instant.
    fn wake_at(&mut self, index: u32, due_ns: u64) {
        let device = &mut self.devices[index as usize];
        device.wake_ns = due_ns;
        self.wheel.set(index, device.next_ns());
    }

    /// Handles a device's timer: the device starts, ends a sleep or pause, continues after yielding, or its connection needs a keep-alive.
    fn on_timer(&mut self, index: u32, due_ns: u64, now: u64) {
        let device = &mut self.devices[index as usize];
        if device.wake_ns <= due_ns {
            let wake_ns = std::mem::replace(&mut device.wake_ns, NEVER_NS);
            if device.state != State::Yielding {
                device.scheduled_ns = wake_ns;
            }
            if device.state == State::Fresh {
                device.is_in_turn = matches!(self.plan.model, Model::Closed { .. });
            }
            self.advance(index);
        }
        self.check_keep_alive(index, now);
    }

    /// Fails the devices whose deadline has passed.
    fn sweep(&mut self, now: u64) {
        for index in 0..self.devices.len() as u32 {
            let device = &self.devices[index as usize];
            match device.state {
                State::Connecting | State::Opening if now >= device.deadline_ns => {
                    self.fail(index, ErrorKind::ConnectTimeout, || "not connected in time".to_owned());
                }
                State::Sending if now >= device.deadline_ns => {
                    self.fail(index, ErrorKind::Timeout, || {
                        "the peer did not read the message in time".to_owned()
                    });
                }
                State::Waiting if now >= device.deadline_ns => {
                    let words = if device.first_byte_ns == 0 {
                        "no answer in time"
                    } else {
                        "the answer was not complete in time"
                    };
                    self.fail(index, ErrorKind::Timeout, || words.to_owned());
                }
                _ => {}
            }
        }
    }
}
