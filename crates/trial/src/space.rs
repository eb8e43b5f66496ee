//! What can be set: parameters with a few levels each.

/// Something that can be set in one of a few ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, for people.
    pub name: String,
    /// Ways in which it can be set, at least one.
    pub levels: usize,
    /// The one that it has when nobody sets it.
    pub default: usize,
    /// Whether levels next to each other do nearly the same: sizes, numbers. Else they are names.
    pub ordered: bool,
}

/// One level of each parameter, in their order.
pub type Point = Vec<usize>;

/// All parameters of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Space {
    /// In the order in which points name their levels.
    pub parameters: Vec<Parameter>,
}

/// How fast levels in order lose what they have in common: the correlation of two that are all of the levels apart is 1/e.
const ORDERED_LENGTH: f64 = 1.0;

impl Space {
    /// Where nothing is set.
    pub fn default_point(&self) -> Point {
        self.parameters.iter().map(|parameter| parameter.default).collect()
    }

    /// Whether it has a level for each parameter, and only such as there are.
    pub fn holds(&self, point: &[usize]) -> bool {
        let fits = |(level, parameter): (&usize, &Parameter)| *level < parameter.levels;
        point.len() == self.parameters.len() && point.iter().zip(&self.parameters).all(fits)
    }

    /// What the effects of two levels have in common, from 0 to 1. The effect of a level is what it changes beside the default, so
    /// the default's own is known, and has nothing in common with any.
    pub(crate) fn common(&self, parameter: usize, a: usize, b: usize) -> f64 {
        let Some(Parameter { levels, default, ordered, .. }) = self.parameters.get(parameter) else {
            return 0.0;
        };
        let alike = |a: usize, b: usize| match ordered {
            true => {
                (-(a.abs_diff(b) as f64) / (ORDERED_LENGTH * levels.saturating_sub(1).max(1) as f64)).exp()
            }
            false => f64::from(u8::from(a == b)),
        };
        // The covariance of differences from the default, for which alike(a, a) is 1.
        let both = alike(a, b) - alike(a, *default) - alike(*default, b) + 1.0;
        let own = |level: usize| 2.0 * (1.0 - alike(level, *default));
        let size = (own(a) * own(b)).sqrt();
        if size > 0.0 { both / size } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(levels: usize, default: usize, ordered: bool) -> Parameter {
        Parameter { name: "+x".to_owned(), levels, default, ordered }
    }

    #[test]
    fn the_default_has_nothing_in_common_with_others_and_a_level_all_with_itself() {
        let space = Space { parameters: vec![parameter(3, 1, false), parameter(5, 0, true)] };
        for (at, Parameter { levels, default, .. }) in space.parameters.iter().enumerate() {
            for level in 0..*levels {
                let same = space.common(at, level, level);
                assert!((same - f64::from(u8::from(level != *default))).abs() < 1e-12, "{at} {level} {same}");
                assert_eq!(space.common(at, level, *default), 0.0);
            }
        }
        // Of names, two differ from the default in different ways; of sizes, neighbours do so in the same way.
        assert!((space.common(0, 0, 2) - 0.5).abs() < 1e-12);
        assert!(space.common(1, 3, 4) > space.common(1, 1, 4) && space.common(1, 3, 4) > 0.8);
        assert_eq!(space.common(7, 0, 1), 0.0);
    }

    #[test]
    fn points_name_a_level_of_each_parameter() {
        let space = Space { parameters: vec![parameter(2, 1, false), parameter(3, 0, true)] };
        assert_eq!(space.default_point(), [1, 0]);
        assert!(
            space.holds(&[0, 2]) && !space.holds(&[2, 0]) && !space.holds(&[0]) && !space.holds(&[0, 0, 0])
        );
    }
}
