#!/usr/bin/env bash
# The contract and property tests under AddressSanitizer, with a nightly toolchain. Those binaries keep the system's
# allocator for themselves and call ours directly, so that the sanitizer sees the tests' own memory.
# ThreadSanitizer needs a standard library built for it (rust-src), else it reports std's own hand-overs as races.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    echo "sanitizers: skipped: no nightly toolchain"
    exit 0
fi
target=$(rustc -vV | sed -n 's/^host: //p')
echo "sanitizers: address"
RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/asan ASAN_OPTIONS=detect_leaks=0 \
    cargo +nightly test --quiet --target "$target" --test contract --test property
if [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "sanitizers: thread"
    RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/tsan \
        cargo +nightly test --quiet -Zbuild-std --target "$target" --test contract
else
    echo "sanitizers: thread: skipped: the nightly toolchain has no rust-src"
fi
