//! Clients that meet faulty memory nodes.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::contents::tests::Empty;
use crate::handshake::{HELLO_BYTES, Hello, JOIN_BYTES, Nonce, Reply, Secret, Segment, Welcome};
use crate::host::SealedMemory;
use crate::question::{Answer, QUESTION_BYTES, Question};
use client::Control;
use farfield_words::geometry::Geometry;

/// Connects a client to a fake memory node that performs the handshake, then sends a welcome in parts, each with some descriptors.
fn pass(
    name: &str,
    reply: impl FnOnce(&Secret, &Nonce) -> Vec<u8>,
    welcome: &[u8],
    descriptors: &[&[BorrowedFd<'_>]],
) -> Result<(), String> {
    let name = format!("fake-{name}-{}", std::process::id());
    let directory = directory::ClusterDirectory::of_node(&name);
    let name_lock = directory.claim().unwrap();
    let _in_use = directory.prepare().unwrap();
    let listener = UnixListener::bind(directory.socket()).unwrap();
    let connect = {
        let name = name.clone();
        thread::spawn(move || Client::connect(&ShmConfig::new(&name).unwrap(), Empty::VERSION).map(drop))
    };
    let (mut stream, _) = listener.accept().unwrap();
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello).unwrap();
    let hello = Hello::parse(&hello).unwrap();
    stream.write_all(&framed(Ok(&reply(&Secret::new(b""), &hello.nonce)))).unwrap();
    // A client that refuses the reply sends no more.
    if stream.read_exact(&mut [0; JOIN_BYTES]).is_ok() {
        let message = framed(Ok(welcome));
        let (begin, rest) = message.split_at(message.len() - descriptors.len() + 1);
        let mut parts = std::iter::once(begin).chain(rest.chunks(1));
        for (passed, part) in descriptors.iter().zip(&mut parts) {
            let sent = passing::send_with(stream.as_fd(), part, passed).unwrap();
            assert_eq!(sent, part.len());
        }
        assert!(parts.next().is_none(), "all of it was sent");
    }
    let refused = connect.join().unwrap();
    directory.remove(&name_lock);
    refused.map_err(|error| error.to_string())
}

/// The same with memory of the size that the welcomes here announce.
fn answer_with(name: &str, reply: impl FnOnce(&Secret, &Nonce) -> Vec<u8>, welcome: Vec<u8>) -> String {
    let (memory, lock) = (sealed(BYTES), not_of_memory());
    pass(name, reply, &welcome, &[&[memory.as_fd(), lock.as_fd()]]).unwrap_err()
}

fn sealed(bytes: u64) -> SealedMemory {
    SealedMemory::new("farfield-fake", bytes, std::iter::empty()).unwrap()
}

/// A file on a disk.
fn not_of_memory() -> File {
    File::open(std::env::current_exe().unwrap()).unwrap()
}

fn right(secret: &Secret, nonce: &Nonce) -> Vec<u8> {
    Reply { incarnation: 1, nonce: [1; 16] }.to_bytes(secret, nonce).to_vec()
}

/// The segment size of the fake memory nodes.
const BYTES: u64 = 32 << 10;

fn welcome(layout: u64, base: u64) -> Vec<u8> {
    let (segments, geometry) = (vec![Segment { base, rkey: 0 }], Geometry::new(1, 1, BYTES).unwrap());
    Welcome::to_bytes(Ok(&Welcome {
        client: 1,
        layout,
        lease_ms: 1000,
        disconnects: false,
        geometry,
        segments,
    }))
}

/// A welcome whose segments have this size.
fn welcome_of(segment_bytes: u64) -> Vec<u8> {
    let mut bytes = welcome(Empty::VERSION, 0);
    bytes[24..32].copy_from_slice(&segment_bytes.to_le_bytes());
    bytes
}

#[test]
fn another_layout_version_is_refused() {
    let refused = answer_with("layout", right, welcome(Empty::VERSION + 1, 0));
    assert!(
        refused.contains(&format!("its memory has layout version {}, this build knows", Empty::VERSION + 1)),
        "{refused}"
    );
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let folder = std::env::temp_dir().join(format!("farfield-owner-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    // Only the superuser may change an owner; for all other users `/` belongs to another user.
    let given = std::os::unix::fs::chown(&folder, Some(65534), None).is_ok();
    let other = if given { folder.as_path() } else { std::path::Path::new("/") };
    let refused = directory::ClusterDirectory::of_node("owner").check_owner(other).unwrap_err().to_string();
    std::fs::remove_dir(&folder).unwrap();
    assert!(refused.contains(&format!("{} belongs to another user: ", other.display())), "{refused}");
}

/// The last memory node that ends removes the user's directory, while another begins.
#[test]
fn names_are_claimed_while_the_directory_is_removed() {
    let folder = std::env::temp_dir().join(format!("farfield-claims-{}", std::process::id()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = directory::ClusterDirectory::below(&folder, &format!("claim-{thread}"));
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let lock = directory.claim().unwrap();
                    directory.give_up(&lock);
                }
            });
        }
    });
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn another_byte_order_is_refused() {
    let mut bytes = welcome(Empty::VERSION, 0);
    bytes[38..40].reverse();
    let refused = answer_with("order", right, bytes);
    assert!(refused.contains("the other byte order"), "{refused}");
}

#[test]
fn an_impossible_welcome_is_refused() {
    assert!(
        answer_with("elsewhere", right, welcome(Empty::VERSION, 8)).contains("not where this build expects")
    );
    assert!(answer_with("nonsense", right, vec![1, 2, 3]).contains("does not speak Farfield's protocol"));
    // The memory is smaller than announced.
    let memory = answer_with("small", right, welcome_of(1 << 20));
    let said = "its memory can not be used: it has 32768 bytes, and its segments take 1048576";
    assert!(memory.contains(said), "{memory}");
}

#[test]
fn a_memory_node_with_impossible_segments_is_refused() {
    for (bytes, said) in [
        (0, "its segment size is 0: a segment has 27336 bytes"),
        (4096, "its segment size is 4096: a segment has 27336 bytes"),
        (BYTES + 1, "its segment size is 32769: a segment consists of words of 8 bytes"),
        (1 << 49, "its segment size is 562949953421312: a segment has"),
        (u64::MAX - 7, "its segment size is 18446744073709551608: a segment has"),
    ] {
        let refused = answer_with(&format!("shape-{bytes}"), right, welcome_of(bytes));
        assert!(refused.starts_with("cannot connect to memory node shm:fake-shape-"), "{refused}");
        assert!(refused.contains(said) && !refused.contains('\n'), "{refused}");
    }
}

#[test]
fn only_sealed_memory_of_the_right_size_is_mapped() {
    let (lock, welcome) = (not_of_memory(), welcome(Empty::VERSION, 0));
    let offer = |name: &str, memory: BorrowedFd<'_>| pass(name, right, &welcome, &[&[memory, lock.as_fd()]]);
    assert_eq!(offer("sealed", sealed(BYTES).as_fd()), Ok(()));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = memfd_create("farfield-fake", flags).unwrap();
    ftruncate(&unsealed, BYTES).unwrap();
    let (pipe, _other_end) = io::pipe().unwrap();
    for (name, memory, said) in [
        ("unsealed", unsealed.as_fd(), "its size is not sealed"),
        ("short", sealed(BYTES - 4096).as_fd(), "it has 28672 bytes, and its segments take 32768"),
        ("none", sealed(0).as_fd(), "it has 0 bytes, and its segments take 32768"),
        ("long", sealed(2 * BYTES).as_fd(), "it has 65536 bytes, and its segments take 32768"),
        ("pipe", pipe.as_fd(), "it is not a memory file that can be sealed"),
        ("disk", not_of_memory().as_fd(), "it is not a memory file that can be sealed"),
    ] {
        let refused = offer(name, memory).unwrap_err();
        assert!(refused.ends_with(&format!("its memory can not be used: {said}")), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

/// A client that refuses a memory node closes all passed descriptors; mapped memory needs only the lock's descriptor.
#[test]
fn unexpected_descriptors_are_closed() {
    let welcome = welcome(Empty::VERSION, 0);
    for (name, passed, count) in [
        ("none", &[0][..], Some(0)),
        ("one", &[1], Some(1)),
        ("three", &[3], Some(3)),
        // As many as the client has room for.
        ("many", &[100], None),
        ("apart", &[1, 1, 1, 5], None),
        ("more", &[2, 2], Some(4)),
        ("late", &[0, 0, 3], Some(3)),
    ] {
        let (mut pipe, other_end) = io::pipe().unwrap();
        let descriptors: Vec<_> = passed.iter().map(|count| vec![other_end.as_fd(); *count]).collect();
        let descriptors: Vec<_> = descriptors.iter().map(Vec::as_slice).collect();
        let refused = pass(&format!("passes-{name}"), right, &welcome, &descriptors).unwrap_err();
        let (_, said) = refused.split_once(": it has passed ").expect(&refused);
        let (found, said) = said.split_once(' ').unwrap();
        assert_eq!(said, "descriptors in place of 2: its memory, and the lock of that");
        let found: usize = found.parse().unwrap();
        assert!(count.map_or(found > 2, |count| found == count), "{refused}");
        drop(other_end);
        assert_closed(&mut pipe);
    }
    let (mut pipe, other_end) = io::pipe().unwrap();
    let memory = sealed(BYTES);
    pass("passes-both", right, &welcome, &[&[memory.as_fd(), other_end.as_fd()]]).unwrap();
    drop(other_end);
    assert_closed(&mut pipe);
}

/// Asserts that no process has the other end of a pipe.
fn assert_closed(pipe: &mut io::PipeReader) {
    let mut waited = [PollFd::new(&*pipe, PollFlags::IN)];
    poll(&mut waited, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
    assert!(waited[0].revents().contains(PollFlags::HUP), "a descriptor was left open");
}

#[test]
fn a_memory_node_without_the_secret_is_refused() {
    let wrong = |_: &Secret, nonce: &Nonce| {
        Reply { incarnation: 1, nonce: [1; 16] }.to_bytes(&Secret::new(b"barley"), nonce).to_vec()
    };
    let refused = answer_with("wrong", wrong, Vec::new());
    assert!(refused.contains("does not know the cluster's secret"), "{refused}");
    let stale = |secret: &Secret, _: &Nonce| right(secret, &[0; 16]);
    assert!(answer_with("stale", stale, Vec::new()).contains("does not know"), "a reply to another client");
}

#[test]
fn questions_and_answers_survive_encoding() {
    let question = Question { number: 5, of: 77 };
    assert_eq!(Question::from_bytes(question.to_bytes()), question);
    for answer in [Answer::Gone, Answer::Alive] {
        assert_eq!(question.answer_in(question.answered(answer)), Some(answer));
        let other = Question { number: 6, of: 77 };
        assert_eq!(other.answer_in(question.answered(answer)), None, "the answer to another question");
    }
    assert_eq!(question.answer_in([5, 0, 0, 0, 2]), None);
}

#[test]
fn an_answer_that_comes_late_is_not_taken_for_the_next_one() {
    let (client, mut node) = UnixStream::pair().unwrap();
    let mut control = Control::new(client);
    assert_eq!(control.is_gone(1, Duration::from_millis(1)), None);
    assert_eq!(control.is_gone(2, Duration::from_millis(1)), None);
    let mut questions = [0; 2 * QUESTION_BYTES];
    node.read_exact(&mut questions).unwrap();
    let (questions, _) = questions.as_chunks();
    let [first, second] = [questions[0], questions[1]].map(Question::from_bytes);
    assert_eq!([first.of, second.of], [1, 2]);
    node.write_all(&first.answered(Answer::Gone)).unwrap();
    // An incomplete answer waits for its remaining bytes.
    let (begin, end) = (second.answered(Answer::Gone), Question { number: 3, of: 3 }.answered(Answer::Alive));
    node.write_all(&begin[..2]).unwrap();
    assert!(!control.is_lost(), "an incomplete answer does not end the connection");
    node.write_all(&begin[2..]).unwrap();
    node.write_all(&end).unwrap();
    assert_eq!(control.is_gone(3, CONTROL_TIMEOUT), Some(false), "not the answers to the earlier questions");
    drop(node);
    assert!(control.is_lost());
    assert_eq!(control.is_gone(4, CONTROL_TIMEOUT), None);
}

#[test]
fn connecting_to_a_memory_node_that_does_not_accept_times_out() {
    let path = std::env::temp_dir().join(format!("farfield-queue-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let soon = Duration::from_millis(1);
    // The kernel holds one or two.
    let mut waiting = Vec::new();
    let refused = loop {
        match client::connect(&path, soon) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    assert!(!waiting.is_empty() && waiting.len() < 10, "{}", waiting.len());
    listener.accept().unwrap();
    client::connect(&path, CONTROL_TIMEOUT).expect("there is room again");
    std::fs::remove_file(&path).unwrap();
    drop(listener);
    assert_eq!(client::connect(&path, CONTROL_TIMEOUT).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn an_exchange_ends_in_time_however_slowly_it_arrives() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let drip = thread::spawn(move || {
        while theirs.write_all(&[7]).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let mut stream = DeadlineStream::after(&ours, Duration::from_millis(30));
    let refused = stream.read_exact(&mut vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(refused.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{refused}");
    drop(ours);
    drip.join().unwrap();
}
