#![deny(warnings)]

use farfield::Message;
use farfield::prelude::*;

/// A message with every kind of field.
#[derive(Debug, Message)]
pub enum Change<T> {
    Nothing,
    Push(T),
    Insert { at: u64, r#as: Vec<(T, String)> },
}

/// A struct of messages.
#[derive(Message)]
#[message(crate = ::farfield)]
pub struct Summary {
    length: u64,
    name: Option<String>,
}

/// The elements of a list.
pub struct List<T, const N: usize> {
    elements: Vec<T>,
}

pub type StringList = List<String, 8>;

#[delegated(client = ListHandle, crate = ::farfield)]
impl<T: Message + PartialEq, const N: usize> List<T, N>
where
    T: Clone,
{
    #[allow(dead_code)]
    const MOST: usize = N;

    /// Not requested: there is no value.
    pub fn new() -> Self {
        Self { elements: Vec::with_capacity(N) }
    }

    /// Takes every kind of argument.
    pub fn change(
        &mut self,
        context: &Context<'_>,
        change: Change<T>,
        mut ct: u64,
        (value, _): (u64, bool),
        r#type: [u8; N],
        logs: Vec<Trust<List<u64, 1>>>,
    ) -> std::result::Result<Summary, String> {
        ct +=
            value + u64::from(r#type[0]) + logs.len() as u64 + u64::from(context.caller().number().get() > 0);
        match change {
            Change::Nothing => {}
            Change::Push(element) => self.elements.push(element),
            Change::Insert { at, r#as } => {
                let at = usize::try_from(at).map_err(|error| error.to_string())?;
                r#as.into_iter().for_each(|(element, _)| self.elements.insert(at, element));
            }
        }
        Ok(Summary { length: self.elements.len() as u64, name: Some(format!("{ct}")) })
    }

    pub(crate) fn contains(&self, element: T) -> bool {
        self.elements.contains(&element)
    }

    fn clear(self: &mut Self) {
        self.elements.clear();
    }

    /// Requests methods of other lists, also ones of its own name.
    fn clear_all(
        &mut self,
        context: &Context<'_>,
        others: Vec<ListHandle<T, N>>,
        last: inner::CounterClient,
    ) {
        for other in &others {
            let _ = other.via(context).clear().post();
        }
        let requests: inner::CounterRequests<'_> = last.via(context);
        let request = requests.add(others.len() as u64);
        let _ = request.apply_then(|sum: Result<u64>, _: &farfield::Reaction<'_>| drop(sum));
        let _ = requests.add(0).post();
    }
}

mod inner {
    /// Visible in the crate only.
    #[derive(Default)]
    pub(super) struct Counter(u64);

    #[farfield::delegated]
    impl Counter {
        pub(super) fn add(&mut self, n: u64) -> u64 {
            self.0 += n;
            self.0
        }
    }
}

#[farfield::main(threads = 2)]
async fn main(ct: &ComputeThread) -> Result<()> {
    if ct.index() == 0 {
        let list = ListHandle::entrust(ct, StringList::new()).await?;
        ct.publish("list", Trust::from(list).store(ct).await?).await?;
        let counter = inner::CounterClient::entrust(ct, inner::Counter::default()).await?;
        ct.publish("counter", Trust::from(counter).store(ct).await?).await?;
    }
    ct.barrier("published").await?;
    let list = ListHandle::<String, 8>::open(ct.lookup("list").await?, ct).await?;
    if ct.index() == 1 {
        let insert = Change::Insert { at: 0, r#as: vec![("a".to_owned(), String::new())] };
        let changed = list.change(ct, insert, 1, (2, true), [3; 8], vec![]).await?;
        assert!(changed.is_ok_and(|now| now.length == 1 && now.name.as_deref() == Some("7")));
        assert!(list.contains(ct, "a".to_owned()).await?);
        list.clear(ct).await?;
        assert_eq!(list.apply(ct, (), |list, ()| list.elements.len() as u64).await?, 0);
    }
    let counter = inner::CounterClient::open(ct.lookup("counter").await?, ct).await?;
    list.clear_all(ct, vec![list.clone()], counter.clone()).await?;
    assert!(counter.add(ct, 5).await? <= 12);
    ct.barrier("done").await
}
