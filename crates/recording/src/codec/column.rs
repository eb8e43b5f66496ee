//! A column: the values of one series in one chunk.
//!
//! A recording of a busy node is mostly noise: times per state in nanoseconds, whose low bits no compressor can predict.
//! Therefore a column is packed in bits rather than bytes. The residuals of a simple predictor are written as Rice codes, which take
//! only a fraction of a bit more than the entropy of such noise. Varints followed by zstd take a seventh more, see
//! `docs/recording-format.md`.
//!
//! The encoder tries all predictors and uses the one with the shortest result.

use super::Garbled;
use super::bits::{
    BitReader, BitWriter, Bytes, MAX_RICE, put_svarint, put_uvarint, rice_bits, unzigzag, zigzag,
};

/// Predictor: value = base + scale × residual.
const LEVEL: u8 = 0;
/// Predictor: value = last value + scale × (slope + residual).
const SLOPE: u8 = 1;
/// Predictor: value = last value + scale × step, with step = last step + residual; the first step is stored.
const CURVE: u8 = 2;
const PREDICTOR: u8 = 0b0000_0011;
/// Flag: a bitmap marks the ticks that have a value. Without it, all ticks have a value.
const PRESENCE: u8 = 0b0000_0100;
/// Flag: all differences are multiples of a scale above 1, such as times in clock ticks, or memory in pages.
const SCALED: u8 = 0b0000_1000;
/// Flag: residuals follow. Without it, all residuals are zero.
const RESIDUALS: u8 = 0b0001_0000;
const KNOWN: u8 = PREDICTOR | PRESENCE | SCALED | RESIDUALS;

/// Encoder of columns; reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// Distance of each value from the first one, in multiples of the scale.
    levels: Vec<i64>,
    /// Difference of each value from the previous one, in multiples of the scale; one fewer than there are values.
    steps: Vec<i64>,
    sorted: Vec<i64>,
}

impl Encoder {
    /// Appends a column. `ticks` is the number of ticks of the chunk, `rows` are the indices of those that have a value,
    /// ascending. `rows` and `values` have equal, non-zero lengths; `rows` is ignored if all ticks have a value.
    pub(crate) fn encode(&mut self, ticks: usize, rows: &[u16], values: &[i64], out: &mut Vec<u8>) {
        let Some(&first) = values.first() else { return };
        let scale = self.measure(values);
        let plan = self.plan();

        let mut flags = plan.predictor;
        let complete = values.len() == ticks;
        flags |= if complete { 0 } else { PRESENCE };
        flags |= if scale > 1 { SCALED } else { 0 };
        flags |= if plan.rice.is_some() { RESIDUALS } else { 0 };
        out.push(flags);
        if !complete {
            let start = out.len();
            out.resize(start + ticks.div_ceil(8), 0);
            for &row in rows {
                out[start + usize::from(row / 8)] |= 1 << (row % 8);
            }
        }
        if scale > 1 {
            put_uvarint(out, scale as u64);
        }
        match plan.predictor {
            LEVEL => put_svarint(out, first.wrapping_add(plan.parameter.wrapping_mul(scale))),
            _ => {
                put_svarint(out, first);
                put_svarint(out, plan.parameter);
            }
        }
        if let Some(k) = plan.rice {
            out.push(k as u8);
            let mut bits = BitWriter::new(out);
            self.residuals(plan.predictor, plan.parameter)
                .for_each(|residual| bits.rice(zigzag(residual), k));
            bits.finish();
        }
    }

    /// Fills `steps` and `levels`; returns the scale.
    fn measure(&mut self, values: &[i64]) -> i64 {
        self.steps.clear();
        self.steps.extend(values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
        let mut scale = 0;
        for step in &self.steps {
            scale = common_divisor(step.unsigned_abs(), scale);
            if scale == 1 {
                break;
            }
        }
        let scale = i64::try_from(scale).unwrap_or(1).max(1);
        self.levels.clear();
        self.levels.push(0);
        let mut level = 0_i64;
        for step in &mut self.steps {
            *step /= scale;
            level = level.wrapping_add(*step);
            self.levels.push(level);
        }
        scale
    }

    /// Chooses the predictor and parameter with the shortest encoding.
    fn plan(&mut self) -> Plan {
        if self.steps.iter().all(|&step| step == 0) {
            return Plan { predictor: LEVEL, parameter: 0, rice: None, bits: 0 };
        }
        let mean = self.levels.last().map_or(0, |level| level / self.steps.len() as i64);
        let candidates = [
            (LEVEL, median(&self.levels, &mut self.sorted)),
            (SLOPE, median(&self.steps, &mut self.sorted)),
            (SLOPE, mean),
            (CURVE, self.steps[0]),
        ];
        let mut best = self.evaluate(candidates[0].0, candidates[0].1);
        for (predictor, parameter) in &candidates[1..] {
            let plan = self.evaluate(*predictor, *parameter);
            if plan.bits < best.bits {
                best = plan;
            }
        }
        best
    }

    /// Finds the best Rice parameter for a predictor and its parameter.
    fn evaluate(&self, predictor: u8, parameter: i64) -> Plan {
        // The parameter takes an additional varint, except for a level.
        let header =
            if predictor == LEVEL { 0 } else { u64::from(64 - zigzag(parameter).leading_zeros()) + 8 };
        let (mut sum, mut count) = (0_u128, 0_u128);
        for residual in self.residuals(predictor, parameter) {
            sum += u128::from(zigzag(residual));
            count += 1;
        }
        if sum == 0 {
            return Plan { predictor, parameter, rice: None, bits: header };
        }
        // The best k is near the logarithm of the mean, or below: outliers are escaped, but they increase the mean.
        let estimate = (sum / count).checked_ilog2().unwrap_or(0).min(MAX_RICE);
        let mut best = (u64::MAX, 0);
        for k in (0..=(estimate + 1).min(MAX_RICE)).rev() {
            let bits =
                self.residuals(predictor, parameter).map(|residual| rice_bits(zigzag(residual), k)).sum();
            if bits <= best.0 {
                best = (bits, k);
            } else if k + 2 < estimate {
                break;
            }
        }
        Plan { predictor, parameter, rice: Some(best.1), bits: header + 8 + best.0 }
    }

    fn residuals(&self, predictor: u8, parameter: i64) -> impl Iterator<Item = i64> {
        let (list, skip) = match predictor {
            LEVEL => (&self.levels, 0),
            SLOPE => (&self.steps, 0),
            _ => (&self.steps, 1),
        };
        let mut before = parameter;
        list.iter().skip(skip).map(move |&item| {
            let residual = item.wrapping_sub(before);
            if predictor == CURVE {
                before = item;
            }
            residual
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    predictor: u8,
    /// Base as a level, slope, or first step, in multiples of the scale.
    parameter: i64,
    /// The Rice parameter; `None` if all residuals are zero.
    rice: Option<u32>,
    bits: u64,
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn median(values: &[i64], sorted: &mut Vec<i64>) -> i64 {
    sorted.clear();
    sorted.extend_from_slice(values);
    let middle = sorted.len() / 2;
    *sorted.select_nth_unstable(middle).1
}

/// A decoded column.
#[derive(Debug, Default)]
pub(crate) struct Column {
    /// Indices of the chunk's ticks that have a value, ascending; empty if all ticks have one.
    rows: Vec<u16>,
    /// Values; never empty after decoding.
    pub values: Vec<i64>,
    /// Whether all ticks have a value and all values are equal.
    pub is_constant: bool,
}

impl Column {
    /// Pairs of tick index and value.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, i64)> {
        let complete = self.rows.is_empty();
        self.values
            .iter()
            .enumerate()
            .map(move |(index, &value)| (if complete { index } else { usize::from(self.rows[index]) }, value))
    }

    /// Decodes a column of a chunk with `ticks` ticks, and replaces the previous content by it.
    pub(crate) fn decode(&mut self, bytes: &[u8], ticks: usize) -> Result<(), Garbled> {
        let mut bytes = Bytes(bytes);
        let flags = bytes.byte()?;
        if flags & !KNOWN != 0 || flags & PREDICTOR > CURVE {
            return Err(Garbled("unknown flags of a column"));
        }
        self.rows.clear();
        self.values.clear();
        let count = if flags & PRESENCE == 0 {
            ticks
        } else {
            let rows = u16::try_from(ticks).map_err(|_| Garbled("a bitmap is too large"))?;
            let bitmap = bytes.take(ticks.div_ceil(8))?;
            self.rows.extend((0..rows).filter(|row| bitmap[usize::from(row / 8)] & (1 << (row % 8)) != 0));
            self.rows.len()
        };
        if count == 0 {
            return Err(Garbled("a column without values"));
        }
        let scale = if flags & SCALED == 0 { 1 } else { bytes.uvarint()? as i64 };
        let first = bytes.svarint()?;
        let predictor = flags & PREDICTOR;
        let parameter = if predictor == LEVEL { 0 } else { bytes.svarint()? };
        let (k, mut bits) = if flags & RESIDUALS == 0 {
            (None, BitReader::new(&[]))
        } else {
            let k = u32::from(bytes.byte()?);
            if k > MAX_RICE {
                return Err(Garbled("invalid Rice parameter of a column"));
            }
            (Some(k), BitReader::new(bytes.0))
        };
        // Branches are kept out of the loops, because a day has 200 million values.
        let mut residual = |k| bits.rice(k).map(unzigzag);
        self.is_constant = predictor == LEVEL && k.is_none() && self.rows.is_empty();
        let values = &mut self.values;
        let mut value = first;
        values.resize(count, first);
        match (predictor, k) {
            (LEVEL, None) => {}
            (LEVEL, Some(k)) => {
                for slot in values {
                    *slot = first.wrapping_add(residual(k)?.wrapping_mul(scale));
                }
            }
            (SLOPE, Some(k)) => {
                for slot in &mut values[1..] {
                    let step = residual(k)?.wrapping_add(parameter);
                    value = value.wrapping_add(step.wrapping_mul(scale));
                    *slot = value;
                }
            }
            (_, k) => {
                let mut step = parameter;
                for (index, slot) in values.iter_mut().enumerate().skip(1) {
                    if let Some(k) = k
                        && index > 1
                    {
                        step = step.wrapping_add(residual(k)?);
                    }
                    value = value.wrapping_add(step.wrapping_mul(scale));
                    *slot = value;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(ticks: usize, rows: &[u16], values: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Encoder::default().encode(ticks, rows, values, &mut bytes);
        bytes
    }

    fn all_rows(values: &[i64]) -> Vec<u16> {
        (0..values.len() as u16).collect()
    }

    #[test]
    fn regular_columns_take_few_bytes() {
        let check = |what: &str, values: Vec<i64>, max: usize| {
            let bytes = encode(values.len(), &all_rows(&values), &values);
            assert!(bytes.len() <= max, "{what}: {} bytes, {bytes:?}", bytes.len());
            let mut column = Column::default();
            assert_eq!(column.decode(&bytes, values.len()), Ok(()));
            assert_eq!(column.values, values, "{what}");
        };
        check("constant", vec![7; 60], 2);
        check("even growth", (0..60).map(|i| 5 + i * 1_000_000_000).collect(), 8);
        check("quadratic growth", (0..60).map(|i| i * i * 500).collect(), 36);
        check("clock ticks", (0..60).map(|i| 10_000_000 * (3 * i + i % 2)).collect(), 30);
        check("a single step", (0..60).map(|i| i64::from(i >= 30) * 1_000_000_000).collect(), 20);
        check("a small level", (0..60).map(|i| (i * 7) % 4).collect(), 24);
    }

    #[test]
    fn noise_costs_little_more_than_its_entropy() {
        // Uniform in 2^20: 20 bits per value.
        let mut state = 1_u64;
        let mut value = 0;
        let values: Vec<i64> = (0..600)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                value += (state >> 44) as i64;
                value
            })
            .collect();
        let bits = encode(600, &all_rows(&values), &values).len() * 8;
        assert!(bits < 600 * 21, "{} bits per value", bits / 600);
    }

    fn values() -> impl Strategy<Value = Vec<i64>> {
        let wild = prop::collection::vec(any::<i64>(), 1..70);
        let small = prop::collection::vec(-20..20_i64, 1..70);
        let counter = (any::<i64>(), prop::collection::vec(0..2_000_000_i64, 1..70), 1..5_000_i64).prop_map(
            |(start, steps, scale)| {
                let mut value = start;
                steps
                    .into_iter()
                    .map(|step| {
                        value = value.wrapping_add(step.wrapping_mul(scale));
                        value
                    })
                    .collect()
            },
        );
        let extreme = prop::collection::vec(prop::sample::select(vec![i64::MIN, -1, 0, 1, i64::MAX]), 1..20);
        prop_oneof![wild, small, counter, extreme]
    }

    proptest! {
        #[test]
        fn columns_round_trip(values in values(), holes in prop::collection::vec(any::<bool>(), 140)) {
            let mut rows = Vec::new();
            let mut row = 0;
            for (index, _) in values.iter().enumerate() {
                row += u16::from(holes[index]);
                rows.push(row);
                row += 1;
            }
            let ticks = usize::from(row) + usize::from(holes[139]);
            let bytes = encode(ticks, &rows, &values);
            let mut column = Column::default();
            prop_assert_eq!(column.decode(&bytes, ticks), Ok(()));
            let expect: Vec<_> = rows.into_iter().map(usize::from).zip(values).collect();
            prop_assert_eq!(column.pairs().collect::<Vec<_>>(), expect);
        }

        #[test]
        fn garbled_columns_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), ticks in 0..100_usize) {
            let mut column = Column::default();
            if column.decode(&bytes, ticks).is_ok() {
                prop_assert!(column.pairs().all(|(row, _)| row < ticks));
            }
        }
    }
}
