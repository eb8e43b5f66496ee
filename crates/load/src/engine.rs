//! One thread of the generator: its share of the devices, on one epoll instance.
//!
//! Everything is stamped from the schedule: a step is due at an instant that was fixed before it was sent (by the arrivals'
//! schedule, or by the answer to the step before and the pause behind it), and what passes until it is sent is lag, not
//! nothing. How late the thread itself looked at what had become due is kept apart from that ([`Tally::own_lag`]): it
//! is the generator's own fault, while waiting for a free device is the target's.
//!
//! In the steady state a request takes one read and one write, one look at the clock, and no memory.

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

/// Of a socket's bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// Events taken from the kernel at once.
const EVENTS: usize = 512;
/// Due timers and arrivals that are served before sockets are looked at again.
const DUE_AT_ONCE: usize = 64;
/// How often devices are looked through for answers that did not come in time.
const SWEEP_NS: u64 = SECOND_NS / 4;
/// How often the wish to stop is looked at.
const STOP_NS: u64 = SECOND_NS / 10;
/// Arrivals that may wait for a free device; beyond, they are dropped and counted.
const MOST_WAITING: usize = 1_000_000;
/// The timer's place among the events' data.
const TIMER: u64 = u64::MAX;

/// Which devices and arrivals a thread takes: those whose number is `index` modulo `of`.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// From 0.
    pub index: u64,
    /// Threads of all processes.
    pub of: u64,
}

/// What a thread tells, once a second and at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spell {
    /// The second of the run in which it began, from the start of the schedule.
    pub second: i64,
    /// How long it was, in nanoseconds: longer than a second if the thread could not run.
    pub length_ns: u64,
    /// What was counted in it.
    pub tally: Tally,
}

/// Runs a share of the plan in this thread, until its time is over or `stop` is set; tells `sink` of each second.
pub fn run(
    plan: &Plan,
    share: Share,
    stop: &AtomicBool,
    sink: &mut dyn FnMut(Spell),
) -> Result<(), LoadError> {
    Engine::new(plan, share)?.run(stop, sink)
}

struct Engine<'p> {
    plan: &'p Plan,
    devices: Vec<Device>,
    wheel: Wheel,
    /// Devices that let others go first while there is more to read: index and generation.
    again: Vec<(u32, u32)>,
    /// The same of the turn before: emptied, and kept for its memory.
    served: Vec<(u32, u32)>,
    poll: OwnedFd,
    timer: OwnedFd,
    /// For when it is set; 0: for nothing.
    timer_ns: u64,
    /// Arrivals still to come, and the next of them.
    arrivals: Option<Schedule>,
    next_arrival: Option<Arrival>,
    /// Free devices of an open model; the one that has been for longest is next.
    free: VecDeque<u32>,
    waiting: VecDeque<u64>,
    /// Turns are begun before this instant, CLOCK_MONOTONIC.
    end_ns: u64,
    /// Devices that are in a turn, or before their first one.
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
        let trouble = |what| move |errno: Errno| LoadError::System { what, cause: errno.into() };
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(trouble("epoll_create"))?;
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map_err(trouble("timerfd_create"))?;
        epoll::add(&poll, &timer, epoll::EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)
            .map_err(trouble("epoll_ctl"))?;
        // Timers of ordinary threads may be 50 µs late, to save power (prctl(2), PR_SET_TIMERSLACK). Without it they are later.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));

        let mut devices = Vec::new();
        for (kind, what) in plan.kinds.iter().enumerate() {
            devices.extend(
                (share.index..what.devices)
                    .step_by(share.of as usize)
                    .map(|number| Device::new(plan.seed, kind, what, number)),
            );
        }
        let now = now_ns();
        let wheel = Wheel::new(devices.len(), now);
        let (arrivals, active) = match plan.model {
            Model::Open { profile, spacing } => {
                // Threads that have no device take no arrivals.
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
            again: Vec::new(),
            served: Vec::new(),
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
        engine.set_out();
        Ok(engine)
    }

    /// Sets when each device begins.
    fn set_out(&mut self) {
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
        self.arrive();
    }

    fn arrive(&mut self) {
        self.next_arrival = self.arrivals.as_mut().and_then(Iterator::next);
    }

    fn run(mut self, stop: &AtomicBool, sink: &mut dyn FnMut(Spell)) -> Result<(), LoadError> {
        let mut began_ns = now_ns();
        let mut sweep_ns = began_ns;
        let mut stop_ns = began_ns;
        self.second = self.second_of(began_ns);
        let mut events = Vec::with_capacity(EVENTS);
        let mut served_ns = began_ns;
        loop {
            let now = now_ns();
            self.tally.stall_ns = self.tally.stall_ns.max(now - served_ns);
            let second = self.second_of(now);
            if second != self.second {
                let boundary = self.boundary_ns(self.second);
                self.tally.own_lag.record(now.saturating_sub(boundary));
                self.tell(now - began_ns, sink);
                began_ns = now;
                self.second = second;
            }
            if now >= stop_ns {
                stop_ns = now + STOP_NS;
                if stop.load(Ordering::Relaxed) || self.is_over(now) {
                    let waits = |device: &&Device| {
                        matches!(
                            device.state,
                            State::Connecting | State::Opening | State::Sending | State::Waiting
                        )
                    };
                    self.tally.unfinished =
                        (self.devices.iter().filter(waits).count() + self.waiting.len()) as u64;
                    self.give_up_arrivals(now);
                    self.tell(now - began_ns, sink);
                    for index in 0..self.devices.len() as u32 {
                        self.leave(index);
                    }
                    return Ok(());
                }
            }
            if now >= sweep_ns {
                sweep_ns = now + SWEEP_NS;
                self.sweep(now);
            }
            let more = self.serve_due(now);
            let next = if more || !self.again.is_empty() {
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
            // What comes of these events has waited for as long.
            served_ns = now_ns();
            self.tally.stall_ns = self.tally.stall_ns.max(served_ns.saturating_sub(next));
            for event in &events {
                match event.data.u64() {
                    // It has rung and rings no more: even for the same instant it has to be set again.
                    TIMER => self.timer_ns = 0,
                    data => self.on_event(data as u32, (data >> 32) as u32, event.flags),
                }
            }
            std::mem::swap(&mut self.again, &mut self.served);
            for at in 0..self.served.len() {
                let (index, generation) = self.served[at];
                self.on_readable(index, generation, true);
            }
            self.served.clear();
        }
    }

    fn second_of(&self, now_ns: u64) -> i64 {
        (now_ns as i64 - self.plan.start_ns as i64).div_euclid(SECOND_NS as i64)
    }

    /// When a second ends.
    fn boundary_ns(&self, second: i64) -> u64 {
        (self.plan.start_ns as i64 + (second + 1) * SECOND_NS as i64) as u64
    }

    /// Nothing more is begun, and nothing is under way or has had its time.
    fn is_over(&self, now: u64) -> bool {
        let is_idle = self.active == 0 && self.waiting.is_empty() && self.next_arrival.is_none();
        let is_closed_by_turns = matches!(self.plan.model, Model::Closed { turns: Some(_), .. }) && is_idle;
        is_closed_by_turns || (now >= self.end_ns && (is_idle || now >= self.end_ns + self.plan.rundown_ns))
    }

    fn tell(&mut self, length_ns: u64, sink: &mut dyn FnMut(Spell)) {
        let cpu_ns = thread_cpu_ns();
        self.tally.cpu_ns = cpu_ns - self.cpu_ns;
        self.cpu_ns = cpu_ns;
        self.tally.waiting = self.waiting.len() as u64;
        let tally = std::mem::replace(&mut self.tally, Tally::new(self.plan.steps.len()));
        self.tally.connected = self.connected;
        sink(Spell { second: self.second, length_ns, tally });
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
        // An instant that has passed rings at once; 0 would switch the timer off.
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

    /// Serves what has become due; whether there may be more of it.
    fn serve_due(&mut self, now: u64) -> bool {
        for _ in 0..DUE_AT_ONCE {
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
                self.arrive();
                self.on_arrival(due_ns);
            }
            if timer.is_none() && arrival.is_none() {
                return false;
            }
        }
        true
    }

    /// What was due and could not be looked at before the end was asked for all the same.
    fn give_up_arrivals(&mut self, now: u64) {
        while self.next_arrival.is_some_and(|arrival| self.plan.start_ns + arrival.due_ns <= now) {
            self.tally.asked += 1;
            self.tally.unfinished += 1;
            self.arrive();
        }
    }

    fn on_arrival(&mut self, due_ns: u64) {
        self.tally.asked += 1;
        if let Some(index) = self.free.pop_front() {
            self.begin_turn(index, due_ns);
            self.go_on(index);
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(due_ns);
        } else {
            self.tally
                .step(0)
                .errors
                .record(ErrorKind::Dropped, || "a million arrivals wait for a free device".to_owned());
        }
    }

    /// Lets a device go on by itself then.
    fn wake_at(&mut self, index: u32, due_ns: u64) {
        let device = &mut self.devices[index as usize];
        device.wake_ns = due_ns;
        self.wheel.set(index, device.next_ns());
    }

    /// A device's timer: it begins, has slept enough, has paused after an error, or let others go first; or its connection
    /// wants to be looked after.
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
            self.go_on(index);
        }
        self.look_after(index, now);
    }

    /// Fails what has had its time.
    fn sweep(&mut self, now: u64) {
        for index in 0..self.devices.len() as u32 {
            let device = &self.devices[index as usize];
            match device.state {
                State::Connecting | State::Opening if now >= device.deadline_ns => {
                    self.fail(index, ErrorKind::ConnectTimeout, || "no connection in time".to_owned());
                }
                State::Sending if now >= device.deadline_ns => {
                    self.fail(index, ErrorKind::Timeout, || "the peer did not take it in time".to_owned());
                }
                State::Waiting if now >= device.deadline_ns => {
                    let words = if device.first_byte_ns == 0 {
                        "no answer in time"
                    } else {
                        "the answer did not end in time"
                    };
                    self.fail(index, ErrorKind::Timeout, || words.to_owned());
                }
                _ => {}
            }
        }
    }
}
