#!/usr/bin/env bash
# The tests again as users run the code, optimised and with frees that are not checked (the checks of `hardened`, with which
# ci/release_tests.sh runs, send every free past the fast path), in each mode of entering CPU slots: those tests that allocate
# on many threads, stop the world, fork, or count.
set -euo pipefail
cd "$(dirname "$0")/.."

tests=(contract property limits limits_threads stopping ownership life signals races foreign_code tenants)
for mode in rseq threads locked; do
    echo "modes: $mode: ${tests[*]}"
    ALLOTMENT_MODE=$mode cargo test --quiet --release --features testing "${tests[@]/#/--test=}"
done

# These go through all modes themselves.
echo "modes: modes_accounts modes"
cargo test --quiet --release --features testing --test modes_accounts --test modes
