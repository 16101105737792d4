#!/usr/bin/env bash
# Every crate of the workspace is formatted as rustfmt.toml says.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "fmt: the whole workspace"
cargo fmt --all --check
