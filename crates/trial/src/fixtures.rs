//! Creates periods for unit tests.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Metric, Period, SampleBuilder, SeriesTable, Span, Tick};
use beamtune_recording::{Selection, Writer};

/// Creates a period with one value per second of each series.
pub(crate) fn period(series: &[(&Metric, &str, &[i64])]) -> Period {
    let mut table = SeriesTable::default();
    let mut writer = Writer::in_memory().expect("memory");
    let length = series.iter().map(|(_, _, values)| values.len()).max().unwrap_or(0);
    for second in 0..length {
        let t = second as i64 * SECOND_NS;
        let span = Some(Span { begin: t, end: t });
        let mut out =
            SampleBuilder::new(&mut table, Tick { t, incarnation: 0, vm: span, host: span, late: 0 });
        for (metric, entity, values) in series {
            if let Some(value) = values.get(second) {
                out.metric(metric, entity, *value);
            }
        }
        let sample = out.sample;
        writer.append(&sample, &table).expect("stored");
    }
    writer.finish().expect("closed").period(&Selection::default()).expect("read")
}
