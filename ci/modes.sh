#!/usr/bin/env bash
# What depends on how CPU slots are entered, in the modes that this machine would not choose: the tests that allocate
# on many threads, stop the world, fork, or count. (`tests/modes*.rs` go through all modes themselves, and the whole suite
# runs in the best mode in ci/release_tests.sh, with the same features, so that nothing is built anew here.)
set -euo pipefail
cd "$(dirname "$0")/.."

tests=(contract property limits limits_threads stopping ownership life signals races foreign_code tenants)
for mode in threads locked; do
    echo "modes: $mode: ${tests[*]}"
    ALLOTMENT_MODE=$mode cargo test --quiet --release --features hardened,testing "${tests[@]/#/--test=}"
done
