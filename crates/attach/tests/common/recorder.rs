//! A minimal recorder of one node.

use std::time::{Duration, Instant, SystemTime};

use beamtune_attach::Network;
use beamtune_attach::agent::SessionOptions;
use beamtune_attach::connection::Settings;
use beamtune_attach::locate::Route;
use beamtune_attach::source::{Access, NodeSource};
use beamtune_model::units::Nanos;
use beamtune_model::{
    Clock, Group, Sample, SampleBuilder, SampleRequest, SeriesTable, Source, SourceTrouble, Span, Tick,
};

use super::{COOKIE, PATIENCE, eventually, found};

pub struct TestClock(pub Instant);

impl Clock for TestClock {
    fn now(&self) -> Nanos {
        self.0.elapsed().as_nanos() as i64
    }

    fn wall(&self) -> i64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
    }

    fn sleep_until(&self, until: Nanos) {
        std::thread::sleep(Duration::from_nanos(u64::try_from(until - self.now()).unwrap_or(0)));
    }
}

pub fn access(target: &str) -> Access {
    Access {
        route: Route { target: target.parse().unwrap(), epmd_port: 4369, network: Network::Own },
        finder: None,
        cookie: found(COOKIE),
        tls: None,
        settings: Settings::default(),
        session_options: SessionOptions::default(),
    }
}

/// A recorder that takes one sample after another.
pub struct Recorder {
    pub source: NodeSource,
    pub clock: TestClock,
    pub table: SeriesTable,
    pub seq: u64,
    /// When the VM was last read.
    pub last_span: Option<Span>,
}

impl Recorder {
    pub fn attach(target: &str) -> Recorder {
        let source = NodeSource::attach(access(target)).unwrap();
        Recorder {
            source,
            clock: TestClock(Instant::now()),
            table: SeriesTable::default(),
            seq: 0,
            last_span: None,
        }
    }

    pub fn sample(&mut self, detail: bool, patience: Duration) -> Result<Sample, SourceTrouble> {
        self.seq += 1;
        let t = self.clock.now();
        self.source.request(SampleRequest { seq: self.seq, t, detail }, &self.clock)?;
        let tick = Tick { t, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        let deadline = t + patience.as_nanos() as i64;
        let span = self.source.collect(deadline, &self.clock, &mut out)?;
        assert!(t <= span.begin && span.begin <= span.end && span.end <= self.clock.now(), "{t} {span:?}");
        self.last_span = Some(span);
        Ok(out.sample)
    }

    /// Takes samples until one succeeds.
    pub fn next_sample(&mut self) -> Sample {
        let mut sample = None;
        eventually("a sample", || {
            sample = self.sample(false, PATIENCE).ok();
            sample.is_some()
        });
        sample.unwrap()
    }

    pub fn value(&self, sample: &Sample, group: Group, entity: &str, name: &str) -> Option<i64> {
        let id = self.table.find(group, entity, name)?;
        sample.readings.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }
}
