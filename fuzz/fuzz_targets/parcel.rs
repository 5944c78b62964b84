//! libFuzzer's door to [`janus_fuzz::parcel`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| janus_fuzz::parcel(data));
