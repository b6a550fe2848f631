//! What is read is what was written, and nothing else.

use super::*;

const HELLO: Hello = Hello { kind: Kind::Control, node: 2, cluster: 7, incarnation: 9, nonce: [5; 16] };

fn secret() -> Secret {
    Secret::new(b"open sesame")
}

#[test]
fn a_request_is_read_as_it_was_written() {
    let bytes = HELLO.with_secret(&secret());
    let read = Hello::parse(&bytes).unwrap();
    assert_eq!(read, HELLO);
    assert!(read.is_proven_by(&bytes, &secret()));
    assert!(!read.is_proven_by(&bytes, &Secret::new(b"open barley")));
    let lane = Hello { kind: Kind::Lane, nonce: Hello::lane(3, 4, 2), ..HELLO };
    assert_eq!(Hello::parse(&lane.to_bytes(&[1; 32])).unwrap().client_and_lanes(), [3, 4, 2]);
}

#[test]
fn each_changed_bit_of_a_request_is_noticed() {
    let bytes = HELLO.with_secret(&secret());
    for bit in 0..HELLO_BYTES * 8 {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        // One byte is padding: its bits say nothing, and the proof is over what was read.
        let accepted = Hello::parse(&changed).is_ok_and(|hello| hello.is_proven_by(&changed, &secret()));
        assert!(!accepted || bit / 8 == 5, "bit {bit}");
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = HELLO.with_secret(&secret());
    bytes[3] += 1;
    assert!(Hello::parse(&bytes).unwrap_err().contains("different versions"));
    assert!(Hello::parse(b"GET / HTTP/1.1").unwrap_err().contains("not Farfield's"));
}

#[test]
fn replies_and_joins_prove_that_the_secret_is_known() {
    let reply = Reply { incarnation: 11, nonce: [6; 16] };
    let bytes = reply.to_bytes(&secret(), &[5; 16]);
    assert_eq!(Reply::parse(&bytes, &secret(), &[5; 16]), Ok(reply));
    assert!(Reply::parse(&bytes, &secret(), &[4; 16]).is_err(), "a reply to somebody else");
    assert!(Reply::parse(&bytes, &Secret::new(b""), &[5; 16]).is_err());
    let join = Join { place: Place { cluster: 1, node: 0, nodes: 3 }, process: 7 };
    let bytes = join.to_bytes(&secret(), &[5; 16], &[6; 16]);
    assert_eq!(Join::parse(&bytes, &secret(), &[5; 16], &[6; 16]), Ok(join));
    assert!(Join::parse(&bytes, &secret(), &[5; 16], &[7; 16]).is_err(), "what was said once, again");
    assert!(Join::parse(&bytes[1..], &secret(), &[5; 16], &[6; 16]).is_err());
}

#[test]
fn a_welcome_has_the_table_and_a_refusal_the_reason() {
    let segments = vec![Segment { base: 4096, rkey: 1 }, Segment { base: 1 << 40, rkey: 2 }];
    let welcome =
        Welcome { client: 3, layout: 2, nodes: 2, lease_ms: 1000, segment_bytes: 1 << 30, segments };
    let bytes = Welcome::to_bytes(Ok(&welcome));
    let mut swapped = bytes.clone();
    swapped[38..40].reverse();
    assert!(Welcome::parse(&swapped).unwrap_err().contains("byte order"));
    assert_eq!(Welcome::parse(&bytes), Ok(welcome));
    assert!(Welcome::parse(&bytes[..bytes.len() - 1]).is_err());
    assert_eq!(Welcome::parse(&Welcome::to_bytes(Err("full\n"))), Err("full?".to_owned()));
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        parse_any(&bytes);
        parse_any(&[MAGIC.as_slice(), &bytes].concat());
    }
}
