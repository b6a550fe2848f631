//! Messages survive encoding; invalid bytes are refused.

use super::*;
use farfield_words::Address;
use farfield_words::geometry::Geometry;

const HELLO: Hello =
    Hello { kind: ConnectionKind::Control, node: 2, cluster: 7, incarnation: 9, nonce: [5; 16] };

fn secret() -> Secret {
    Secret::new(b"open sesame")
}

#[test]
fn a_request_survives_encoding() {
    let bytes = HELLO.with_secret(&secret());
    let read = Hello::parse(&bytes).unwrap();
    assert_eq!(read, HELLO);
    assert!(read.is_proven_by(&bytes, &secret()));
    assert!(!read.is_proven_by(&bytes, &Secret::new(b"open barley")));
    let lane = Hello { kind: ConnectionKind::Lane, nonce: Hello::lane(3, 4, 2), ..HELLO };
    assert_eq!(Hello::parse(&lane.to_bytes(&[1; 32])).unwrap().client_and_lanes(), [3, 4, 2]);
}

#[test]
fn each_changed_bit_of_a_request_is_detected() {
    let bytes = HELLO.with_secret(&secret());
    for bit in 0..HELLO_BYTES * 8 {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        // One byte is padding: its bits are ignored, and the proof covers the parsed fields.
        let accepted = Hello::parse(&changed).is_ok_and(|hello| hello.is_proven_by(&changed, &secret()));
        assert!(!accepted || bit / 8 == 5, "bit {bit}");
    }
}

#[test]
fn another_protocol_version_is_refused() {
    let mut bytes = HELLO.with_secret(&secret());
    bytes[3] += 1;
    assert!(Hello::parse(&bytes).unwrap_err().contains("different versions"));
    assert!(Hello::parse(b"GET / HTTP/1.1").unwrap_err().contains("not Farfield's"));
}

#[test]
fn replies_and_joins_prove_knowledge_of_the_secret() {
    let reply = Reply { incarnation: 11, nonce: [6; 16] };
    let bytes = reply.to_bytes(&secret(), &[5; 16]);
    assert_eq!(Reply::parse(&bytes, &secret(), &[5; 16]), Ok(reply));
    assert!(Reply::parse(&bytes, &secret(), &[4; 16]).is_err(), "a reply to another client");
    assert!(Reply::parse(&bytes, &Secret::new(b""), &[5; 16]).is_err());
    let join = Join { position: NodePosition { cluster: 1, node: 0, nodes: 3 }, process: 7 };
    let bytes = join.to_bytes(&secret(), &[5; 16], &[6; 16]);
    assert_eq!(Join::parse(&bytes, &secret(), &[5; 16], &[6; 16]), Ok(join));
    assert!(Join::parse(&bytes, &secret(), &[5; 16], &[7; 16]).is_err(), "a replayed request to join");
    assert!(Join::parse(&bytes[1..], &secret(), &[5; 16], &[6; 16]).is_err());
}

fn welcome(nodes: u64, per_node: u64, bytes: u64) -> Welcome {
    let geometry = Geometry::new(nodes, per_node, bytes).unwrap();
    let stride = 1 << geometry.stride_log2();
    let segment = |number| Segment { base: number * stride, rkey: number as u32 };
    let segments = (0..nodes * per_node).map(segment).collect();
    Welcome { client: 3, layout: 2, lease_ms: 1000, disconnects: true, geometry, segments }
}

#[test]
fn a_welcome_has_the_table_and_a_refusal_the_reason() {
    let welcome = welcome(2, 1, 1 << 30);
    let bytes = Welcome::to_bytes(Ok(&welcome));
    let mut swapped = bytes.clone();
    swapped[38..40].reverse();
    assert!(Welcome::parse(&swapped, 2).unwrap_err().contains("byte order"));
    assert!(Welcome::parse(&bytes, 3).unwrap_err().contains("layout version 2, this build knows 3"));
    assert_eq!(Welcome::parse(&bytes, 2), Ok(welcome));
    assert!(Welcome::parse(&bytes[..bytes.len() - 1], 2).is_err());
    assert_eq!(Welcome::parse(&Welcome::to_bytes(Err("full\n")), 2), Err("full?".to_owned()));
}

/// Parses a welcome with altered numbers.
fn altered(nodes: u16, count: u32, segment_bytes: u64, base: u64) -> Result<Welcome, String> {
    let mut bytes = Welcome::to_bytes(Ok(&welcome(2, 1, 1 << 30)));
    bytes[12..16].copy_from_slice(&count.to_le_bytes());
    bytes[24..32].copy_from_slice(&segment_bytes.to_le_bytes());
    bytes[36..38].copy_from_slice(&nodes.to_le_bytes());
    bytes[44..52].copy_from_slice(&base.to_le_bytes());
    Welcome::parse(&bytes, 2)
}

#[test]
fn a_welcome_with_an_impossible_geometry_is_refused() {
    assert!(altered(2, 2, 1 << 30, 0).is_ok());
    let refused = |nodes, count, bytes, said: &str| {
        let reason = altered(nodes, count, bytes, 0).unwrap_err();
        assert!(reason.contains(said) && !reason.contains('\n'), "{reason}");
    };
    refused(2, 2, 0, "its segment size is 0: ");
    refused(2, 2, 4096, "its segment size is 4096: ");
    refused(2, 2, (1 << 30) + 4, "its segment size is 1073741828: a segment consists of words");
    refused(2, 2, 1 << 49, "its segment size is 562949953421312: ");
    refused(2, 2, u64::MAX, "its segment size is 18446744073709551615: ");
    refused(0, 2, 1 << 30, "2 segments on 0 memory nodes");
    refused(2, 0, 1 << 30, "its number of segments is 2 times 0: ");
    refused(2, 3, 1 << 30, "3 segments on 2 memory nodes");
    refused(2, u32::MAX - 1, 1 << 30, "its number of segments is 2 times 2147483647: ");
    refused(2, 1 << 16, 1 << 47, "its memory size is 65536 segments of 140737488355328 bytes: ");
    for base in [u64::MAX - (1 << 30) + 1, 4] {
        assert_eq!(
            altered(2, 2, 1 << 30, base).unwrap_err(),
            format!("it has a segment at an invalid address, {base:#x}")
        );
    }
}

/// The geometry that a client on a network computes from all welcomes, and a memory node from a client's request to join.
#[test]
fn memory_nodes_make_a_cluster_whose_geometry_is_checked() {
    let own = |segments, bytes| Geometry::new(1, segments, bytes).unwrap();
    let cluster = |node, nodes, own| NodePosition { cluster: 1, node, nodes }.cluster_of(own);
    assert_eq!(cluster(2, 3, own(4, 1 << 30)), Ok(Geometry::new(3, 4, 1 << 30).unwrap()));
    let refused = |node, nodes, own, said: &str| {
        let reason = cluster(node, nodes, own).unwrap_err();
        assert!(reason.contains(said) && !reason.contains('\n'), "{reason}");
    };
    refused(0, 0, own(4, 1 << 30), "there is no memory node 0 of 0");
    refused(3, 3, own(4, 1 << 30), "there is no memory node 3 of 3");
    assert_eq!(cluster(63, 64, own(1024, 1 << 30)).unwrap().segments(), 65_536);
    // In 16 bits that is 464 segments.
    refused(
        65,
        66,
        own(1000, 1 << 30),
        "with 66 memory nodes like it the number of segments is 66 times 1000: ",
    );
    refused(0, 32_768, own(2, 1 << 47), "the memory size is 65536 segments of 140737488355328 bytes");
    // One that is divided is alone.
    let divided = Geometry::new(2, 2, 1 << 30).unwrap();
    assert_eq!(cluster(0, 1, divided), Ok(divided));
    refused(1, 2, divided, "that of 2 memory nodes");
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        parse_any(&bytes);
        parse_any(&[MAGIC.as_slice(), &bytes].concat());
    }

    #[test]
    fn no_numbers_in_a_welcome_panic(nodes: u16, count: u32, sizes: [u64; 2], shift in 0..64_u32, at: u64, node: u16) {
        let mut bytes = Welcome::to_bytes(Ok(&welcome(2, 1, 1 << 30)));
        let position = (node, nodes.wrapping_add(7));
        join_any(&bytes, position, Address::from_bits(at));
        bytes[24..32].copy_from_slice(&(sizes[0] >> shift).to_le_bytes());
        join_any(&bytes, position, Address::from_bits(at >> shift));
        bytes[12..16].copy_from_slice(&count.to_le_bytes());
        bytes[36..38].copy_from_slice(&nodes.to_le_bytes());
        bytes[44..52].copy_from_slice(&sizes[1].to_le_bytes());
        join_any(&bytes, position, Address::from_bits(at));
    }
}

#[test]
fn the_identity_of_a_cluster_depends_on_the_order_of_its_memory_nodes() {
    assert_ne!(cluster_of(&[1, 2]), cluster_of(&[2, 1]));
    assert_ne!(cluster_of(&[1]), cluster_of(&[1, 1]));
    assert_eq!(cluster_of(&[1, 2]), cluster_of(&[1, 2]));
}
