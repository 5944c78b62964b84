//! Compiles the C shim and links DPDK. Does nothing without the feature `dpdk`, so that the workspace builds where there
//! is neither a C compiler nor DPDK.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    shim::build();
}

#[cfg(feature = "dpdk")]
mod shim {
    use std::process::Command;

    const HELP: &str = "feature `dpdk` needs DPDK 22.11 or later and its pkg-config file (Debian: apt install libdpdk-dev)";

    pub(super) fn build() {
        println!("cargo::rerun-if-changed=shim");
        let mut shim = cc::Build::new();
        shim.file("shim/janus_dpdk.c")
            .warnings(true)
            .extra_warnings(true)
            .flag_if_supported("-Wno-unused-parameter");
        for flag in flags_of_headers() {
            shim.flag(flag);
        }
        shim.compile("janus_dpdk_shim");
        // After the shim, which needs the libraries.
        pkg_config::Config::new()
            .atleast_version("22.11")
            .probe("libdpdk")
            .unwrap_or_else(|e| panic!("{HELP}\n{e}"));
    }

    /// All flags, also those the pkg-config crate drops: `-include rte_config.h` and the instruction sets that the
    /// inline functions of DPDK's headers were made for.
    fn flags_of_headers() -> Vec<String> {
        println!("cargo::rerun-if-env-changed=PKG_CONFIG");
        println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
        let tool = std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
        let output = Command::new(tool)
            .args(["--cflags", "libdpdk"])
            .output()
            .unwrap_or_else(|e| panic!("{HELP}\n{e}"));
        assert!(
            output.status.success(),
            "{HELP}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }
}
