//! The search space: parameters with a few levels each.

/// A parameter with a few levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Display name.
    pub name: String,
    /// Number of levels, at least one.
    pub levels: usize,
    /// The level of an unchanged target.
    pub default: usize,
    /// Whether adjacent levels have similar effects, as for sizes and numbers, but not for names.
    pub ordered: bool,
}

/// One level of each parameter, in the order of the parameters.
pub type Point = Vec<usize>;

/// All parameters of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Space {
    /// The parameters, in the order of a [`Point`].
    pub parameters: Vec<Parameter>,
}

/// Length scale of ordered levels, as a share of their range: for 1, the correlation of the first and the last level is 1/e.
const ORDERED_LENGTH: f64 = 1.0;

impl Space {
    /// Returns the point with all parameters at their defaults.
    pub fn default_point(&self) -> Point {
        self.parameters.iter().map(|parameter| parameter.default).collect()
    }

    /// Whether the point has an existing level for each parameter.
    pub fn contains(&self, point: &[usize]) -> bool {
        let fits = |(level, parameter): (&usize, &Parameter)| *level < parameter.levels;
        point.len() == self.parameters.len() && point.iter().zip(&self.parameters).all(fits)
    }

    /// Returns the prior correlation of the effects of two levels, from 0 to 1. An effect is a difference from the default. The effect of
    /// the default itself is therefore 0, and does not correlate with other effects.
    pub(crate) fn correlation(&self, parameter: usize, a: usize, b: usize) -> f64 {
        let Some(Parameter { levels, default, ordered, .. }) = self.parameters.get(parameter) else {
            return 0.0;
        };
        let alike = |a: usize, b: usize| match ordered {
            true => {
                (-(a.abs_diff(b) as f64) / (ORDERED_LENGTH * levels.saturating_sub(1).max(1) as f64)).exp()
            }
            false => f64::from(u8::from(a == b)),
        };
        // Covariance of the differences from the default; alike(a, a) is 1.
        let covariance = alike(a, b) - alike(a, *default) - alike(*default, b) + 1.0;
        let variance = |level: usize| 2.0 * (1.0 - alike(level, *default));
        let scale = (variance(a) * variance(b)).sqrt();
        if scale > 0.0 { covariance / scale } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(levels: usize, default: usize, ordered: bool) -> Parameter {
        Parameter { name: "+x".to_owned(), levels, default, ordered }
    }

    #[test]
    fn each_level_correlates_with_itself_and_the_default_with_none() {
        let space = Space { parameters: vec![parameter(3, 1, false), parameter(5, 0, true)] };
        for (at, Parameter { levels, default, .. }) in space.parameters.iter().enumerate() {
            for level in 0..*levels {
                let same = space.correlation(at, level, level);
                assert!((same - f64::from(u8::from(level != *default))).abs() < 1e-12, "{at} {level} {same}");
                assert_eq!(space.correlation(at, level, *default), 0.0);
            }
        }
        // The effects of two names are partly independent; those of neighbouring sizes are nearly the same.
        assert!((space.correlation(0, 0, 2) - 0.5).abs() < 1e-12);
        assert!(space.correlation(1, 3, 4) > space.correlation(1, 1, 4) && space.correlation(1, 3, 4) > 0.8);
        assert_eq!(space.correlation(7, 0, 1), 0.0);
    }

    #[test]
    fn point_must_have_an_existing_level_for_each_parameter() {
        let space = Space { parameters: vec![parameter(2, 1, false), parameter(3, 0, true)] };
        assert_eq!(space.default_point(), [1, 0]);
        assert!(
            space.contains(&[0, 2])
                && !space.contains(&[2, 0])
                && !space.contains(&[0])
                && !space.contains(&[0, 0, 0])
        );
    }
}
