#!/bin/sh
# Builds Janus's library for programs in C and installs it:
#
#     install.sh [PREFIX]        (/usr/local)
#
#     PREFIX/include/janus.h
#     PREFIX/include/janus/      mtcp_api.h, mtcp_epoll.h
#     PREFIX/lib/                libjanus.so.VERSION and links to it, libjanus.a
#     PREFIX/lib/pkgconfig/janus.pc
#     PREFIX/share/man/man3/janus.3
#
# With DESTDIR set everything goes below that instead, for packages. CARGO is the cargo to build with, FEATURES what the library shall have
# besides (dpdk-dlopen). Nothing else is changed: where the dynamic linker looks by a list, ldconfig is the caller's affair.
set -eu

prefix=${1:-/usr/local}
case $prefix in
/*) ;;
*) echo "install.sh: $prefix does not begin with /" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
# The number in the library's name changes with what programs are linked to; before 1.0 that is with any minor version.
soname=libjanus.so.${version%.*}

cd "$root"
"${CARGO:-cargo}" rustc -p janus-c --release --lib --crate-type cdylib,staticlib --features "${FEATURES:-}" -- -C "link-arg=-Wl,-soname,$soname"
built=${CARGO_TARGET_DIR:-target}/release

mkdir -p "$to/include/janus" "$to/lib/pkgconfig" "$to/share/man/man3"
install -m 644 "$here/include/janus.h" "$to/include/"
install -m 644 "$here/include/mtcp_api.h" "$here/include/mtcp_epoll.h" "$to/include/janus/"
install -m 755 "$built/libjanus_c.so" "$to/lib/libjanus.so.$version"
ln -sf "libjanus.so.$version" "$to/lib/$soname"
ln -sf "$soname" "$to/lib/libjanus.so"
install -m 644 "$built/libjanus_c.a" "$to/lib/libjanus.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/janus.pc.in" >"$to/lib/pkgconfig/janus.pc"
chmod 644 "$to/lib/pkgconfig/janus.pc"
install -m 644 "$here/man/janus.3" "$to/share/man/man3/"
