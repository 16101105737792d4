#!/usr/bin/env bash
# The loom models pass, and each has teeth: with the weakening named in loom-tests/teeth.txt built in, its test fails.
#
# A tooth is the cfg `allotment_tooth`. It is given to this workspace's crates only (through a compiler wrapper, one
# file per tooth), so that the dependencies are built once. By hand the same is
#   RUSTFLAGS='--cfg loom --cfg allotment_tooth="NAME"' cargo test --release -p allotment-loom-tests TEST
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="$PWD/target/loom"
export RUST_BACKTRACE=0
models=(cargo test --quiet --release --package allotment-loom-tests --tests)
teeth=loom-tests/teeth.txt
out=$CARGO_TARGET_DIR/teeth
mkdir -p "$out"

echo "loom: every tooth in the sources is in $teeth, and the other way round"
diff <(grep -rhoE 'allotment_tooth = "[a-z_]+"' src loom-tests --include='*.rs' | cut -d'"' -f2 | sort -u) \
    <(grep -vE '^ *(#|$)' "$teeth" | cut -d' ' -f1 | sort -u)

echo "loom: the models"
timeout 1200 "${models[@]}" -- --format=pretty | tee "$out/models.log"

while read -r tooth test; do
    grep -qE "^test (.*::)?$test \.\.\. ok$" "$out/models.log" || {
        echo "loom: there is no model $test, or it did not pass without the tooth $tooth"
        exit 1
    }
    printf '#!/bin/sh\nexec "$@" --cap-lints allow --cfg '\''allotment_tooth="%s"'\''\n' "$tooth" >"$out/$tooth"
    chmod +x "$out/$tooth"
    export RUSTC_WORKSPACE_WRAPPER=$out/$tooth
    # A tooth that does not compile proves nothing.
    "${models[@]}" --no-run
    log=$out/$tooth.$test.log
    if timeout 300 "${models[@]}" "$test" -- --format=pretty >"$log" 2>&1; then
        echo "loom: $test passes with the tooth $tooth: it checks nothing"
        exit 1
    fi
    if ! grep -qE "^test (.*::)?$test \.\.\. FAILED$" "$log"; then
        tail -n 30 "$log"
        echo "loom: with the tooth $tooth the run failed, but not in $test"
        exit 1
    fi
    echo "loom: $test fails with the tooth $tooth, as it must"
done < <(grep -vE '^ *(#|$)' "$teeth")
