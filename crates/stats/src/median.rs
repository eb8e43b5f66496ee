//! The median.

/// Ratio of the standard deviation to the median absolute deviation of a normal distribution.
pub const SD_OF_MAD: f64 = 1.4826;

/// Returns the median of values in any order; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

/// Returns the median of sorted values. Panics if there are no values.
pub(crate) fn median_of_sorted(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() - 1) / 2].midpoint(sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 3.0]), Some(3.5));
    }
}
