//! What a store reports to a subscriber of `tracing`.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use farfield::prelude::*;
use farfield_kv::{Options, Store};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The numbers of an event, and its message.
#[derive(Clone, Debug, Default)]
struct Reported {
    message: String,
    numbers: HashMap<&'static str, u64>,
}

impl Visit for Reported {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

/// Keeps the events of this crate.
struct Events(Arc<Mutex<Vec<Reported>>>);

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("farfield_kv")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut reported = Reported::default();
        event.record(&mut reported);
        self.0.lock().unwrap().push(reported);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn openings_evictions_rebuilds_and_the_end_are_reported() {
    let options = Options::new(400_000, 8 << 20);
    let events = Arc::default();
    // The simulator runs all threads on this one.
    let run = tracing::subscriber::with_default(Events(Arc::clone(&events)), || {
        Cluster::connect("sim:size=32MiB").unwrap().run(1, async |ct| {
            let store = Store::open("store", &options, ct).await?;
            for number in 0..6000_u64 {
                let key = (u128::from(number) % 1500).to_le_bytes();
                store.write(&key, &[number as u8; 400], false, ct).await?;
            }
            ct.flush().await?;
            Ok(store.stats())
        })
    });
    let stats = run.unwrap()[0];
    assert!(stats.evicted_pages > 0 && stats.rebuilt_pages > 0, "{stats:?}");
    let events = events.lock().unwrap();
    let of = |message: &str| events.iter().filter(|event| event.message == message).collect::<Vec<_>>();
    assert_eq!(of("a page was evicted").len() as u64, stats.evicted_pages);
    assert_eq!(of("a page was rebuilt").len() as u64, stats.rebuilt_pages);
    let (opened, closed) = (of("a store was opened"), of("a store was closed"));
    assert_eq!((opened.len(), closed.len()), (1, 1));
    assert_eq!((opened[0].numbers["records"], opened[0].numbers["torn_records"]), (0, 0));
    assert_eq!((closed[0].numbers["records"], closed[0].numbers["pages"]), (1500, stats.pages));
}
