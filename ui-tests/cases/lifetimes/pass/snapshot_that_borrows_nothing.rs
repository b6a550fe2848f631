//! A snapshot read under a guard of the statement may be kept, unless one of its values is bound to the guard.

use farfield::prelude::*;

#[remote]
struct Account<K: Word, const N: usize> {
    id: K,
    balance: Atomic<i64>,
    limits: [u32; N],
    lock: Lock,
    window: Versioned<[u64; 2]>,
    parent: RemotePtr<Account<K, N>>,
}

/// No lifetime: nothing in it is bound to a guard.
type Seen = AccountSnapshot<u64, 2>;

#[farfield::main]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    let init = Account::<u64, 2>::init(7, [1, 2], [3, 4], RemotePtr::NULL).balance(5);
    let account = Account::new_in(ct, init).await?.write(ct).await?;
    let seen: Seen = account.read(&ct.pin()).await?;
    let (id, balance) = farfield::fetch!(&ct.pin(), account.{id, balance}).await?;
    let key = account.id().read(&ct.pin()).await?;
    assert_eq!((seen.id, seen.balance, seen.limits, id, balance, key), (7, 5, [1, 2], 7, 5, 7));
    Ok(())
}
