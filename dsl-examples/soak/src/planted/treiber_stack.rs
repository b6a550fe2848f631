//! Bugs of the Treiber stack.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "treiber_stack_frees_immediately",
        structure: Structure::TreiberStack,
        edits: &[("g.sched_reclaim(top).await?;", "ct.delete(top).await?;")],
        invariant: "a popped node is freed when no guard protects it any more",
        why: "other threads read the popped node, and its address becomes the top again while they hold its old link",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_push_gives_up",
        structure: Structure::TreiberStack,
        edits: &[(
            "Err(changed) => (top, node) = (changed.current, changed.new),",
            "Err(_) => return Ok(()),",
        )],
        invariant: "a push returns when its value is on the stack",
        why: "a value whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_trusts_its_guess",
        structure: Structure::TreiberStack,
        edits: &[("guessed.filter(|_| top == guess)", "guessed.filter(|_| true)")],
        invariant: "the link of a pop's CAS is that of the node which the CAS expects",
        why: "the peeked node is not the top, or was freed",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_pops_without_a_guard",
        structure: Structure::TreiberStack,
        edits: &[(
            "\
                let g = &ct.pin();
                let mut backoff = ct.backoff();
                let guess = self.known.get();
                let guessed = (!guess.is_null()).then(|| op::peek(guess));
                let (mut top, guessed) = g.chain((op::load(self.top()), guessed)).submit().await?;
                let mut guessed = guessed.filter(|_| top == guess);
                while !top.is_null() {
                    let node = match guessed.take() {
                        Some(seen) => seen?,
                        None => top.read(g).await?,
                    };",
            "\
                let mut backoff = ct.backoff();
                let seen = self.top().load(&ct.pin()).await?.as_ptr();
                ct.sleep(std::time::Duration::from_micros(5)).await;
                let g = &ct.pin();
                let mut top = seen.shared(g);
                while !top.is_null() {
                    let node = top.read(g).await?;",
        )],
        invariant: "a pointer is used only under the guard under which it was read",
        why: "while the thread sleeps without a guard another thread pops the node, and it is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_unlinks_under_the_next_guard",
        structure: Structure::TreiberStack,
        edits: &[(
            "pub async fn pop(&self, ct: &ComputeThread) -> Result<Option<T>> {",
            "\
                pub async fn pop(&self, ct: &ComputeThread) -> Result<Option<T>> {
                    let (top, next, value) = {
                        let g = &ct.pin();
                        let top = self.top().load(g).await?;
                        if top.is_null() {
                            return Ok(None);
                        }
                        let node = top.read(g).await?;
                        g.sched_reclaim(top).await?;
                        (top.as_ptr(), node.next.as_ptr(), node.value)
                    };
                    let g = &ct.pin();
                    match self.top().compare_exchange(g, top.shared(g), next).await? {
                        Ok(_) => Ok(Some(value)),
                        Err(_) => self.pop_another(ct).await,
                    }
                }
                async fn pop_another(&self, ct: &ComputeThread) -> Result<Option<T>> {",
        )],
        invariant: "a node is unlinked before it is retired",
        why: "a thread whose guard is younger than the retirement can still reach the node, and retires it again if its CAS wins",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_push_keeps_old_link",
        structure: Structure::TreiberStack,
        edits: &[("node.set(|node| node.next(), top);", "")],
        invariant: "a pushed node links to the top that its CAS expects",
        why: "values pushed since the first attempt are skipped",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_pop_gives_up",
        structure: Structure::TreiberStack,
        edits: &[("Err(changed) => top = changed.current,", "Err(_) => return Ok(None),")],
        invariant: "a pop that finds the stack empty has read a null top",
        why: "a pop whose CAS failed returns that the stack is empty",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_forgets_to_retire",
        structure: Structure::TreiberStack,
        edits: &[("g.sched_reclaim(top).await?;", "")],
        invariant: "a popped node is retired",
        why: "no thread frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_retires_the_new_top",
        structure: Structure::TreiberStack,
        edits: &[("g.sched_reclaim(top).await?;", "if !next.is_null() { g.sched_reclaim(next).await?; }")],
        invariant: "the retired node is the popped one",
        why: "the new top is freed while it is on the stack",
        caught_by: Check::Memory,
        needs_faults: false,
    },
];
