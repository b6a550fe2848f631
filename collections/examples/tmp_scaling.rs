use farfield::prelude::*;
use farfield_collections::HashMap;
fn main() -> farfield::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let (threads, records, ops, updates, zipf): (usize, u64, u64, u32, bool) = (
        args[1].parse().unwrap(),
        args[2].parse().unwrap(),
        args[3].parse().unwrap(),
        args[4].parse().unwrap(),
        args[5] == "zipf",
    );
    let url = "sim:nodes=16,size=64MiB,reclaim=lazy";
    let cluster = Cluster::connect(url)?;
    // Zipf by inversion over a table
    let mut cdf = Vec::new();
    let mut sum = 0.0;
    for i in 1..=records {
        sum += 1.0 / (i as f64).powf(0.99);
        cdf.push(sum);
    }
    let cdf = &cdf;
    let out = cluster.run(threads, async |ct| {
        let root = ct.root_or_init("map", async || HashMap::<u64, u64>::create(ct).await).await?;
        let map = HashMap::attach(root, ct).await?;
        let (me, n) = (ct.index() as u64, ct.threads() as u64);
        let mine = (0..records).filter(|k| k % n == me).collect::<Vec<_>>();
        ct.tasks(8, async |t| {
            for k in mine.iter().skip(t).step_by(8) {
                map.insert(k, k, ct).await?;
            }
            Ok(())
        })
        .await?;
        ct.barrier("loaded").await?;
        // warm
        let keys: Vec<u64> = (0..3000.min(records)).map(|i| i * 37 % records).collect();
        ct.tasks(8, async |t| {
            for k in keys.iter().skip(t).step_by(8) {
                map.contains(k, ct).await?;
            }
            Ok(())
        })
        .await?;
        let before = map.counters();
        ct.barrier("warm").await?;
        let t0 = ct.now();
        for _ in 0..ops {
            let k = if zipf {
                let x = f64::from(ct.random::<u32>()) / 4294967296.0 * sum;
                (cdf.partition_point(|c| *c < x) as u64).wrapping_mul(0x9e3779b97f4a7c15) % records
            } else {
                ct.random_range(0..records)
            };
            if ct.random_range(0..100_u32) < updates {
                map.update(&k, &me, ct).await?;
            } else {
                map.get(&k, ct).await?;
            }
        }
        let t = (ct.now() - t0).as_secs_f64();
        ct.barrier("done").await?;
        let c = map.counters();
        if me == 0 {
            println!("{before:?}\n{c:?}");
        }
        Ok((ops as f64 / t, c.retries - before.retries, c.overtaken, t))
    })?;
    let total: f64 = out.iter().map(|r| r.0).sum();
    println!(
        "threads {threads} {:.3} Mops/s retries {} overtaken {}",
        total / 1e6,
        out.iter().map(|r| r.1).sum::<u64>(),
        out.iter().map(|r| r.2).sum::<u64>()
    );
    std::process::exit(0);
}
