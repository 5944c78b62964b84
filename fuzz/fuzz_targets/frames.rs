//! libFuzzer's door to [`janus_fuzz::frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| janus_fuzz::frames(data));
