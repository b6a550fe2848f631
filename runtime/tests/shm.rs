//! Clusters in shared memory: access, the remains of ended processes, and refusals.

#![cfg(target_os = "linux")]

mod skip;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread::JoinHandle;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};
use farfield::prelude::*;
use farfield::{Address, Error, Result};

/// A memory node in this process, with a name of its own.
struct Node {
    name: String,
    stopper: Stopper,
    serves: Option<JoinHandle<Result<()>>>,
}

/// Returns the name of a cluster.
fn name_of(options: &MemoryNodeOptions) -> &str {
    options.listen[0].strip_prefix("shm:").unwrap()
}

fn options(name: &str) -> MemoryNodeOptions {
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}-{}", std::process::id()));
    options.segment_bytes = 1 << 20;
    options
}

impl Node {
    fn serve(options: &MemoryNodeOptions) -> Result<Self> {
        let node = MemoryNode::listen(options)?;
        let stopper = node.stopper()?;
        let serves = std::thread::spawn(move || node.serve());
        Ok(Self { name: name_of(options).to_owned(), stopper, serves: Some(serves) })
    }

    fn new(name: &str) -> Self {
        Self::serve(&options(name)).unwrap()
    }

    fn url(&self) -> String {
        format!("shm:{}", self.name)
    }

    fn connect(&self) -> Cluster {
        Cluster::connect(&self.url()).unwrap()
    }
}

fn refused(url: &str) -> String {
    Cluster::connect(url).map(drop).unwrap_err().to_string()
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopper.stop();
        self.serves.take().unwrap().join().unwrap().unwrap();
        assert!(!directory(&self.name).exists(), "no file remains");
    }
}

fn user_directory() -> PathBuf {
    let own = fs::metadata("/proc/self").unwrap().uid();
    PathBuf::from(format!("/dev/shm/farfield-{own}"))
}

fn directory(name: &str) -> PathBuf {
    user_directory().join(name)
}

#[remote]
struct Counter {
    value: Atomic<u64>,
    lock: Lock,
}

async fn counter(ct: &ComputeThread) -> Result<RemotePtr<Counter>> {
    ct.root_or_init("counter", async || Counter::new_in(ct, Counter::init()).await?.write(ct).await).await
}

#[test]
fn a_later_process_finds_the_roots_of_earlier_ones() {
    let node = Node::new("later");
    for round in 1..=3 {
        let cluster = node.connect();
        assert!(!cluster.is_private());
        let counts = cluster.run(2, async |ct| {
            let counter = counter(ct).await?;
            counter.value().fetch_add(ct, 1).await?;
            ct.barrier("counted").await?;
            counter.value().load(ct).await
        });
        assert_eq!(counts.unwrap(), [2 * round, 2 * round]);
    }
}

#[test]
fn only_the_owner_may_access_the_files() {
    let node = Node::new("files");
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&user_directory()), 0o700);
    assert_eq!(mode(&directory(&node.name)), 0o700);
    assert_eq!(mode(&directory(&node.name).join("in-use")), 0o600);
    let mut files: Vec<_> =
        fs::read_dir(directory(&node.name)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["in-use", "socket"], "the memory is in no directory");
}

/// Returns the descriptors of this process for the memory of its memory node, as paths in `/proc`.
fn memory_of(node: &Node) -> Vec<PathBuf> {
    let is_memory = |path: &PathBuf| {
        let name = format!("/memfd:farfield-{} ", node.name);
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with(&name))
    };
    fs::read_dir(format!("/proc/{}/fd", std::process::id()))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(is_memory)
        .collect()
}

/// A process of the same user can open the memory through another process's descriptor, and write to it. It can not shrink it, which would kill the
/// processes that use it by SIGBUS.
#[test]
fn no_process_can_truncate_the_memory() {
    let node = Node::new("truncate");
    let cluster = node.connect();
    cluster.run(1, async |ct| counter(ct).await?.value().fetch_add(ct, 7).await).unwrap();
    let found = memory_of(&node);
    let [path] = &found[..] else { panic!("the memory node has one descriptor, its client none: {found:?}") };
    let eperm = |refused: std::io::Error| assert_eq!(refused.raw_os_error(), Some(1), "{refused}");
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    for bytes in [0, 4096, 1 << 19, 1 << 30] {
        eperm(file.set_len(bytes).unwrap_err());
    }
    eperm(fs::OpenOptions::new().write(true).truncate(true).open(path).unwrap_err());
    eperm(fs::File::create(path).unwrap_err());
    let status =
        std::process::Command::new("truncate").arg("--no-create").arg("--size=0").arg(path).output().unwrap();
    assert!(!status.status.success());
    let count = cluster.run(2, async |ct| counter(ct).await?.value().load(ct).await);
    assert_eq!(count.unwrap(), [7, 7]);
}

#[test]
fn several_clusters_of_a_process_share_one_memory() {
    let node = Node::new("parts");
    let parts: Vec<Cluster> = (0..3).map(|part| node.connect().in_group("test", part, 3).unwrap()).collect();
    let run = |part: &Cluster| {
        for round in 1..=4 {
            let seen = part.run(2, async |ct| {
                assert_eq!(ct.threads(), 6);
                let counter = counter(ct).await?;
                let lock = counter.lock().acquire(ct).await?;
                let seen = counter.value().load(ct).await?;
                counter.value().store(ct, seen + 1).await?;
                lock.release().await?;
                ct.barrier("counted").await?;
                let sum = counter.value().load(ct).await?;
                ct.barrier("read").await?;
                Ok((ct.index(), sum))
            });
            assert!(seen.unwrap().iter().all(|(_, sum)| *sum == 6 * round));
        }
    };
    std::thread::scope(|scope| {
        for part in &parts {
            scope.spawn(move || run(part));
        }
    });
}

/// Very short runs follow each other without a pause: each process sees that the others have entered the next run.
#[test]
fn short_runs_of_several_processes_follow_each_other() {
    let node = Node::new("short");
    let parts: Vec<Cluster> = (0..3).map(|part| node.connect().in_group("test", part, 3).unwrap()).collect();
    std::thread::scope(|scope| {
        for (part, cluster) in parts.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..100 {
                    let threads = 1 + (round + part) % 2;
                    let met = cluster.run(threads, async |ct| {
                        if round % 10 == 0 {
                            ct.barrier("now and then").await?;
                        }
                        Ok(ct.threads())
                    });
                    let all: usize = (0..3).map(|part| 1 + (round + part) % 2).sum();
                    assert_eq!(met.unwrap(), vec![all; threads], "round {round}");
                }
            });
        }
    });
}

/// A process has one record, so it is in one run of a group at a time. It may have other runs, outside the group, at the same time.
#[test]
fn a_process_is_in_one_run_of_a_group_at_a_time() {
    let node = Node::new("one-joint");
    let cluster = node.connect();
    let part = |cluster: &Cluster, part| cluster.in_group("test", part, 2).unwrap();
    let (has_met, ends) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let (first, second) = (part(&cluster, 0), part(&node.connect(), 1));
        let waits = scope.spawn({
            let (has_met, ends) = (&has_met, &ends);
            move || {
                first.run(1, async |ct| {
                    ct.barrier("met").await?;
                    has_met.wait();
                    ends.wait();
                    Ok(())
                })
            }
        });
        second.run(1, async |ct| ct.barrier("met").await).unwrap();
        has_met.wait();
        let other = cluster.in_group("other", 0, 2).unwrap();
        let error = other.run(1, async |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("one at a time"), "{error}");
        cluster.run(2, async |ct| ct.barrier("met").await).unwrap();
        ends.wait();
        waits.join().unwrap().unwrap();
    });
    let name = cluster.in_group("a/b", 0, 1).unwrap_err().to_string();
    assert!(name.contains("contains `/`"), "{name}");
}

#[test]
fn inconsistent_parts_of_a_group_are_refused() {
    let node = Node::new("misfits");
    let local = Cluster::connect("local:").unwrap();
    assert!(local.in_group("test", 0, 1).is_ok());
    assert!(local.in_group("test", 0, 2).unwrap_err().to_string().contains("private to this process"));
    let cluster = node.connect();
    assert!(cluster.in_group("test", 2, 2).unwrap_err().to_string().contains("part 2 of 2"));
    std::thread::scope(|scope| {
        let first = cluster.in_group("test", 0, 2).unwrap();
        let waits = scope.spawn(move || first.run(1, async |ct| ct.barrier("met").await));
        let run = |part, parts| {
            let cluster = node.connect().in_group("test", part, parts).unwrap();
            cluster.run(1, async |ct| ct.barrier("met").await).map(drop)
        };
        // Until the first process has taken part 0. Before that, the second one takes it and waits.
        while run(0, 2).map_err(|error| error.to_string())
            != Err("group is part 0 of `test`: another process already has this part".to_owned())
        {}
        assert!(run(1, 3).unwrap_err().to_string().contains("another number of parts"));
        run(1, 2).unwrap();
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn a_part_that_ends_breaks_the_barrier() {
    let node = Node::new("ends");
    let run = |part| {
        let cluster = node.connect().in_group("test", part, 2).unwrap();
        cluster.run(1, async |ct| {
            ct.barrier("both").await?;
            if ct.index() == 0 { Ok(()) } else { ct.barrier("never").await }
        })
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run(0));
        let broken = run(1).unwrap_err();
        assert!(matches!(broken, Error::BarrierBroken(_)), "{broken}");
        first.join().unwrap().unwrap();
    });
}

#[test]
fn a_name_is_served_once() {
    let node = Node::new("once");
    let refused = MemoryNode::listen(&options("once")).map(drop).unwrap_err().to_string();
    assert!(refused.contains("serves a cluster of this name already"), "{refused}");
    node.connect();
}

#[test]
fn files_of_a_killed_memory_node_are_removed_once_unused() {
    let options = options("stale");
    let left = directory(name_of(&options));
    fs::create_dir_all(&left).unwrap();
    for path in [&user_directory(), &left] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(left.join("in-use"), "old content").unwrap();
    fs::write(left.join("socket"), "").unwrap();
    // A shared lock, as processes that map the memory take it.
    let used = fs::File::open(left.join("in-use")).unwrap();
    used.lock_shared().unwrap();
    let refused = MemoryNode::listen(&options).map(drop).unwrap_err().to_string();
    assert!(refused.contains("processes still use its memory"), "{refused}");
    assert_eq!(fs::read(left.join("in-use")).unwrap(), b"old content");
    drop(used);
    Node::serve(&options).unwrap().connect();
}

#[test]
fn invalid_options_and_foreign_directories_are_refused_by_name() {
    let absent = format!("shm:absent-{}", std::process::id());
    assert!(refused(&absent).contains("no memory node serves it; start one: farfield memnode"));
    assert!(refused("shm:a/b").contains("`a/b` is not a valid cluster name"));
    let mut large = options("large");
    large.segment_bytes = 1 << 45;
    let said = MemoryNode::listen(&large).map(drop).unwrap_err().to_string();
    assert!(said.contains("no room for 35184372088832 bytes of memory, about "), "{said}");
    assert!(!directory(name_of(&large)).exists());
    for (nodes, segments, bytes, of) in [
        (1, 1, 0, "segment size is 0: "),
        (1, 1, 27_335, "segment size is 27335: "),
        (1, 1, (1 << 48) + 8, "segment size is 281474976710664: "),
        (0, 3, 1 << 20, "number of segments is 0 times 3: "),
        (60_000, 2, 1 << 20, "number of segments is 60000 times 2: "),
        (2, 1000, 1 << 20, "segments is 2000: "),
        (256, 256, 1 << 47, "memory size is 65536 segments of 140737488355328 bytes: "),
    ] {
        (large.nodes, large.segments, large.segment_bytes) = (nodes, segments, bytes);
        let said = MemoryNode::listen(&large).map(drop).unwrap_err().to_string();
        assert!(said.starts_with(of) && !said.contains('\n'), "{said}");
    }
    (large.nodes, large.segments, large.segment_bytes) = (1, 1, 1 << 20);
    large.lease = std::time::Duration::ZERO;
    assert!(MemoryNode::listen(&large).map(drop).unwrap_err().to_string().contains("lease is 0"));

    // A first memory node makes the user's directory.
    drop(MemoryNode::listen(&options("first")).unwrap());
    let open = directory(&format!("open-{}", std::process::id()));
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let url = format!("shm:{}", open.file_name().unwrap().display());
    assert!(refused(&url).contains("users other than its owner may enter"), "{}", refused(&url));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
    if chown(&open, Some(65534), None).is_ok() {
        let mut foreign = options("");
        foreign.listen = vec![url.clone()];
        assert!(
            MemoryNode::listen(&foreign)
                .map(drop)
                .unwrap_err()
                .to_string()
                .contains("belongs to another user: 65534")
        );
        assert!(refused(&url).contains("belongs to another user: 65534"));
    } else {
        skip::skip("root", "only root can change the owner of a directory");
    }
    fs::remove_dir_all(&open).unwrap();
}

#[test]
fn a_client_without_the_secret_is_refused() {
    let file = |name: &str, secret: &str| {
        let path = std::env::temp_dir().join(format!("farfield-{name}-{}", std::process::id()));
        fs::write(&path, secret).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (right, wrong) = (file("right", "open sesame"), file("wrong", "open barley"));
    let mut options = options("secret");
    options.secret_file = Some(right.clone());
    let node = Node::serve(&options).unwrap();
    assert!(refused(&node.url()).contains("the client does not know the cluster's secret"));
    let wrong_url = format!("{}?secret-file={}", node.url(), wrong.display());
    assert!(refused(&wrong_url).contains("the client does not know the cluster's secret"));
    Cluster::connect(&format!("{}?secret-file={}", node.url(), right.display())).unwrap();
    for path in [right, wrong] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn waits_end_with_an_error_when_the_memory_node_ends() {
    let node = Node::new("mortal");
    let cluster = node.connect();
    let waits = std::thread::spawn(move || {
        cluster.run(2, async |ct| {
            let counter = counter(ct).await?;
            if ct.index() == 0 {
                std::mem::forget(counter.lock().acquire(ct).await?);
                counter.value().store(ct, 1).await?;
                ct.barrier("never").await
            } else {
                while counter.value().load(ct).await? == 0 {
                    ct.yield_now().await;
                }
                counter.lock().acquire(ct).await.map(drop)
            }
        })
    });
    drop(node);
    let told = waits.join().unwrap().unwrap_err().to_string();
    assert!(told.contains("its memory node has ended"), "{told}");
}

#[remote]
struct Cell {
    value: u64,
    next: Link<Cell>,
    lock: Lock,
}

/// Publishes a list of `cells` cells. The lock of the first one stays held, as by a thread that died.
async fn chain_of_cells(ct: &ComputeThread, cells: u64) -> Result<()> {
    let g = &ct.pin();
    let mut next = RemotePtr::NULL;
    for value in 0..cells {
        next = Cell::new_in(ct, Cell::init(value).next(next)).await?.write(ct).await?;
    }
    std::mem::forget(next.lock().acquire(g).await?);
    ct.publish("cells", next).await
}

async fn values(ct: &ComputeThread) -> Result<Vec<u64>> {
    let g = &ct.pin();
    let mut at = ct.lookup::<Cell>("cells").await?.shared(g);
    let mut values = Vec::new();
    while !at.is_null() {
        let seen = at.read(g).await?;
        values.push(seen.value);
        at = seen.next;
    }
    Ok(values)
}

/// Two processes with these numbers of threads meet at a barrier.
fn meet(node: &Node, threads: [usize; 2]) {
    std::thread::scope(|scope| {
        for (part, threads) in (0..).zip(threads) {
            scope.spawn(move || {
                let cluster = node.connect().in_group("met", part, 2).unwrap();
                cluster.run(threads, async |ct| ct.barrier("here").await).unwrap();
            });
        }
    });
}

#[test]
fn a_checkpoint_is_restored_with_its_pointers() {
    let file = std::env::temp_dir().join(format!("farfield-checkpoint-{}", std::process::id()));
    let (from, mut large) = (Node::new("from"), options("into"));
    (large.nodes, large.segments) = (2, 2);
    let into = Node::serve(&large).unwrap();
    let before = from.connect().run(1, async |ct| {
        chain_of_cells(ct, 100).await?;
        // A checkpoint leaves out objects that are not reachable from a root.
        Cell::new_in(ct, Cell::init(7)).await?.write(ct).await?;
        values(ct).await
    });
    meet(&from, [2, 2]);
    let source = from.connect();
    let written = source.checkpoint(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), written);

    let target = into.connect();
    for (damage, said) in
        [(0, "no checkpoint"), (5000, "checksum is wrong"), (written as usize - 1, "checksum")]
    {
        let mut bytes = fs::read(&file).unwrap();
        bytes[damage] ^= 1;
        let damaged = file.with_extension("damaged");
        fs::write(&damaged, &bytes).unwrap();
        assert!(target.restore(&damaged).unwrap_err().to_string().contains(said));
        fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
        assert!(target.restore(&damaged).is_err());
        fs::remove_file(&damaged).unwrap();
    }
    target.restore(&file).unwrap();
    assert!(target.restore(&file).unwrap_err().to_string().contains("not empty"));
    let after = target.run(1, async |ct| {
        let live: u64 = ct.heap_use().await?.iter().map(|usage| usage.live_bytes).sum();
        assert_eq!(live, 100 * 24, "the objects reachable from the root, and no others");
        let root = ct.lookup::<Cell>("cells").await?;
        assert!(root.lock().state(ct).await?.is_abandoned(), "its owner is not in this cluster");
        // All free memory can be allocated.
        let mut objects = Vec::new();
        while let Ok(object) = Cell::new_in(ct, Cell::init(1)).await {
            objects.push(object);
        }
        let size: u64 = ct.heap_use().await?.iter().map(|usage| usage.size_bytes).sum();
        assert!(objects.len() as u64 * 24 > size * 99 / 100, "{} of {size}", objects.len() * 24);
        drop(objects);
        values(ct).await
    });
    assert_eq!(after.as_ref().unwrap(), before.as_ref().unwrap());

    drop(target);
    // The first run of a group in this cluster has the number of the first one in the source.
    meet(&into, [1, 2]);

    let mut small = options("small");
    small.segment_bytes = 1 << 19;
    let small = Node::serve(&small).unwrap();
    assert!(small.connect().restore(&file).unwrap_err().to_string().contains("of this size"));
    let mut larger = options("larger");
    larger.segment_bytes = 3 << 20;
    let larger = Node::serve(&larger).unwrap();
    let target = larger.connect();
    target.restore(&file).unwrap();
    let after = target.run(1, async |ct| {
        let found = values(ct).await?;
        // Memory beyond the source's size can be allocated, too.
        while Cell::new_in(ct, Cell::init(1)).await?.write(ct).await?.address().offset() < 2 << 20 {}
        Ok(found)
    });
    assert_eq!(after.as_ref().unwrap(), before.as_ref().unwrap());
    let other = from.connect();
    assert!(source.checkpoint(&file).unwrap_err().to_string().contains("no other process uses"));
    drop(other);
    assert!(Cluster::connect("local:").unwrap().checkpoint(&file).is_err());
    fs::remove_file(&file).unwrap();
}

/// A new folder of this test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("farfield-{name}-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    folder
}

fn make_pipe(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_checkpoint_is_private_and_follows_no_link() {
    let (folder, node) = (folder("private"), Node::new("private"));
    let (file, partial, victim) =
        (folder.join("checkpoint"), folder.join("checkpoint.partial"), folder.join("victim"));
    let cluster = node.connect();
    fs::write(&victim, "precious").unwrap();
    for _ in 0..2 {
        // A link at the partial file's path, as an attacker would place it. The second time, the checkpoint exists.
        std::os::unix::fs::symlink(&victim, &partial).unwrap();
        cluster.checkpoint(&file).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::symlink_metadata(&file).unwrap().mode() & 0o170_777, 0o100_600);
        assert!(fs::symlink_metadata(&partial).is_err(), "the partial file does not remain");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::create_dir(&partial).unwrap();
    let refused = cluster.checkpoint(&file).unwrap_err().to_string();
    assert!(refused.contains("checkpoint.partial"), "{refused}");
    let pipe = folder.join("pipe");
    make_pipe(&pipe);
    let refused = cluster.restore(&pipe).unwrap_err().to_string();
    assert!(refused.contains("it is not a regular file"), "{refused}");
    fs::remove_dir_all(&folder).unwrap();
}

/// A node of a list whose links have all marks that there are.
#[remote(align = 64)]
struct Aligned {
    number: u64,
    #[marks(a, b, c, d, e, f)]
    next: Link<Aligned>,
}

#[test]
fn objects_are_reachable_by_links_with_any_marks() {
    let file = std::env::temp_dir().join(format!("farfield-marked-{}", std::process::id()));
    let (node, other) = (Node::new("marked"), Node::new("marked-restored"));
    let source = node.connect();
    let made = source.run(1, async |ct| {
        let first = Aligned::new_in(ct, Aligned::init(0)).await?.write(ct).await?;
        let (g, mut last) = (ct.pin(), first);
        for (number, marks) in (1..).zip([0b10_0000, 0b00_1000, 0b11_1111]) {
            let next = Aligned::new_in(ct, Aligned::init(number)).await?.write(ct).await?;
            last.next().store(&g, next).await?;
            let marked = last.next().load(&g).await?.with_marks(marks);
            last.next().store(&g, marked).await?;
            last = next;
        }
        ct.publish("first", first).await?;
        let dumped = format!("{:?}", ct.dump("first", 3, 100).await?);
        assert!(
            ["marks: 32", "marks: 8", "marks: 63"].iter().all(|marks| dumped.contains(marks)),
            "{dumped}"
        );
        Ok(())
    });
    made.unwrap();
    source.checkpoint(&file).unwrap();
    let restored = other.connect();
    restored.restore(&file).unwrap();
    fs::remove_file(&file).unwrap();
    for cluster in [source, restored] {
        let found = cluster.run(1, async |ct| {
            let live: u64 = ct.heap_use().await?.iter().map(|usage| usage.live_bytes).sum();
            assert_eq!(live, 4 * 64);
            // They would get the memory of objects that were taken for lost.
            for _ in 0..500 {
                Aligned::new_in(ct, Aligned::init(9)).await?.write(ct).await?;
            }
            let g = ct.pin();
            let mut at = ct.lookup::<Aligned>("first").await?.next().load(&g).await?;
            let mut found = Vec::new();
            while !at.is_null() {
                let node = at.read(&g).await?;
                found.push((node.number, at.marks()));
                at = node.next;
            }
            Ok(found)
        });
        assert_eq!(found.unwrap(), [vec![(1, 0b10_0000), (2, 0b00_1000), (3, 0b11_1111)]]);
    }
}

/// The directory of this user's clusters.
fn clusters() -> PathBuf {
    let me = fs::metadata("/proc/self").unwrap().uid();
    let root = std::env::var_os("FARFIELD_SHM_DIR").map_or_else(|| "/dev/shm".into(), PathBuf::from);
    root.join(format!("farfield-{me}"))
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_without_waiting() {
    // This node creates the directory.
    let _first = Node::new("first");
    let refused = |options: &MemoryNodeOptions| MemoryNode::listen(options).unwrap_err().to_string();
    let linked = options("linked");
    let lock = clusters().join(format!(".{}.lock", name_of(&linked)));
    std::os::unix::fs::symlink("/nowhere", &lock).unwrap();
    assert!(refused(&linked).contains(".lock: "), "{}", refused(&linked));
    fs::remove_file(&lock).unwrap();
    make_pipe(&lock);
    assert!(refused(&linked).contains("it is not a regular file"), "{}", refused(&linked));
    fs::remove_file(&lock).unwrap();

    // The remains of a cluster are removed, also if they are pipes.
    let left = options("left");
    let place = clusters().join(name_of(&left));
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    make_pipe(&place.join("in-use"));
    make_pipe(&place.join("socket"));
    drop(Node::serve(&left).unwrap().connect());

    let folder = folder("secret-pipe");
    let mut guarded = options("guarded");
    guarded.secret_file = Some(folder.join("secret"));
    make_pipe(&folder.join("secret"));
    fs::set_permissions(folder.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused(&guarded).contains("it is not a regular file"), "{}", refused(&guarded));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_cluster_may_have_the_name_of_another_ones_lock_file() {
    let first = Node::new("same");
    let mut second = options("same");
    second.listen[0].push_str(".lock");
    let second = Node::serve(&second).unwrap();
    drop((first.connect(), second.connect()));
}

#[remote]
struct Record {
    state: Versioned<[u64; 3]>,
    lock: Lock,
}

async fn record(ct: &ComputeThread) -> Result<RemotePtr<Record>> {
    ct.root_or_init("record", async || Record::new_in(ct, Record::init([0; 3])).await?.write(ct).await).await
}

/// Leaves the value as a writer that stops in the middle.
async fn stop_in_the_middle(at: RemotePtr<Record>, ct: &ComputeThread) -> Result<()> {
    at.state().write(ct, [5; 3]).await?;
    let word = |address: Address, index: u64| {
        Place::<Atomic<u64>>::from_address(Address::new(address.segment(), address.offset() + 8 * index))
    };
    let lock = at.lock().acquire(ct).await?;
    let token = word(at.lock().address(), 0).load(ct).await?;
    for (index, value) in [token, 7, 99].into_iter().enumerate() {
        word(at.state().address(), index as u64).store(ct, value).await?;
    }
    Ok(lock.release().await?)
}

/// Readers get an error until the value is written again, also in a cluster into which it is restored.
#[test]
fn a_value_that_a_process_has_left_half_written_is_written_anew() {
    let file = std::env::temp_dir().join(format!("farfield-half-written-{}", std::process::id()));
    let (node, other) = (Node::new("half"), Node::new("half-restored"));
    let reader = node.connect();
    let writer = node.connect().run(1, async |ct| {
        stop_in_the_middle(record(ct).await?, ct).await?;
        Ok(ct.id())
    });
    let writer = writer.unwrap()[0];
    let half_written_by = |error: Error| match error {
        Error::HalfWritten(half) => half.writer,
        other => panic!("{other}"),
    };
    for _ in 0..2 {
        let told = reader
            .run(2, async |ct| Ok(half_written_by(record(ct).await?.state().read(ct).await.unwrap_err())));
        assert_eq!(told.unwrap(), [writer; 2]);
    }
    reader.checkpoint(&file).unwrap();
    let restored = other.connect();
    restored.restore(&file).unwrap();
    fs::remove_file(&file).unwrap();
    for cluster in [reader, restored] {
        let run = cluster.run(2, async |ct| {
            let at = record(ct).await?;
            let told = half_written_by(at.state().read(ct).await.unwrap_err());
            ct.barrier("looked").await?;
            at.state().write(ct, [8; 3]).await?;
            assert_eq!(at.state().read(ct).await?, [8; 3]);
            Ok(told)
        });
        assert_eq!(run.unwrap(), [writer; 2]);
    }
}

#[test]
fn status_and_dumps_need_no_types() {
    let node = Node::new("see");
    let cluster = node.connect();
    let seen = cluster.run(1, async |ct| {
        chain_of_cells(ct, 3).await?;
        let status = ct.status().await?;
        assert_eq!((status.members.len(), status.evictions), (1, 0));
        assert!(status.members[0].is_this && status.members[0].pid == std::process::id());
        assert_eq!(status.roots.len(), 1);
        assert!(status.roots[0].is_described && status.roots[0].type_name.ends_with("Cell"));
        assert!(ct.evict(77).await.unwrap_err().to_string().contains("no process of this number"));
        assert!(ct.evict(status.members[0].number).await.unwrap_err().to_string().contains("alive"));
        ct.dump("cells", 1, 100).await
    });
    let text = format!("{:?}", seen.unwrap());
    assert!(
        text.contains("(\"value\", Plain(\"2\"))") && text.contains("(\"value\", Plain(\"1\"))"),
        "{text}"
    );
    assert!(!text.contains("(\"value\", Plain(\"0\"))"), "an object two links away is not dumped: {text}");
    let cluster = node.connect();
    let missing = cluster.run(1, async |ct| ct.dump("moon", 1, 100).await.map(drop));
    assert!(missing.unwrap_err().to_string().contains("no root is named `moon`"));
}

// ---- garbage of ended processes --------------------------------------------------------------------------------

#[remote]
struct Row {
    words: [u64; 32],
}

/// Leaves garbage behind: a process retires rows that it has unlinked, and ends while another one's guard keeps them from being freed.
fn leave_garbage(node: &Node, kept: &Cluster, rows: usize) {
    let (is_pinned, has_left) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            kept.run(1, async |ct| {
                let guard = ct.pin();
                is_pinned.wait();
                has_left.wait();
                drop(guard);
                Ok(())
            })
            .unwrap();
        });
        let leaves = node.connect();
        is_pinned.wait();
        let retired = leaves.run(1, async |ct| {
            for _ in 0..rows {
                let row = Row::new_in(ct, Row::init([7; 32])).await?.write(ct).await?;
                let guard = ct.pin();
                guard.sched_reclaim(row.shared(&guard)).await?;
            }
            Ok(())
        });
        drop(leaves);
        has_left.wait();
        retired.unwrap();
    });
}

fn status(cluster: &Cluster) -> farfield::Status {
    cluster.run(1, async |ct| ct.status().await).unwrap().remove(0)
}

#[test]
fn garbage_of_an_ended_process_is_counted_and_waits_for_a_collection() {
    let node = Node::new("unswept");
    let kept = node.connect();
    // An unlinked object that is kept without a guard: allowed where memory is not swept.
    let unlinked = kept.run(1, async |ct| {
        ct.root_or_init("row", async || Row::new_in(ct, Row::init([5; 32])).await?.write(ct).await).await?;
        ct.unpublish::<Row>("row").await
    });
    let unlinked = unlinked.unwrap()[0];
    assert_eq!(
        (status(&kept).sweeps, status(&kept).uncollected, status(&kept).uncollected_bytes),
        (false, 0, 0)
    );
    for departures in 1..=3 {
        leave_garbage(&node, &kept, 100);
        let seen = status(&kept);
        assert_eq!(seen.uncollected, departures);
        // The garbage, and the few free blocks that its thread had cached.
        assert!((100..105).contains(&(seen.uncollected_bytes / 256 / departures)), "{seen:?}");
    }
    let epoch = status(&kept).epoch;
    while status(&kept).epoch < epoch + 10 {}
    let seen = status(&kept);
    assert_eq!((seen.uncollected, seen.swept_bytes), (3, 0), "nothing is swept");
    let row = kept.run(1, async |ct| Ok(unlinked.read(&ct.pin()).await?.words));
    assert_eq!(row.unwrap(), [[5; 32]], "no object that a program still uses is freed");

    let refused = Cluster::collect(&node.url()).unwrap_err().to_string();
    let pid = std::process::id();
    assert!(refused.contains(&format!("(pid {pid})")) && refused.contains("end those first"), "{refused}");
    assert!(!refused.contains('\n'));
    let owed = status(&kept).uncollected_bytes;
    drop(kept);
    let collected = Cluster::collect(&node.url()).unwrap();
    assert!((owed..owed + 4096).contains(&collected), "{collected} bytes came back of {owed}");
    assert_eq!(Cluster::collect(&node.url()).unwrap(), 0, "no garbage remains");
    let seen = status(&node.connect());
    assert_eq!((seen.uncollected, seen.uncollected_bytes, seen.collected_bytes), (0, 0, collected));
    assert_eq!(seen.heap[0].live_bytes, 0);
    assert!(Cluster::collect("local:").unwrap_err().to_string().contains("several processes"));
}

#[tag(old)]
struct SignTag;

#[remote]
struct Signpost {
    shown: TaggedLink<Row, SignTag>,
    hidden: TaggedLink<Row, SignTag>,
}

#[test]
fn a_hidden_pointer_keeps_no_object_from_a_collection() {
    let node = Node::new("hidden");
    let cluster = node.connect();
    let run = cluster.run(1, async |ct| {
        let g = &ct.pin();
        let post = async || Signpost::new_in(ct, Signpost::init()).await?.write(ct).await;
        let post = ct.root_or_init("signpost", post).await?;
        for (place, hides) in [(post.shown(), false), (post.hidden(), true)] {
            let row = Row::new_in(ct, Row::init([3; 32])).await?.write(ct).await?;
            let link = Tagged::new(row.shared(g), SignTag::new(true))?;
            let link = if hides { link.hidden() } else { link };
            let exchanged = g.chain(op::compare_exchange_link(place, Tagged::NULL, link)).submit().await?;
            assert!(exchanged.is_ok());
            assert_eq!(place.load(g).await?.shown().shared().words().read(g).await?, [3; 32]);
        }
        Ok(())
    });
    run.unwrap();
    let live = status(&cluster).heap[0].live_bytes;
    drop(cluster);
    Cluster::collect(&node.url()).unwrap();
    assert_eq!(live - status(&node.connect()).heap[0].live_bytes, 256, "only one row is left");
}

/// A process that joins a cluster and finds no other process collects it.
#[test]
fn a_process_that_is_alone_collects_when_it_joins() {
    let node = Node::new("alone");
    let kept = node.connect();
    leave_garbage(&node, &kept, 100);
    drop(kept);
    let seen = status(&node.connect());
    assert_eq!((seen.uncollected, seen.uncollected_bytes), (0, 0));
    assert!((100..105).contains(&(seen.collected_bytes / 256)), "{seen:?}");
}

#[test]
fn a_cluster_made_with_sweeping_is_swept_while_processes_live() {
    let mut options = options("swept");
    options.sweep = true;
    let node = Node::serve(&options).unwrap();
    let kept = node.connect();
    let linked = kept.run(1, async |ct| {
        ct.root_or_init("row", async || Row::new_in(ct, Row::init([5; 32])).await?.write(ct).await).await
    });
    let linked = linked.unwrap()[0];
    assert!(status(&kept).sweeps);
    leave_garbage(&node, &kept, 100);
    while status(&kept).uncollected > 0 {
        std::thread::yield_now();
    }
    let seen = status(&kept);
    assert!((100..105).contains(&(seen.swept_bytes / 256)) && seen.collected_bytes == 0, "{seen:?}");
    assert_eq!(seen.uncollected_bytes, 0);
    let row = kept.run(1, async |ct| Ok(linked.read(&ct.pin()).await?.words));
    assert_eq!(row.unwrap(), [[5; 32]]);
}
