//! Sweeping returns the memory of dead processes in drawn plans.

use farfield::Versioned;
use farfield::prelude::*;
use farfield_testing::{Checker, Faults, Model, Random, Tested};

/// The root's name ends in bytes that look like the address 0x7265, in the chunk of the registers. A sweep must not take it for a pointer.
const NAME: &str = "regist-er";

#[remote]
struct Register {
    value: Versioned<[u64; 4]>,
}

#[derive(Clone, Debug, PartialEq)]
enum Access {
    Read,
    Write(u64),
}

struct Registers;

impl Model for Registers {
    type Operation = Access;
    type Returned = u64;
    type State = u64;

    fn step(state: &mut u64, access: &Access) -> u64 {
        if let Access::Write(value) = access {
            *state = *value;
        }
        *state
    }
}

impl Tested for Registers {
    type Model = Self;
    type Structure = Register;

    async fn open(ct: &ComputeThread) -> farfield::Result<Register> {
        let new = async || Register::new_in(ct, Register::init([0; 4])).await?.write(ct).await;
        Register::attach(ct.root_or_init(NAME, new).await?, ct).await
    }

    async fn perform(register: &Register, access: &Access, ct: &ComputeThread) -> farfield::Result<u64> {
        match access {
            Access::Read => register.value().read(ct).await.map(|value| value[0]),
            Access::Write(value) => register.value().write(ct, [*value; 4]).await.map(|()| *value),
        }
    }

    fn look(_: &farfield_testing::Plan<Access>, looked: usize, _: Option<&u64>) -> Option<Access> {
        [Access::Read, Access::Write(0), Access::Read].get(looked).cloned()
    }

    async fn destroy(register: Register, ct: &ComputeThread) -> farfield::Result<()> {
        ct.delete(register.this()).await
    }

    fn operation(random: &mut Random) -> Access {
        if random.percent(30) { Access::Write(random.fresh()) } else { Access::Read }
    }
}

#[test]
fn memory_of_dead_processes_is_reclaimed() {
    Checker::new().seeds(0..300).faults(Faults::Injected).assert_sound::<Registers>();
}
