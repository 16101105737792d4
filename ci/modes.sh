#!/usr/bin/env bash
# The whole suite again as users run the code, optimised and with frees that are not checked (the checks of `hardened`, with
# which ci/release_tests.sh runs, send every free past the fast path), in each mode of entering CPU slots. Those tests that go
# through all modes themselves run once.
set -euo pipefail
cd "$(dirname "$0")/.."

tests=()
for file in tests/*.rs; do
    test=$(basename "$file" .rs)
    [[ $test == modes* ]] || tests+=("--test=$test")
done
for mode in rseq threads locked; do
    echo "modes: $mode"
    ALLOTMENT_MODE=$mode cargo test --quiet --release --features testing --lib "${tests[@]}"
done
echo "modes: those that go through all modes"
cargo test --quiet --release --features testing --test modes --test modes_accounts
