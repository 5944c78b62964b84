//! libFuzzer's door to [`janus_fuzz::wire`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| janus_fuzz::wire(data));
