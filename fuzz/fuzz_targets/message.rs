//! libFuzzer's door to [`janus_fuzz::message`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| janus_fuzz::message(data));
