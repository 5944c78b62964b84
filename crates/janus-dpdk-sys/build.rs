//! Compiles the C shim and links DPDK, or makes the shim a library of its own that is loaded at run time. Does nothing
//! without the features, so that the workspace builds where there is neither a C compiler nor DPDK.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
    println!("cargo::rerun-if-changed=shim");
    #[cfg(feature = "dpdk")]
    linked::build();
    #[cfg(all(feature = "dpdk-dlopen", not(feature = "dpdk")))]
    loaded::build();
}

#[cfg(feature = "dpdk")]
mod linked {
    use std::process::Command;

    const HELP: &str = "feature `dpdk` needs DPDK 22.11 or later and its pkg-config file (Debian: apt install libdpdk-dev)";

    pub(super) fn build() {
        let mut shim = cc::Build::new();
        shim.files(["shim/janus_dpdk.c", "shim/slots.c"])
            .define("ALLOW_EXPERIMENTAL_API", None)
            .warnings(true)
            .extra_warnings(true)
            .flag_if_supported("-Wno-unused-parameter");
        // Per packet: a debug build of the program should not make it ten times as slow.
        shim.opt_level(3);
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

#[cfg(all(feature = "dpdk-dlopen", not(feature = "dpdk")))]
mod loaded {
    use std::path::PathBuf;
    use std::process::Command;

    /// Where DPDK is installed the shim is made right away, and the program knows where it is. Elsewhere the program is
    /// built all the same: the shim is made where it runs.
    pub(super) fn build() {
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
        let made = Command::new("shim/build.sh").arg(&out).output();
        match made {
            Ok(output) if output.status.success() => {
                let file = out.join("libjanus_dpdk.so");
                println!("cargo::rustc-env=JANUS_DPDK_SHIM_BUILT={}", file.display());
            }
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr);
                let first = text.lines().next().unwrap_or("no DPDK here");
                println!("cargo::warning=libjanus_dpdk.so is not made: {first}");
            }
            Err(error) => println!("cargo::warning=libjanus_dpdk.so is not made: {error}"),
        }
    }
}
