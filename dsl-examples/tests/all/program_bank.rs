//! A bank: transfers take the locks of both accounts together, in any order. The runtime refuses to take an account's lock twice, so the
//! program needs no check for a transfer from an account to itself. The bank is compared with a sequential model, which finds two planted
//! mistakes.

use farfield::Error;
use farfield::prelude::*;
use farfield::sim::Happened;
use farfield_testing::{Check, Checker, Faults, Model, Random, Tested, run};

// ANCHOR: bank
#[remote]
struct Account {
    lock: Lock,
    balance: Atomic<u64>,
}

/// The reason why a transfer was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        // An account's lock cannot be taken twice.
        Err(Error::LockTakenTwice(_)) => return Ok(Err(Refused::SameAccount)),
        Err(error) => return Err(error),
    };
    if from_seen.balance < amount {
        // Dropping the guards releases both locks.
        return Ok(Err(Refused::NotEnough));
    }
    // One round trip: the next owner of either lock sees both new balances.
    let from_balance = op::store(from.balance(), from_seen.balance - amount);
    let to_balance = op::store(to.balance(), to_seen.balance + amount);
    g.chain((from_balance, to_balance, op::release(from_lock), op::release(to_lock))).submit().await?;
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
fn the_sum_stays_and_no_transfer_locks_an_account_twice() {
    for url in ["local:", "local:delay=3", "sim:jitter=50%"] {
        many_transfers(url);
    }
}

#[farfield::test]
async fn a_lock_that_the_caller_holds_is_refused_too(ct: &ComputeThread) -> farfield::Result<()> {
    let accounts = accounts(ct).await?;
    let audit = accounts[0].lock().acquire(ct).await?;
    // The task would wait for itself.
    assert_eq!(transfer(accounts[1], accounts[0], 1, ct).await?, Err(Refused::SameAccount));
    audit.release().await?;
    assert_eq!(transfer(accounts[1], accounts[0], 1, ct).await?, Ok(()));
    assert_eq!(transfer(accounts[1], accounts[0], 2 * MONEY, ct).await?, Err(Refused::NotEnough));
    assert_eq!(accounts[0].balance().load(ct).await?, MONEY + 1);
    Ok(())
}

// ANCHOR: ledger
/// An operation of the bank.
#[derive(Clone, Debug, PartialEq)]
enum Business {
    Transfer { from: usize, to: usize, amount: u64 },
    Balance(usize),
    Audit,
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Made,
    Refused(Refused),
    Balance(u64),
    Balances([u64; ACCOUNTS]),
}

/// The sequential model of the bank.
struct Ledger;

impl Model for Ledger {
    type Operation = Business;
    type Returned = Told;
    type State = [u64; ACCOUNTS];

    fn initial() -> [u64; ACCOUNTS] {
        [MONEY; ACCOUNTS]
    }

    fn step(balances: &mut [u64; ACCOUNTS], business: &Business) -> Told {
        match *business {
            Business::Transfer { from, to, .. } if from == to => Told::Refused(Refused::SameAccount),
            Business::Transfer { from, amount, .. } if balances[from] < amount => {
                Told::Refused(Refused::NotEnough)
            }
            Business::Transfer { from, to, amount } => {
                balances[from] -= amount;
                balances[to] += amount;
                Told::Made
            }
            Business::Balance(account) => Told::Balance(balances[account]),
            Business::Audit => Told::Balances(*balances),
        }
    }
}
// ANCHOR_END: ledger

/// Reads all balances under all locks.
async fn audit(accounts: &[RemotePtr<Account>], ct: &ComputeThread) -> farfield::Result<[u64; ACCOUNTS]> {
    let g = &ct.pin();
    let all: [_; ACCOUNTS] =
        std::array::from_fn(|number| (accounts[number].lock(), accounts[number].shared(g)));
    Ok(g.lock_and_read(all).await?.map(|(_, seen)| seen.balance))
}

/// Reads one balance after the other: money that is transferred meanwhile is counted twice, or not at all.
async fn hasty_audit(
    accounts: &[RemotePtr<Account>],
    ct: &ComputeThread,
) -> farfield::Result<[u64; ACCOUNTS]> {
    let mut balances = [0; ACCOUNTS];
    for (balance, account) in balances.iter_mut().zip(accounts) {
        *balance = account.balance().load(ct).await?;
    }
    Ok(balances)
}

/// Takes only the payer's lock, so one of two payments to an account may be lost.
async fn careless_transfer(
    from: RemotePtr<Account>,
    to: RemotePtr<Account>,
    amount: u64,
    ct: &ComputeThread,
) -> farfield::Result<Result<(), Refused>> {
    let g = &ct.pin();
    if from == to {
        return Ok(Err(Refused::SameAccount));
    }
    let [(lock, seen)] = g.lock_and_read([(from.lock(), from.shared(g))]).await?;
    if seen.balance < amount {
        return Ok(Err(Refused::NotEnough));
    }
    let there = to.balance().load(ct).await?;
    let balances =
        (op::store(from.balance(), seen.balance - amount), op::store(to.balance(), there + amount));
    g.chain((balances, op::release(lock))).submit().await?;
    Ok(Ok(()))
}

/// The bank, with or without a mistake.
struct Bank<const TRANSFERS_CARELESSLY: bool, const AUDITS_HASTILY: bool>;

impl<const CARELESS: bool, const HASTY: bool> Tested for Bank<CARELESS, HASTY> {
    type Model = Ledger;
    type Structure = Vec<RemotePtr<Account>>;

    async fn open(ct: &ComputeThread) -> farfield::Result<Vec<RemotePtr<Account>>> {
        accounts(ct).await
    }

    async fn perform(
        accounts: &Vec<RemotePtr<Account>>,
        business: &Business,
        ct: &ComputeThread,
    ) -> farfield::Result<Told> {
        Ok(match *business {
            Business::Transfer { from, to, amount } => {
                let [from, to] = [accounts[from], accounts[to]];
                let made = if CARELESS {
                    careless_transfer(from, to, amount, ct).await?
                } else {
                    transfer(from, to, amount, ct).await?
                };
                made.map_or_else(Told::Refused, |()| Told::Made)
            }
            // A transfer changes both balances under both locks, so one lock is enough to read one.
            Business::Balance(account) => {
                let g = &ct.pin();
                let account = (accounts[account].lock(), accounts[account].shared(g));
                let [(_, seen)] = g.lock_and_read([account]).await?;
                Told::Balance(seen.balance)
            }
            Business::Audit if HASTY => Told::Balances(hasty_audit(accounts, ct).await?),
            Business::Audit => Told::Balances(audit(accounts, ct).await?),
        })
    }

    fn operation(random: &mut Random) -> Business {
        let mut account = || random.range(0..ACCOUNTS as u64) as usize;
        let [from, to] = [account(), account()];
        match random.range(0..10) {
            0..6 => Business::Transfer { from, to, amount: random.one_of(&[1, 10, 600]) },
            6..8 => Business::Balance(from),
            _ => Business::Audit,
        }
    }

    fn simpler(business: &Business) -> Vec<Business> {
        match *business {
            Business::Transfer { from, to, amount } if amount > 1 => {
                vec![Business::Transfer { from, to, amount: 1 }]
            }
            _ => vec![],
        }
    }
}

#[test]
fn the_bank_does_what_its_model_does() {
    Checker::new().assert_sound::<Bank<false, false>>();
    // The runs have transfers that are refused for each reason, and audits.
    let told: Vec<Told> = (0..20)
        .flat_map(|seed| run::<Bank<false, false>>(&Bank::<false, false>::plan(seed, Faults::None)).history)
        .filter_map(|event| match event.happened {
            Happened::Returned(told) => Some(told),
            Happened::Invoked(_) => None,
        })
        .collect();
    for expected in [Told::Made, Told::Refused(Refused::SameAccount), Told::Refused(Refused::NotEnough)] {
        assert!(told.contains(&expected), "{expected:?}");
    }
    assert!(told.iter().any(|told| matches!(told, Told::Balances(_))));
}

/// The failure of a bank, shrunk to `operations` operations at most.
fn failure<T: Tested>(operations: usize) -> String {
    let summary = Checker::new().run::<T>();
    let shrunk = summary.shrunk.as_ref().unwrap_or_else(|| panic!("it is not found: {summary}"));
    assert_eq!(shrunk.found.by, Check::Linearizability, "{summary}");
    assert!(shrunk.is_smallest, "{summary}");
    assert_eq!(shrunk.plan.operations().count(), operations, "{summary}");
    summary.to_string()
}

#[test]
fn a_transfer_that_takes_one_lock_only_is_found() {
    // Two concurrent payments with an account in common, and an audit.
    let shown = failure::<Bank<true, false>>(3);
    assert!(shown.contains("Transfer"), "{shown}");
}

#[test]
fn an_audit_without_locks_is_found() {
    let text = failure::<Bank<false, true>>(2);
    assert!(text.contains("`Audit` of thread"), "{text}");
    // From the plan on.
    let smallest = text.split_once("runs:\n\n").map_or(text.as_str(), |(_, smallest)| smallest);
    let smallest = smallest.split("\n\nto replay").next().unwrap_or_default();
    shown("audit.txt", &format!("{smallest}\n"));
}

/// Compares a text of the book's chapter "Checking a structure of your own" with the output. `FARFIELD_BLESS=1` writes it anew.
fn shown(page: &str, text: &str) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/checking").join(page);
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(&page, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap_or_default(), text, "{}", page.display());
}
