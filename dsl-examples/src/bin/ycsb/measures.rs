//! Latencies and round trips by kind of operation, as histograms of three significant digits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farfield::Error;
use farfield::prelude::*;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use crate::mix::Kind;

const DIGITS: u8 = 3;

/// The histograms of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// In nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// The chains that an operation posts: each is a round trip, unless the operation does not wait for it.
    pub(crate) round_trips: Histogram<u64>,
}

impl Measure {
    fn new() -> Result<Self> {
        let histogram = || Histogram::new(DIGITS).map_err(Error::other);
        Ok(Self { latency: histogram()?, round_trips: histogram()? })
    }
}

/// The histograms of all kinds that have been measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measures([Option<Box<Measure>>; Kind::ALL.len()]);

impl Measures {
    pub(crate) fn get(&self, kind: Kind) -> Option<&Measure> {
        self.0[kind as usize].as_deref()
    }

    fn of(&mut self, kind: Kind) -> Result<&mut Measure> {
        let measure = &mut self.0[kind as usize];
        if measure.is_none() {
            *measure = Some(Box::new(Measure::new()?));
        }
        measure.as_deref_mut().ok_or_else(|| Error::other("no histogram"))
    }

    fn record(&mut self, kind: Kind, latency: Duration, round_trips: u64) -> Result<()> {
        let measure = self.of(kind)?;
        measure.latency.record(latency.as_nanos() as u64).map_err(Error::other)?;
        measure.round_trips.record(round_trips).map_err(Error::other)
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        for kind in Kind::ALL {
            if let Some(other) = other.get(kind) {
                let measure = self.of(kind)?;
                measure.latency.add(&other.latency).map_err(Error::other)?;
                measure.round_trips.add(&other.round_trips).map_err(Error::other)?;
            }
        }
        Ok(())
    }

    /// Returns the histograms in the format of `HdrHistogram`, each with the number by which [`decode`](Self::decode) knows it.
    pub(crate) fn encode(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut encoded = Vec::new();
        for kind in Kind::ALL {
            let Some(Measure { latency, round_trips }) = self.get(kind) else { continue };
            for (index, histogram) in [latency, round_trips].into_iter().enumerate() {
                let mut bytes = Vec::new();
                V2Serializer::new().serialize(histogram, &mut bytes).map_err(Error::other)?;
                encoded.push((2 * kind as u64 + index as u64, bytes));
            }
        }
        Ok(encoded)
    }

    /// Adds a histogram of another process.
    pub(crate) fn decode(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        let kind =
            Kind::ALL.get((number / 2) as usize).ok_or_else(|| Error::other("an unknown histogram"))?;
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut &bytes[..]).map_err(Error::other)?;
        let measure = self.of(*kind)?;
        let into = if number.is_multiple_of(2) { &mut measure.latency } else { &mut measure.round_trips };
        into.add(histogram).map_err(Error::other)
    }
}

/// The histograms of a process. Threads share one of a few, so that memory is bounded also for many simulated threads.
#[derive(Debug)]
pub(crate) struct Stripes(Vec<Stripe>);

/// A thread's lock is not in the cache line of another's.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Stripe(Mutex<Measures>);

const STRIPES: u64 = 64;

impl Stripes {
    pub(crate) fn new(threads: u64) -> Self {
        Self((0..threads.min(STRIPES)).map(|_| Stripe::default()).collect())
    }

    /// Records an operation of a thread.
    pub(crate) fn record(&self, thread: usize, kind: Kind, latency: Duration, trips: u64) -> Result<()> {
        let Stripe(measures) = &self.0[thread % self.0.len()];
        measures.lock().unwrap_or_else(PoisonError::into_inner).record(kind, latency, trips)
    }

    /// Returns the sums of all threads.
    pub(crate) fn merged(&self) -> Result<Measures> {
        let mut merged = Measures::default();
        for Stripe(measures) in &self.0 {
            merged.merge(&measures.lock().unwrap_or_else(PoisonError::into_inner))?;
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_of_several_processes_are_merged() {
        let mut parts = [(); 2].map(|()| Measures::default());
        for number in 1..=1000 {
            let part = &mut parts[number as usize % 2];
            part.record(Kind::Read, Duration::from_nanos(number), number % 3).unwrap();
        }
        parts[1].record(Kind::Insert, Duration::from_secs(100_000), 7).unwrap();
        let mut merged = Measures::default();
        for part in &parts {
            for (number, bytes) in part.encode().unwrap() {
                merged.decode(number, &bytes).unwrap();
            }
        }
        let read = merged.get(Kind::Read).unwrap();
        assert_eq!((read.latency.len(), read.latency.value_at_quantile(0.5)), (1000, 500));
        assert_eq!((read.latency.max(), read.round_trips.max()), (1000, 2));
        assert_eq!(merged.get(Kind::Insert).unwrap().latency.len(), 1);
        assert!(merged.get(Kind::Scan).is_none());
        assert!(merged.decode(12, &[]).is_err() && merged.decode(0, b"no histogram").is_err());
    }

    #[test]
    fn a_histogram_has_room_in_a_byte_string() {
        let mut measures = Measures::default();
        for exponent in 0..40 {
            for step in 0..1024_u64 {
                let latency = Duration::from_nanos((1024 + step) << exponent);
                measures.record(Kind::Read, latency, 1).unwrap();
            }
        }
        let longest = measures.encode().unwrap().iter().map(|(_, bytes)| bytes.len()).max();
        assert!(longest.is_some_and(|bytes| bytes < Blob::MAX_BYTES / 2), "{longest:?}");
    }
}
