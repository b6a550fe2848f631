//! A configuration record of several words. It is read whole or not at all, even if its writer dies in the middle of a write.

use farfield::Error;
use farfield::prelude::*;
use farfield::sim::Fault;
use std::time::Duration;

// ANCHOR: config
/// The settings of all threads, which must be consistent with each other.
#[remote]
struct Config {
    settings: Versioned<[u64; 4]>,
}

/// The default settings.
const DEFAULTS: [u64; 4] = [1, 10, 100, 1000];

/// Reads the settings. If a dead writer has left them half-written, the defaults replace them.
async fn settings(config: RemotePtr<Config>, ct: &ComputeThread) -> farfield::Result<[u64; 4]> {
    loop {
        match config.settings().read(ct).await {
            Err(Error::HalfWritten(_)) => config.settings().write(ct, DEFAULTS).await?,
            other => return other,
        }
    }
}
// ANCHOR_END: config

/// Consistent settings: each is ten times the one before.
fn generation(number: u64) -> [u64; 4] {
    [1, 10, 100, 1000].map(|scale| number * scale)
}

async fn config(ct: &ComputeThread) -> farfield::Result<RemotePtr<Config>> {
    let make = async || Config::new_in(ct, Config::init(generation(1))).await?.write(ct).await;
    ct.root_or_init("config", make).await
}

/// Thread 0 writes one generation after the other, and dies at a time given by `number`. Returns whether a reader fell back to the
/// defaults.
fn a_writer_dies(number: u64) -> farfield::Result<bool> {
    let url = format!("sim:seed={number},jitter=50%");
    let cluster = Cluster::connect(&url)?;
    // In one of the two chains of a write, or between them.
    let death = Duration::from_micros(50) + Duration::from_nanos(271 * number);
    cluster.simulation().expect("it is simulated").inject(Fault::crash(0).at(death));
    let ended = cluster.run_surviving(3, async |ct| {
        let config = config(ct).await?;
        if ct.index() == 0 {
            for next in 2.. {
                config.settings().write(ct, generation(next)).await?;
            }
        }
        let (mut last, mut fell_back) = (1, false);
        while ct.now() < death + Duration::from_micros(200) {
            let seen = settings(config, ct).await?;
            assert_eq!(seen, generation(seen[0]), "torn");
            if seen[0] < last {
                assert_eq!(seen, DEFAULTS, "it goes back to the defaults only");
                fell_back = true;
            }
            last = seen[0];
        }
        // The dead writer does not keep the next one out.
        ct.sleep(Duration::from_micros(100)).await;
        config.settings().write(ct, generation(7)).await?;
        assert_eq!(settings(config, ct).await?, generation(7));
        Ok(fell_back)
    })?;
    assert!(ended[0].is_none(), "the writer has died");
    Ok(ended.into_iter().flatten().any(|fell_back| fell_back))
}

#[test]
fn readers_see_whole_records_wherever_the_writer_dies() {
    let mut fell_back = 0;
    for seed in 0..200 {
        fell_back += u32::from(a_writer_dies(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}")));
    }
    assert!(
        (10..190).contains(&fell_back),
        "a death leaves it half-written now and then: {fell_back} of 200"
    );
}

#[test]
fn many_threads_read_while_one_writes() {
    for url in ["local:", "local:delay=3"] {
        let run = Cluster::connect(url).unwrap().run(3, async |ct| {
            let config = config(ct).await?;
            for number in 1..=200 {
                if ct.index() == 0 {
                    config.settings().write(ct, generation(number)).await?;
                }
                let seen = settings(config, ct).await?;
                assert_eq!(seen, generation(seen[0]), "torn");
            }
            Ok(())
        });
        run.unwrap();
    }
}
