//! libFuzzer's door to [`janus_fuzz::http_head`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| janus_fuzz::http_head(data));
