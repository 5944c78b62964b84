//! A stream that lends what it received.

use super::between;
use crate::support::{echo, pattern};

#[test]
fn what_is_at_hand_stays_until_it_is_consumed() {
    between(echo, |stream| async move {
        let sent = pattern(5_000, 3);
        stream.write_all(&sent).await.unwrap();
        let mut buffered = stream.buffered();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let here = buffered.fill().await.unwrap().to_vec();
            assert!(!here.is_empty());
            // Asked again, the same bytes.
            assert_eq!(buffered.fill().await.unwrap(), here);
            let some = here.len().min(700);
            buffered.consume(some);
            assert_eq!(buffered.at_hand(), &here[some..]);
            got.extend_from_slice(&here[..some]);
        }
        assert!(got == sent);
        buffered.get_ref().write_all(b"xy").await.unwrap();
        assert!(buffered.fill().await.unwrap().starts_with(b"x"));
        let (stream, rest) = buffered.into_parts();
        let rest = rest.expect("the piece with x in it");
        stream.shutdown(std::net::Shutdown::Write).await.unwrap();
        let mut all = rest.to_vec();
        let mut buffered = stream.buffered();
        loop {
            let more = buffered.fill().await.unwrap().to_vec();
            if more.is_empty() {
                break;
            }
            buffered.consume(usize::MAX);
            all.extend_from_slice(&more);
        }
        assert_eq!(all, b"xy");
    });
}
