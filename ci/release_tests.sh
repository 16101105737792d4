#!/usr/bin/env bash
# The tests again as users run the code: optimised; with the checks of `hardened`, and with the faulty system that
# only `testing` has.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "release tests: features hardened and testing"
cargo test --release --features hardened,testing
