#!/usr/bin/env bash
# The crate could be published: metadata complete, licences and documents in the package, nothing of the workspace's own.
# No network: `cargo publish --dry-run` itself resolves against the registry and is run by hand before a release.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "package: metadata"
for key in description license readme documentation keywords categories rust-version; do
    grep -q "^$key = " Cargo.toml || { echo "package: Cargo.toml lacks $key"; exit 1; }
done

echo "package: content"
files=$(cargo package --list --allow-dirty --offline --package allotment)
for file in Cargo.toml README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE src/lib.rs examples/quickstart.rs; do
    grep -qxF "$file" <<<"$files" || { echo "package: $file is not in it"; exit 1; }
done
if grep -E '^(ci|\.ci|loom-tests|benches|fast-path)/' <<<"$files"; then
    echo "package: the workspace's own things are in it"
    exit 1
fi

echo "package: what is packed compiles"
cargo package --offline --allow-dirty --package allotment --quiet --target-dir target/package-check
