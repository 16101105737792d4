#!/usr/bin/env bash
# The documentation builds without a warning; its examples run in `cargo test`, the paths it names are checked by
# tests/docs.rs.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "docs: rustdoc, warnings are errors"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --package allotment
echo "docs: private items too, so that links inside the crate hold"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --quiet --no-deps --package allotment --document-private-items
