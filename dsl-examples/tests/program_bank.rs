//! A bank: transfers take the locks of both accounts at once, in any order; a transfer from an account to itself is refused by
//! the locks, not by a check that somebody has to remember.

use farfield::Error;
use farfield::prelude::*;

// ANCHOR: bank
#[remote]
struct Account {
    lock: Lock,
    balance: Atomic<u64>,
}

/// Why a transfer was not made.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    SameAccount,
    NotEnough,
}

/// Moves money from one account to another.
async fn transfer(
    from: RemotePtr<Account>,
    to: RemotePtr<Account>,
    amount: u64,
    ct: &ComputeThread,
) -> farfield::Result<Result<(), Refused>> {
    let g = &ct.pin();
    let both = [(from.lock(), from.shared(g)), (to.lock(), to.shared(g))];
    let [(from_lock, from_seen), (to_lock, to_seen)] = match g.lock_and_read(both).await {
        Ok(locked) => locked,
        // The same lock twice would never be had.
        Err(Error::LockTakenTwice(_)) => return Ok(Err(Refused::SameAccount)),
        Err(error) => return Err(error),
    };
    if from_seen.balance < amount {
        // The guards are dropped, and both locks released.
        return Ok(Err(Refused::NotEnough));
    }
    // One round trip: who takes either lock next sees both new balances.
    let mut chain = g.chain();
    chain.store(from.balance(), from_seen.balance - amount);
    chain.store(to.balance(), to_seen.balance + amount);
    chain.release(from_lock);
    chain.release(to_lock);
    chain.submit().await?;
    Ok(Ok(()))
}
// ANCHOR_END: bank

const ACCOUNTS: usize = 4;
const MONEY: u64 = 1000;

async fn accounts(ct: &ComputeThread) -> farfield::Result<Vec<RemotePtr<Account>>> {
    let mut accounts = Vec::new();
    for number in 0..ACCOUNTS {
        let open = async || Account::new_in(ct, Account::init().balance(MONEY)).await?.write(ct).await;
        accounts.push(ct.root_or_init(&format!("account {number}"), open).await?);
    }
    Ok(accounts)
}

async fn sum(accounts: &[RemotePtr<Account>], ct: &ComputeThread) -> farfield::Result<u64> {
    let mut sum = 0;
    for account in accounts {
        assert!(!account.lock().state(ct).await?.is_held());
        sum += account.balance().load(ct).await?;
    }
    Ok(sum)
}

/// Three threads of two tasks each make transfers between any two accounts, also between an account and itself.
fn many_transfers(url: &str) {
    let cluster = Cluster::connect(url).unwrap();
    let run = cluster.run(3, async |ct| {
        let accounts = accounts(ct).await?;
        ct.tasks(2, async |task| {
            for round in 0..40 {
                let [from, to] =
                    [round * (task + 1) + ct.index(), round + task].map(|number| number % ACCOUNTS);
                let made = transfer(accounts[from], accounts[to], 7, ct).await?;
                assert_eq!(made == Err(Refused::SameAccount), from == to, "{made:?}");
            }
            Ok(())
        })
        .await?;
        ct.barrier("done").await?;
        sum(&accounts, ct).await
    });
    assert_eq!(run.unwrap(), [ACCOUNTS as u64 * MONEY; 3], "{url}: no money is made or lost");
}

#[test]
fn money_stays_and_no_transfer_locks_an_account_twice() {
    for url in ["local:", "local:delay=3", "sim:jitter=50%"] {
        many_transfers(url);
    }
}

#[farfield::test]
async fn a_lock_that_the_caller_holds_is_refused_too(ct: &ComputeThread) -> farfield::Result<()> {
    let accounts = accounts(ct).await?;
    let audit = accounts[0].lock().acquire(ct).await?;
    // It would wait for itself.
    assert_eq!(transfer(accounts[1], accounts[0], 1, ct).await?, Err(Refused::SameAccount));
    audit.release().await?;
    assert_eq!(transfer(accounts[1], accounts[0], 1, ct).await?, Ok(()));
    assert_eq!(transfer(accounts[1], accounts[0], 2 * MONEY, ct).await?, Err(Refused::NotEnough));
    assert_eq!(accounts[0].balance().load(ct).await?, MONEY + 1);
    Ok(())
}
