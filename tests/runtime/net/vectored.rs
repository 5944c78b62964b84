//! Several slices at a time.

use std::io::{IoSlice, IoSliceMut};

use super::between;
use crate::support::echo;

#[test]
fn slices_go_out_and_come_in_in_order() {
    between(echo, |stream| async move {
        let slices = [
            IoSlice::new(b"ab"),
            IoSlice::new(b""),
            IoSlice::new(b"cdefg"),
        ];
        assert_eq!(stream.try_write_vectored(&slices).unwrap(), 7);
        let mut got = Vec::new();
        while got.len() < 7 {
            stream.readable().await.unwrap();
            let (mut first, mut second) = ([0; 3], [0; 9]);
            let mut into = [
                IoSliceMut::new(&mut first),
                IoSliceMut::new(&mut []),
                IoSliceMut::new(&mut second),
            ];
            let count = stream.try_read_vectored(&mut into).unwrap();
            let all = [&first[..], &second[..]].concat();
            got.extend_from_slice(&all[..count]);
        }
        assert_eq!(got, b"abcdefg");
        assert_eq!(stream.try_write_vectored(&[]).unwrap(), 0);
    });
}
