//! The padding of objects, and the ways of READs.

use super::{Array, Place};
use crate::io::operations::*;
use crate::pointer::Address;
use crate::prelude::*;

/// 24 bytes, of which 13 are padding.
#[remote]
struct Padded {
    small: u8,
    wide: u64,
    odd: u16,
}

const PADDING: [u64; 3] = [!0xff, 0, !0xffff];

#[test]
fn padding_is_written_as_zeros_and_read_as_anything() {
    let cluster = Cluster::connect("local:size=1MiB").unwrap();
    let done = cluster.run(1, async |ct| {
        let all_ones = Padded::init(0xff, u64::MAX, 0xffff);
        let object = Padded::new_in(ct, all_ones).await?.write(ct).await?;
        let at = object.address();
        let written: [u64; 3] = ct.read_words(at, 3, |words| Ok([words[0], words[1], words[2]])).await?;
        assert_eq!(written, PADDING.map(|padding| !padding), "its own bits and no others");
        ct.write_words(at, &[0x0123_4567_89ab_cd11, 7, 0xfedc_ba98_7654_0022]).await?;
        let g = &ct.pin();
        let snapshot = object.shared(g).read(g).await?;
        assert_eq!((snapshot.small, snapshot.wide, snapshot.odd), (0x11, 7, 0x22));
        Ok(())
    });
    done.unwrap();
}

/// READs of an object's words, of the last words of a segment, and of an invalid address take different ways through the host fabric.
#[test]
fn each_read_is_counted_once_whichever_way_it_takes() {
    const BYTES: u64 = 1 << 20;
    for url in ["local:size=1MiB", "local:size=1MiB,segments=2"] {
        let done = Cluster::connect(url).unwrap().run(1, async |ct| {
            let object = Padded::new_in(ct, Padded::init(1, 2, 3)).await?.write(ct).await?;
            let g = &ct.pin();
            let before = ct.metrics();
            assert_eq!(object.read(g).await?.wide, 2);
            let past = Place::<[u64; 2]>::from_address(Address::new(0, BYTES - 8));
            let error = past.read(g).await.unwrap_err();
            assert!(matches!(error, crate::Error::InvalidPointer(_)), "{error}");
            let past = Place::<Array<u64, 64>>::from_address(Address::new(0, BYTES - 504));
            let error = past.read(g).await.unwrap_err();
            assert!(matches!(error, crate::Error::InvalidPointer(_)), "{error}");
            let last = Place::<[u64; 2]>::from_address(Address::new(0, BYTES - 16));
            last.read(g).await?;
            let last = Place::<Array<u64, 64>>::from_address(Address::new(0, BYTES - 512));
            last.read(g).await?;
            let counted = ct.metrics() - before;
            assert_eq!((counted.reads, counted.read_bytes), (5, 8 * 135), "{url}");
            assert_eq!(counted.chains, counted.reads);
            Ok(())
        });
        done.unwrap();
    }
}
