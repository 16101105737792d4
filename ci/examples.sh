#!/usr/bin/env bash
# The examples run and say that they succeeded (each checks itself and exits with an error if not).
set -euo pipefail
cd "$(dirname "$0")/.."

for example in quickstart break_it noisy_neighbour; do
    echo "examples: $example"
    cargo run --quiet --release --example "$example"
done
echo "examples: break_it, hardened"
cargo run --quiet --release --features hardened --example break_it
