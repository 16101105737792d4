#!/usr/bin/env bash
# No lint anywhere: undocumented unsafe blocks and missing documentation are lints of Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

for features in "" hardened testing hardened,testing; do
    echo "clippy: all targets of the workspace, features: ${features:-none}"
    cargo clippy --quiet --workspace --all-targets --features "$features" -- -D warnings
done

# What exists only under loom has its own cfg and, so that nothing is rebuilt twice, its own target directory.
echo "clippy: the loom models"
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo clippy --quiet --package allotment-loom-tests --all-targets -- -D warnings
