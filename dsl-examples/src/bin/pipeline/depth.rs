//! The depth of a queue over time.

use std::time::Duration;

/// How many items a queue had.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Depth {
    /// Over time, from the first push to the last pop.
    pub(crate) mean: f64,
    pub(crate) max: u64,
}

impl Depth {
    /// Computes the depth from the times of all pushes and all pops. An item may be popped before its push has returned: then it was never there.
    pub(crate) fn of(mut pushes: Vec<Duration>, mut pops: Vec<Duration>) -> Self {
        pushes.sort_unstable();
        pops.sort_unstable();
        let (mut added, mut removed, mut last) = (0, 0, Duration::ZERO);
        let (mut max, mut item_seconds) = (0, 0.0);
        while let Some(pop) = pops.get(removed) {
            let is_push = pushes.get(added).is_some_and(|push| push < pop);
            let time = if is_push { pushes[added] } else { *pop };
            let depth = added.saturating_sub(removed) as u64;
            #[allow(clippy::cast_precision_loss)] // a mean
            let items = depth as f64;
            item_seconds += items * time.saturating_sub(last).as_secs_f64();
            last = time;
            if is_push {
                added += 1;
            } else {
                removed += 1;
            }
            max = max.max(added.saturating_sub(removed) as u64);
        }
        let from = pushes.first().copied().unwrap_or_default();
        let seconds = last.saturating_sub(from).as_secs_f64();
        Self { mean: if seconds > 0.0 { item_seconds / seconds } else { 0.0 }, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(pushes: &[u64], pops: &[u64]) -> Depth {
        let times = |times: &[u64]| times.iter().map(|time| Duration::from_secs(*time)).collect();
        Depth::of(times(pushes), times(pops))
    }

    #[test]
    fn the_mean_is_over_time() {
        // One item for a second, two for two, one for one.
        assert_eq!(depth(&[10, 11], &[13, 14]), Depth { mean: 1.5, max: 2 });
        assert_eq!(
            depth(&[3, 1, 2], &[9, 8, 7]),
            Depth { mean: (1.0 + 2.0 + 3.0 * 4.0 + 2.0 + 1.0) / 8.0, max: 3 }
        );
    }

    #[test]
    fn an_item_that_is_popped_before_its_push_returns_is_not_counted() {
        assert_eq!(depth(&[2, 5], &[1, 4]), Depth::default());
        assert_eq!(depth(&[], &[]), Depth::default());
    }
}
