//! Compiles the shim that drives lwIP, where Debian's package `liblwip-dev` is installed. Elsewhere lwIP is skipped.

use std::path::Path;

/// Folder of lwIP's headers in Debian's package.
const HEADERS: &str = "/usr/include/lwip";

fn main() {
    let header = Path::new(HEADERS).join("lwip/tcp.h");
    println!("cargo::rustc-check-cfg=cfg(lwip)");
    println!("cargo::rerun-if-changed={}", header.display());
    println!("cargo::rerun-if-changed=lwip.c");
    if !header.exists() {
        return;
    }
    let mut build = cc::Build::new();
    build.file("lwip.c").opt_level(2);
    // Headers of a package are not ours to warn of.
    build.flag("-isystem").flag(HEADERS);
    match build.try_compile("janus_lwip_shim") {
        Ok(()) => {
            println!("cargo::rustc-link-lib=lwip");
            println!("cargo::rustc-cfg=lwip");
        }
        Err(error) => println!("cargo::warning=lwIP is skipped: {error}"),
    }
}
