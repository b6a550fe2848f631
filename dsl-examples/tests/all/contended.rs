//! The rates of a contended counter in the simulator, by 64 clients: delegated, under a lock, and by the memory node's FAA.
//!
//! With `--nocapture` each measurement is printed as a figure. All clients use one word at one memory node, or one trustee, which makes no operations itself. The
//! network and the processors have the simulator's default costs: a trustee's processor is then its limit with sixteen tasks, and its NIC otherwise.

use farfield::Cluster;
use farfield_examples::delegated_counter::{Variant, Workload, run};

const CLIENTS: usize = 64;

/// The operations a second of all clients.
fn rate(url: &str, variant: Variant, tasks: u64) -> f64 {
    let cluster = Cluster::connect(url).unwrap();
    let ops = 50 * tasks;
    let workload = Workload { variant, threads: 1 + CLIENTS, tasks, ops, has_idle_trustee: true };
    let outcome = run(&cluster, workload).unwrap();
    assert_eq!((outcome.operations, &outcome.fault), (CLIENTS as u64 * ops, &None));
    let rate = outcome.rate();
    println!("{} with {tasks} tasks on {url}: {:.2} million a second", variant.name(), rate / 1e6);
    rate
}

#[test]
fn delegation_outruns_a_lock_with_one_task_and_faa_with_sixteen() {
    let [delegated, lock, faa] = Variant::ALL.map(|variant| rate("sim:", variant, 1));
    let [delegated_16, faa_16] = [Variant::Delegated, Variant::Faa].map(|variant| rate("sim:", variant, 16));
    let by_nic_16 = rate("sim:compute=served:0ns", Variant::Delegated, 16);
    println!("trust.counter.ratio_to_lock {:.2}", delegated / lock);
    println!("trust.counter.ratio_to_faa {:.3}", delegated / faa);
    println!("trust.counter_16.ratio_to_faa {:.2}", delegated_16 / faa_16);
    assert!(delegated >= 10.0 * lock);
    println!("trust.counter_16.by_nic.ratio_to_faa {:.2}", by_nic_16 / faa_16);
    assert!(delegated_16 >= 1.3 * faa_16);
    assert!(by_nic_16 >= 3.0 * faa_16);
}
