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
mod upkeep;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::LoadError;
use crate::clock::{SECOND_NS, now_ns, thread_cpu_ns};
use crate::program::{Kind, Model, Op, Plan};
use crate::protocol::{self, Answer, Checks, Fault, Heard, Sent, contains};
use crate::schedule::{Arrival, Schedule};
use crate::tally::{ErrorKind, Tally};
use crate::wheel::Wheel;
use device::{Device, KEPT_BYTES, NEVER_NS, State};

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
#[derive(Debug)]
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
    poll: OwnedFd,
    timer: OwnedFd,
    timer_ns: u64,
    /// Arrivals still to come, and the next of them.
    arrivals: Option<Schedule>,
    next_arrival: Option<Arrival>,
    /// Free devices of an open model.
    free: Vec<u32>,
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
        let trouble = |what| move |errno: Errno| LoadError::System { what, source: errno.into() };
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
                (Some(Schedule::new(profile, spacing, plan.seed, share.index, share.of)), 0)
            }
            Model::Closed { .. } => (None, devices.len()),
        };
        let mut engine = Self {
            plan,
            devices,
            wheel,
            poll,
            timer,
            timer_ns: 0,
            arrivals,
            next_arrival: None,
            free: Vec::new(),
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
        loop {
            let now = now_ns();
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
                    self.tell(now - began_ns, sink);
                    for index in 0..self.devices.len() as u32 {
                        self.close(index);
                    }
                    return Ok(());
                }
            }
            if now >= sweep_ns {
                sweep_ns = now + SWEEP_NS;
                self.sweep(now);
            }
            let more = self.serve_due(now);
            if more {
                events.clear();
                self.wait(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
            } else {
                let next = self.next_due_ns().min(self.boundary_ns(self.second)).min(stop_ns).min(sweep_ns);
                self.arm(next)?;
                events.clear();
                self.wait(&mut events, None)?;
            }
            for event in &events {
                let data = event.data.u64();
                if data != TIMER {
                    self.on_event(data as u32, (data >> 32) as u32, event.flags);
                }
            }
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
        let is_idle = self.active == 0 && self.waiting.is_empty();
        let is_closed_by_turns = matches!(self.plan.model, Model::Closed { turns: Some(_), .. }) && is_idle;
        is_closed_by_turns || (now >= self.end_ns && (is_idle || now >= self.end_ns + self.plan.rundown_ns))
    }

    fn tell(&mut self, length_ns: u64, sink: &mut dyn FnMut(Spell)) {
        let cpu_ns = thread_cpu_ns();
        self.tally.cpu_ns = cpu_ns - self.cpu_ns;
        self.cpu_ns = cpu_ns;
        self.tally.connected = self.connected;
        self.tally.waiting = self.waiting.len() as u64;
        let tally = std::mem::replace(&mut self.tally, Tally::new(self.plan.steps.len()));
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
        .map_err(|errno| LoadError::System { what: "timerfd_settime", source: errno.into() })?;
        Ok(())
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) -> Result<(), LoadError> {
        match epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(LoadError::System { what: "epoll_wait", source: errno.into() }),
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

    fn on_arrival(&mut self, due_ns: u64) {
        self.tally.asked += 1;
        if let Some(index) = self.free.pop() {
            self.begin_turn(index, due_ns);
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(due_ns);
        } else {
            self.tally
                .step(0)
                .errors
                .record(ErrorKind::Dropped, || "a million arrivals wait for a free device".to_owned());
        }
    }

    fn begin_turn(&mut self, index: u32, due_ns: u64) {
        let kind = &self.plan.kinds[self.devices[index as usize].kind as usize];
        let device = &mut self.devices[index as usize];
        device.scheduled_ns = due_ns;
        device.op = if device.fd.is_some() { kind.body as u32 } else { 0 };
        if matches!(self.plan.model, Model::Open { .. }) {
            self.active += 1;
        }
        device.is_in_turn = true;
        self.go_on(index);
    }

    /// Lets a device go on by itself then.
    fn wake_at(&mut self, index: u32, due_ns: u64) {
        let device = &mut self.devices[index as usize];
        device.wake_ns = due_ns;
        self.wheel.set(index, device.next_ns());
    }

    /// A device's timer: it begins, has slept enough, or has paused after an error; or its connection wants to be looked
    /// after.
    fn on_timer(&mut self, index: u32, due_ns: u64, now: u64) {
        let device = &mut self.devices[index as usize];
        if device.wake_ns <= due_ns {
            device.scheduled_ns = std::mem::replace(&mut device.wake_ns, NEVER_NS);
            if device.state == State::Fresh && matches!(self.plan.model, Model::Closed { .. }) {
                device.is_in_turn = true;
            }
            self.go_on(index);
        }
        self.look_after(index, now);
    }

    /// Does one operation after the other until the device has to wait.
    fn go_on(&mut self, index: u32) {
        let plan = self.plan;
        let at = index as usize;
        let kind = &plan.kinds[self.devices[at].kind as usize];
        loop {
            let device = &mut self.devices[at];
            device.state = State::Ready;
            // A device of an open model connects, and then waits for an arrival.
            if !device.is_in_turn && device.op as usize >= kind.body {
                self.release(index);
                return;
            }
            let Some(op) = kind.ops.get(device.op as usize) else { return };
            match op {
                Op::Connect { step } => {
                    if device.fd.is_none() {
                        device.step = *step as u32;
                        self.connect(index, kind);
                        return;
                    }
                    device.op += 1;
                }
                Op::Expect { step, .. } => {
                    device.step = *step as u32;
                    let now = now_ns();
                    device.sent_ns = now;
                    device.first_byte_ns = 0;
                    device.deadline_ns = now + kind.timeout_ns;
                    device.is_expecting = true;
                    device.state = State::Waiting;
                    if let Some(bytes) = device.early.take() {
                        device.is_expecting = false;
                        self.on_done(index, *step, bytes, now);
                        continue;
                    }
                    if device.fd.is_none() {
                        self.fail(index, ErrorKind::Closed, || "closed before the message came".to_owned());
                    }
                    return;
                }
                Op::Send { step, message, checks } => {
                    device.step = *step as u32;
                    if device.fd.is_none() {
                        // The peer has closed it after the answer before.
                        self.connect(index, kind);
                        return;
                    }
                    let now = now_ns();
                    device.sent_ns = now;
                    device.first_byte_ns = 0;
                    device.deadline_ns = now + kind.timeout_ns;
                    device.state = State::Waiting;
                    device.early = None;
                    let (sent, awaited) = match protocol::fixed(&mut device.session, message, checks) {
                        Some(bytes) => (device.send(bytes, now), Sent::Awaited),
                        None => {
                            self.output.clear();
                            let (session, mut values) = device.session_and_values(now);
                            let awaited = session.send(
                                message,
                                checks,
                                &mut values,
                                &mut self.scratch,
                                &mut self.output,
                            );
                            match awaited {
                                Ok(awaited) => (device.send(&self.output, now), awaited),
                                Err(fault) => return self.fail_for(index, &fault),
                            }
                        }
                    };
                    match sent {
                        Ok(bytes) => self.tally.written_bytes += bytes,
                        Err(errno) => return self.fail_by(index, errno),
                    }
                    if awaited == Sent::Done {
                        if !self.devices[at].unsent.is_empty() {
                            // Not sent until the socket has taken it: a device is no faster than its peer.
                            self.devices[at].state = State::Sending;
                            return;
                        }
                        self.on_done(index, *step, 0, now);
                        continue;
                    }
                    return;
                }
                Op::Sleep(delay) => {
                    let due_ns = device.scheduled_ns + delay.draw(&mut device.random);
                    device.op += 1;
                    device.state = State::Sleeping;
                    self.wake_at(index, due_ns);
                    return;
                }
                Op::Begin { counter } => {
                    device.loops[*counter] = 0;
                    device.op += 1;
                }
                Op::Repeat { counter, times, back_to } => {
                    device.loops[*counter] += 1;
                    device.op = if device.loops[*counter] < *times { *back_to as u32 } else { device.op + 1 };
                }
                Op::Close => {
                    device.op += 1;
                    self.close(index);
                }
                Op::Next => {
                    if !self.next_turn(index, kind) {
                        return;
                    }
                }
            }
        }
    }

    /// The turn is over; whether the device goes on at once.
    fn next_turn(&mut self, index: u32, kind: &Kind) -> bool {
        let device = &mut self.devices[index as usize];
        device.turn += 1;
        match self.plan.model {
            Model::Closed { turns, .. } => {
                let is_last =
                    turns.is_some_and(|turns| device.turn >= turns) || device.scheduled_ns >= self.end_ns;
                if is_last {
                    device.is_in_turn = false;
                    device.state = State::Over;
                    self.active -= 1;
                    return false;
                }
                device.op = if device.fd.is_some() { kind.body as u32 } else { 0 };
                true
            }
            Model::Open { .. } => {
                device.is_in_turn = false;
                self.active -= 1;
                self.release(index);
                false
            }
        }
    }

    /// A device of an open model has nothing to do: it takes the arrival that has waited longest, or is free.
    fn release(&mut self, index: u32) {
        self.devices[index as usize].state = State::Free;
        match self.waiting.pop_front() {
            Some(due_ns) => self.begin_turn(index, due_ns),
            None => self.free.push(index),
        }
    }

    fn connect(&mut self, index: u32, kind: &Kind) {
        let device = &mut self.devices[index as usize];
        device.generation = device.generation.wrapping_add(1);
        let now = now_ns();
        device.sent_ns = now;
        device.deadline_ns = now + kind.connect_timeout_ns;
        device.session.renew(&kind.protocol);
        device.early = None;
        match socket::connect(&kind.endpoint, device.number) {
            Ok(fd) => {
                let data = u64::from(index) | u64::from(device.generation) << 32;
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                let added = epoll::add(&self.poll, fd.as_fd(), epoll::EventData::new_u64(data), flags);
                device.fd = Some(fd);
                device.state = State::Connecting;
                if let Err(errno) = added {
                    self.fail_by(index, errno);
                }
            }
            Err(errno) => self.fail_by(index, errno),
        }
    }

    fn on_event(&mut self, index: u32, generation: u32, flags: EventFlags) {
        let Some(device) = self.devices.get_mut(index as usize) else { return };
        if device.generation != generation || device.fd.is_none() {
            return;
        }
        if device.state == State::Connecting {
            if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                return;
            }
            // The event may tell of what the peer has said first, too, and does not come again.
            self.on_connected(index);
        }
        let device = &self.devices[index as usize];
        let is_held_up = device.state == State::Sending || !device.unsent.is_empty();
        if is_held_up && flags.contains(EventFlags::OUT) && !self.on_writable(index) {
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            let is_closed = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            self.on_readable(index, generation, is_closed);
        }
    }

    fn on_connected(&mut self, index: u32) {
        let now = now_ns();
        let device = &mut self.devices[index as usize];
        let Some(fd) = &device.fd else { return };
        match rustix::net::sockopt::socket_error(fd) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => return self.fail_by(index, errno),
        }
        self.connected += 1;
        device.is_counted = true;
        let protocol = &self.plan.kinds[device.kind as usize].protocol;
        self.output.clear();
        let (session, mut values) = device.session_and_values(now);
        let is_ready = match session.open(protocol, &mut values, &mut self.output) {
            Ok(is_ready) => is_ready,
            Err(fault) => return self.fail_for(index, &fault),
        };
        if let Err(errno) = self.send_output(index, now) {
            return self.fail_by(index, errno);
        }
        if is_ready {
            self.on_ready(index, now);
        } else {
            self.devices[index as usize].state = State::Opening;
        }
    }

    /// The connection stands, and so does the session on it.
    fn on_ready(&mut self, index: u32, now: u64) {
        let device = &mut self.devices[index as usize];
        match self.plan.kinds[device.kind as usize].ops.get(device.op as usize) {
            Some(Op::Connect { step }) => {
                let tally = self.tally.step(*step);
                tally.service.record(now - device.sent_ns);
                // In advance of an open model's arrivals nobody waits for it.
                if device.is_in_turn {
                    tally.lag.record(device.sent_ns.saturating_sub(device.scheduled_ns));
                    tally.response.record(now.saturating_sub(device.scheduled_ns));
                    device.scheduled_ns = now;
                }
                device.op += 1;
            }
            // For a step behind it, since the peer had closed: part of that step's response.
            _ => self.tally.reconnects += 1,
        }
        self.go_on(index);
        self.look_after(index, now);
    }

    /// Reads until nothing more is there. Once less comes than was asked for, there is no more (epoll(7), question 9),
    /// unless the peer has closed.
    fn on_readable(&mut self, index: u32, generation: u32, is_closed: bool) {
        loop {
            let device = &mut self.devices[index as usize];
            if device.generation != generation {
                return;
            }
            let Some(fd) = &device.fd else { return };
            let held = device.unread.len();
            if held >= self.input.len() / 2 {
                // A head that does not end is a fault of the protocol before that.
                let mut larger = vec![0; self.input.len() * 2];
                larger[..held].copy_from_slice(&device.unread);
                self.input = larger.into_boxed_slice();
            } else {
                self.input[..held].copy_from_slice(&device.unread);
            }
            let room = self.input.len() - held;
            let bytes = match rustix::io::read(fd, &mut self.input[held..]) {
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(errno) => return self.fail_by(index, errno),
            };
            let now = now_ns();
            device.unread.clear();
            device.unread.shrink_to(KEPT_BYTES);
            self.tally.read_bytes += bytes as u64;
            if bytes == 0 {
                return self.on_end(index, held, now);
            }
            if device.first_byte_ns == 0 {
                device.first_byte_ns = now;
            }
            if !self.on_bytes(index, generation, held + bytes, now) || !self.flush(index, now) {
                return;
            }
            if bytes < room && !is_closed {
                return;
            }
        }
    }

    /// Reads the first `length` bytes of the input; whether the connection goes on.
    fn on_bytes(&mut self, index: u32, generation: u32, length: usize, now: u64) -> bool {
        let mut from = 0;
        while from < length {
            let device = &mut self.devices[index as usize];
            if device.generation != generation || device.fd.is_none() {
                return false;
            }
            self.output.clear();
            let checks = checks_of(self.plan, device);
            let expected = expected_of(self.plan, device);
            match device.session.read(&self.input[from..length], checks, &mut self.output) {
                Ok((used, heard)) => {
                    from += used;
                    let heard = match heard {
                        Heard::Nothing => Spoken::Nothing,
                        Heard::Ready => Spoken::Ready,
                        Heard::Answer(answer) => Spoken::Answer(answer),
                        Heard::Message(payload) => Spoken::message(payload, expected),
                    };
                    // Sent with what the device sends next, or when all that came is read: one call for many messages.
                    device.unsent.extend_from_slice(&self.output);
                    if heard == Spoken::Nothing {
                        device.unread.extend_from_slice(&self.input[from..length]);
                        return true;
                    }
                    self.on_heard(index, heard, now);
                }
                Err(fault) => {
                    self.fail_for(index, &fault);
                    return false;
                }
            }
        }
        true
    }

    /// The peer has closed.
    fn on_end(&mut self, index: u32, held: usize, now: u64) {
        let device = &mut self.devices[index as usize];
        let checks = checks_of(self.plan, device);
        match device.session.end(&self.input[..held], checks) {
            Ok(Heard::Answer(answer)) => self.on_heard(index, Spoken::Answer(answer), now),
            // Nothing was under way: what comes next connects anew.
            Ok(_) if !device.is_expecting => self.disconnect(index),
            Ok(_) => self.fail(index, ErrorKind::Closed, || "closed before the message came".to_owned()),
            Err(fault) => self.fail_for(index, &fault),
        }
    }

    fn on_heard(&mut self, index: u32, heard: Spoken, now: u64) {
        let device = &mut self.devices[index as usize];
        match heard {
            Spoken::Nothing => {}
            Spoken::Ready => self.on_ready(index, now),
            Spoken::Answer(answer) => {
                let step = device.step as usize;
                match answer.wrong {
                    Some((kind, words)) => {
                        let tally = self.tally.step(step);
                        tally.errors.record(kind, || words.into_owned());
                        tally.received_bytes += answer.bytes;
                        device.scheduled_ns = now;
                        device.op += 1;
                    }
                    None => self.on_done(index, step, answer.bytes, now),
                }
                if !answer.keeps_alive {
                    self.disconnect(index);
                }
                self.go_on(index);
            }
            Spoken::Message { bytes, is_wanted } => {
                self.tally.messages += 1;
                if is_wanted && !device.is_expecting {
                    device.early.get_or_insert(bytes);
                } else if is_wanted {
                    device.is_expecting = false;
                    let step = device.step as usize;
                    self.on_done(index, step, bytes, now);
                    self.go_on(index);
                }
            }
        }
    }

    /// A step has done what it should.
    fn on_done(&mut self, index: u32, step: usize, bytes: u64, now: u64) {
        let device = &mut self.devices[index as usize];
        let tally = self.tally.step(step);
        tally.lag.record(device.sent_ns.saturating_sub(device.scheduled_ns));
        tally.service.record(now.saturating_sub(device.sent_ns));
        tally.response.record(now.saturating_sub(device.scheduled_ns));
        if device.first_byte_ns != 0 {
            tally.first_byte.record(device.first_byte_ns.saturating_sub(device.sent_ns));
        }
        tally.received_bytes += bytes;
        device.scheduled_ns = now;
        device.op += 1;
    }

    fn disconnect(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        if device.fd.take().is_some() {
            device.generation = device.generation.wrapping_add(1);
            device.pong_ns = NEVER_NS;
            device.unread = Vec::new();
            device.unsent = Vec::new();
            if std::mem::take(&mut device.is_counted) {
                self.connected -= 1;
            }
        }
    }

    fn fail_by(&mut self, index: u32, errno: Errno) {
        self.fail(index, socket::kind_of(errno), || socket::words_of(errno));
    }

    fn fail_for(&mut self, index: u32, fault: &Fault) {
        self.fail(index, fault.kind(), || fault.to_string());
    }

    /// The step that is under way has failed: the connection is given up, and the device begins anew after a pause.
    fn fail(&mut self, index: u32, kind: ErrorKind, say: impl FnOnce() -> String) {
        self.disconnect(index);
        let device = &mut self.devices[index as usize];
        match device.state {
            State::Ready | State::Connecting | State::Opening | State::Sending | State::Waiting => {}
            // Nothing was under way: the peer ended an idle connection. Where that may be, what comes next connects anew; where
            // it was to last, what was done on it (subscriptions) is gone too.
            State::Sleeping if device.session.is_lasting() => {}
            State::Free if device.session.is_lasting() => {
                self.tally.step(device.step as usize).errors.record(kind, say);
                return;
            }
            _ => return,
        }
        self.tally.step(device.step as usize).errors.record(kind, say);
        device.is_expecting = false;
        let pause_ns = self.plan.kinds[device.kind as usize].pause_ns;
        device.op = 0;
        let was_in_turn =
            std::mem::replace(&mut device.is_in_turn, matches!(self.plan.model, Model::Closed { .. }));
        let now = now_ns();
        if was_in_turn && matches!(self.plan.model, Model::Open { .. }) {
            self.active -= 1;
        }
        if device.is_in_turn {
            device.turn += 1;
            let is_last =
                matches!(self.plan.model, Model::Closed { turns: Some(turns), .. } if device.turn >= turns);
            if is_last || now + pause_ns >= self.end_ns {
                device.is_in_turn = false;
                device.state = State::Over;
                device.wake_ns = NEVER_NS;
                self.active -= 1;
                return;
            }
        }
        device.state = State::Pausing;
        self.wake_at(index, now + pause_ns);
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
                    self.fail(index, ErrorKind::Timeout, || {
                        "not sent in time: the peer takes nothing".to_owned()
                    });
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

/// What was heard, without what it was read from.
#[derive(Debug, PartialEq, Eq)]
enum Spoken {
    Nothing,
    Ready,
    Answer(Answer),
    Message { bytes: u64, is_wanted: bool },
}

impl Spoken {
    fn message(payload: &[u8], expected: Option<&Checks>) -> Self {
        let is_wanted =
            expected.is_some_and(|checks| checks.body.iter().all(|part| contains(payload, part.as_bytes())));
        Self::Message { bytes: payload.len() as u64, is_wanted }
    }
}

/// The checks of the operation that a device is at.
fn checks_of<'p>(plan: &'p Plan, device: &Device) -> &'p Checks {
    static NONE: Checks = Checks { statuses: Vec::new(), fields: Vec::new(), body: Vec::new() };
    match plan.kinds[device.kind as usize].ops.get(device.op as usize) {
        Some(Op::Send { checks, .. } | Op::Expect { checks, .. }) => checks,
        _ => &NONE,
    }
}

/// What a message must be for a device to have waited for it: it does, or will when what it waits for now has come. A
/// broker may send the message to who published it before it acknowledges it to them.
fn expected_of<'p>(plan: &'p Plan, device: &Device) -> Option<&'p Checks> {
    let is_sending = matches!(device.state, State::Sending | State::Waiting) && !device.is_expecting;
    let op = device.op as usize + usize::from(is_sending);
    match plan.kinds[device.kind as usize].ops.get(op) {
        Some(Op::Expect { checks, .. }) if is_sending || device.is_expecting => Some(checks),
        _ => None,
    }
}
