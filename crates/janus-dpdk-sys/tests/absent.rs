//! Where the shim is not to be had, loading it says so and what to do, and may be tried again.

#![cfg(all(feature = "dpdk-dlopen", not(feature = "dpdk")))]

#[test]
fn a_missing_shim_is_an_error_that_says_what_to_do() {
    // SAFETY: the only test of this program, on its only thread that reads or writes the environment.
    unsafe { std::env::set_var("JANUS_DPDK_SHIM", "/nowhere/libjanus_dpdk.so") };
    for _ in 0..2 {
        let text = janus_dpdk_sys::load().unwrap_err().to_string();
        assert!(text.contains("apt install libdpdk-dev"), "{text}");
        assert!(text.contains("/nowhere/libjanus_dpdk.so"), "{text}");
    }
    // A library that is none of ours: found, but without our names.
    // SAFETY: as above.
    unsafe { std::env::set_var("JANUS_DPDK_SHIM", "libm.so.6") };
    let text = janus_dpdk_sys::load().unwrap_err().to_string();
    assert!(text.contains("jd_eal_init"), "{text}");
}
