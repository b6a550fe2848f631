//! What a client makes of memory nodes that are not what it expects.

use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::cluster::control::LAYOUT_VERSION;
use crate::fabric::handshake::{HELLO_BYTES, Hello, JOIN_BYTES, Nonce, Reply, Secret, Segment, Welcome};
use crate::fabric::question::{Answer, Question};

/// A memory node that goes through the handshake and then says something.
fn answer_with(name: &str, reply: impl FnOnce(&Secret, &Nonce) -> Vec<u8>, welcome: Vec<u8>) -> String {
    let name = format!("fake-{name}-{}", std::process::id());
    let place = place::Place::of_node(&name);
    let held = place.claim().unwrap();
    place.make_memory(4096, std::iter::empty()).unwrap();
    let listener = UnixListener::bind(place.socket()).unwrap();
    let connect = {
        let name = name.clone();
        thread::spawn(move || Client::connect(&Config::new(&name).unwrap(), LAYOUT_VERSION).map(drop))
    };
    let (mut stream, _) = listener.accept().unwrap();
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello).unwrap();
    let hello = Hello::parse(&hello).unwrap();
    send(&mut stream, Ok(&reply(&Secret::new(b""), &hello.nonce))).unwrap();
    // A client that does not believe it says no more.
    if stream.read_exact(&mut [0; JOIN_BYTES]).is_ok() {
        send(&mut stream, Ok(&welcome)).unwrap();
    }
    let refused = connect.join().unwrap().unwrap_err().to_string();
    place.remove(&held);
    refused
}

fn right(secret: &Secret, nonce: &Nonce) -> Vec<u8> {
    Reply { incarnation: 1, nonce: [1; 16] }.to_bytes(secret, nonce).to_vec()
}

fn welcome(layout: u64, base: u64) -> Vec<u8> {
    let segments = vec![Segment { base, rkey: 0 }];
    Welcome::to_bytes(Ok(&Welcome {
        client: 1,
        layout,
        nodes: 1,
        lease_ms: 1000,
        segment_bytes: 4096,
        segments,
    }))
}

#[test]
fn another_layout_is_named() {
    let refused = answer_with("layout", right, welcome(LAYOUT_VERSION + 1, 0));
    assert!(
        refused.contains(&format!("its memory has layout version {}, this build knows", LAYOUT_VERSION + 1)),
        "{refused}"
    );
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let folder = std::env::temp_dir().join(format!("farfield-owner-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    // Only the superuser may give a directory away; for all others the superuser's is another's.
    let given = std::os::unix::fs::chown(&folder, Some(65534), None).is_ok();
    let other = if given { folder.as_path() } else { std::path::Path::new("/") };
    let refused = place::Place::of_node("owner").check_owner(other).unwrap_err().to_string();
    std::fs::remove_dir(&folder).unwrap();
    assert!(refused.contains(&format!("{} is somebody else's: user ", other.display())), "{refused}");
}

#[test]
fn another_byte_order_is_named() {
    let mut bytes = welcome(LAYOUT_VERSION, 0);
    bytes[38..40].reverse();
    let refused = answer_with("order", right, bytes);
    assert!(refused.contains("the other byte order"), "{refused}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(
        answer_with("elsewhere", right, welcome(LAYOUT_VERSION, 8)).contains("not where this build expects")
    );
    assert!(answer_with("short", right, vec![1, 2, 3]).contains("does not speak Farfield's protocol"));
    // The memory is smaller than it says.
    let memory = answer_with("small", right, {
        let segments = vec![Segment { base: 0, rkey: 0 }];
        let (layout, segment_bytes) = (LAYOUT_VERSION, 1 << 20);
        Welcome::to_bytes(Ok(&Welcome { client: 1, layout, nodes: 1, lease_ms: 1, segment_bytes, segments }))
    });
    assert!(memory.contains("map far memory"), "{memory}");
}

#[test]
fn who_does_not_know_the_secret_is_not_believed() {
    let wrong = |_: &Secret, nonce: &Nonce| {
        Reply { incarnation: 1, nonce: [1; 16] }.to_bytes(&Secret::new(b"barley"), nonce).to_vec()
    };
    let refused = answer_with("wrong", wrong, Vec::new());
    assert!(refused.contains("does not know the cluster's secret"), "{refused}");
    let stale = |secret: &Secret, _: &Nonce| right(secret, &[0; 16]);
    assert!(answer_with("stale", stale, Vec::new()).contains("does not know"), "a reply to somebody else");
}

#[test]
fn questions_and_answers_are_read_as_they_were_written() {
    assert_eq!(Question::from_bytes(Question(77).to_bytes()), Question(77));
    for answer in [Answer::Gone, Answer::Alive] {
        assert_eq!(Answer::from_byte(answer.to_byte()), Some(answer));
    }
    assert_eq!(Answer::from_byte(2), None);
}
