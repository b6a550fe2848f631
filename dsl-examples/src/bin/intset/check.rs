//! Verifies a run's outcome by its counts.

use crate::workload::Outcome;

/// Returns all faults of an outcome.
pub(crate) fn faults(outcome: &Outcome) -> Vec<String> {
    let mut faults = Vec::new();
    let keys = match &outcome.keys {
        Ok(keys) => keys,
        Err(error) => return vec![format!("the set is broken: {error}")],
    };
    if let Some((first, second)) =
        keys.iter().zip(keys.iter().skip(1)).find(|(first, second)| first >= second)
    {
        faults.push(format!("the keys do not ascend: {first} precedes {second}"));
    }
    let size = keys.len() as u64;
    let expected = (outcome.prefilled + outcome.answers.ins_t).checked_sub(outcome.answers.rmv_t);
    if expected != Some(size) {
        let (prefilled, inserted, removed) =
            (outcome.prefilled, outcome.answers.ins_t, outcome.answers.rmv_t);
        faults.push(format!(
            "the set holds {size} keys, but {prefilled} + {inserted} were inserted and {removed} removed"
        ));
    }
    let metrics = &outcome.metrics;
    let reachable = size + outcome.overhead_objects;
    if metrics.allocated.checked_sub(metrics.freed) != Some(reachable) {
        let (allocated, freed) = (metrics.allocated, metrics.freed);
        faults.push(format!(
            "{allocated} objects were allocated and {freed} freed, but {reachable} are reachable"
        ));
    }
    if metrics.retired != metrics.reclaimed {
        let (retired, reclaimed) = (metrics.retired, metrics.reclaimed);
        faults.push(format!("{retired} objects were retired, but {reclaimed} reclaimed"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Answers;
    use farfield::Metrics;
    use std::time::Duration;

    fn valid() -> Outcome {
        let mut metrics = Metrics::default();
        (metrics.allocated, metrics.freed, metrics.retired, metrics.reclaimed) = (9, 2, 2, 2);
        Outcome {
            duration: Duration::from_secs(1),
            prefilled: 2,
            answers: Answers { ins_t: 3, rmv_t: 2, ..Answers::default() },
            metrics,
            keys: Ok(vec![1, 5, 9]),
            overhead_objects: 4,
            simulated: None,
        }
    }

    fn fault(change: impl FnOnce(&mut Outcome)) -> String {
        let mut outcome = valid();
        change(&mut outcome);
        faults(&outcome).join("; ")
    }

    #[test]
    fn a_valid_outcome_passes() {
        assert_eq!(faults(&valid()), Vec::<String>::new());
    }

    #[test]
    fn each_planted_fault_is_found() {
        assert!(fault(|outcome| outcome.keys = Err("a marked node".into())).contains("a marked node"));
        assert!(fault(|outcome| outcome.keys = Ok(vec![1, 9, 5])).contains("9 precedes 5"));
        assert!(fault(|outcome| outcome.keys = Ok(vec![1, 5, 5])).contains("5 precedes 5"));
        assert!(fault(|outcome| outcome.answers.ins_t = 4).contains("holds 3 keys"));
        assert!(fault(|outcome| outcome.answers.rmv_t = 9).contains("9 removed"));
        assert!(fault(|outcome| outcome.metrics.allocated = 10).contains("10 objects were allocated"));
        assert!(fault(|outcome| outcome.metrics.reclaimed = 1).contains("1 reclaimed"));
    }
}
