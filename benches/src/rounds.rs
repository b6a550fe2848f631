//! What the rounds of a comparison come to.

/// Returns the upper median of some values.
///
/// # Panics
/// If there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the median of the rounds' ratios of one side to another.
///
/// # Panics
/// If there are no rounds.
pub fn ratio(ours: &[f64], others: &[f64]) -> f64 {
    median(ours.iter().zip(others).map(|(ours, other)| ours / other).collect())
}
