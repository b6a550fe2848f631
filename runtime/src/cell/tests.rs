//! The padding of objects.

use crate::io::operations::*;
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
