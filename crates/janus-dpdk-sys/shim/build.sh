#!/bin/sh
# Makes libjanus_dpdk.so, which a program built with the feature `dpdk-dlopen` loads at run time.
# usage: build.sh DIRECTORY   (needs a C compiler, pkg-config and DPDK; CC and CFLAGS are heeded)
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
out=${1:?usage: build.sh DIRECTORY}
pkg-config --atleast-version=22.11 libdpdk
# The flags are lists of words.
# shellcheck disable=SC2046,SC2086
exec ${CC:-cc} -shared -fPIC -O3 -Wall -Wextra -Wno-unused-parameter -DALLOW_EXPERIMENTAL_API ${CFLAGS:-} \
    $(pkg-config --cflags libdpdk) -o "$out/libjanus_dpdk.so" "$here"/*.c $(pkg-config --libs libdpdk)
