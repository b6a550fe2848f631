//! Verifies a run's outcome by its sums.

use crate::args::Args;
use crate::mix::Workload;
use crate::totals::OBJECTS;
use crate::workload::Outcome;

/// Returns all faults of an outcome.
pub(crate) fn faults(args: &Args, outcome: &Outcome) -> Vec<String> {
    let sums = &outcome.sums;
    let mut faults: Vec<String> = outcome.fault.iter().cloned().collect();
    if sums.faults > 0 && faults.is_empty() {
        faults.push(format!("other processes have found {} faults", sums.faults));
    }
    let (records, inserted, size) = (args.records, sums.inserted, sums.final_size);
    if records + inserted != size {
        faults.push(format!("the structure has {size} records, but {records} + {inserted} were inserted"));
    }
    let (checked, unchecked) = (sums.checked, sums.unchecked);
    // In a joint run, each process counts the values of its own forgetful tasks only.
    if checked + unchecked < size && sums.faults == 0 {
        faults.push(format!("{checked} of {size} values were checked, and {unchecked} forgotten"));
    }
    if args.workload == Workload::F && outcome.counted != sums.modified {
        let (counted, modified) = (outcome.counted, sums.modified);
        faults.push(format!("the records count {counted} read-modify-writes, but {modified} were made"));
    }
    if sums.allocated.checked_sub(sums.freed) != Some(OBJECTS) {
        let (allocated, freed) = (sums.allocated, sums.freed);
        faults.push(format!(
            "{allocated} objects were allocated and {freed} freed, but {OBJECTS} is reachable"
        ));
    }
    if sums.retired != sums.reclaimed {
        let (retired, reclaimed) = (sums.retired, sums.reclaimed);
        faults.push(format!("{retired} objects were retired, but {reclaimed} reclaimed"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Outcome {
        let mut outcome = Outcome { counted: 3, ..Outcome::default() };
        let sums = &mut outcome.sums;
        (sums.inserted, sums.final_size, sums.checked, sums.modified) = (2, 12, 12, 3);
        (sums.allocated, sums.freed, sums.retired, sums.reclaimed) = (9, 8, 2, 2);
        outcome
    }

    fn fault(change: impl FnOnce(&mut Outcome)) -> String {
        let mut outcome = valid();
        change(&mut outcome);
        let args = Args::of("--records 10 --workload f");
        faults(&args, &outcome).join("; ")
    }

    #[test]
    fn a_valid_outcome_passes() {
        assert_eq!(fault(|_| ()), "");
        assert_eq!(fault(|outcome| (outcome.sums.checked, outcome.sums.unchecked) = (5, 7)), "");
    }

    #[test]
    fn each_planted_fault_is_found() {
        for (change, named) in [
            ((|outcome| outcome.fault = Some("record 3 is missing".into())) as fn(&mut Outcome), "record 3"),
            (|outcome| outcome.sums.faults = 2, "other processes have found 2 faults"),
            (|outcome| outcome.sums.final_size = 11, "11 records, but 10 + 2 were inserted"),
            (|outcome| outcome.sums.inserted = 3, "12 records, but 10 + 3"),
            (|outcome| outcome.sums.checked = 11, "11 of 12 values were checked"),
            (|outcome| outcome.counted = 2, "count 2 read-modify-writes, but 3 were made"),
            (|outcome| outcome.sums.allocated = 10, "10 objects were allocated"),
            (|outcome| outcome.sums.reclaimed = 1, "1 reclaimed"),
        ] {
            let found = fault(change);
            assert!(found.contains(named), "{named}: {found}");
        }
    }
}
