#!/usr/bin/env bash
# Rules of this house that no lint knows: nothing below `GlobalAlloc` may panic, format, allocate, lock with std or touch
# std's threads (hazard B02); no page size is a constant (B24); no path of a machine; no file that holds two ideas.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

fail() {
    echo "house rules: $1"
    status=1
}

# A file without its comments and without what follows `#[cfg(test)]`, which ends every file that has tests.
code() {
    awk '/^#\[cfg\((all\()?test/{exit} {sub(/^ *\/\/.*/, ""); print FILENAME ":" FNR ": " $0}' "$1"
}

echo "house rules: below GlobalAlloc nothing panics, formats, allocates or uses std's locks and threads"
banned='std::thread|Mutex|RwLock|Condvar|OnceLock|LazyLock|format!|panic!|println!|eprintln!|assert!\(|assert_eq!|unreachable!|todo!|unimplemented!|\bVec\b|\bBox\b|\bString\b|\.unwrap\(\)|\.expect\('
for file in src/global.rs $(find src/heap src/percpu src/charge src/sync src/life -name '*.rs'); do
    # Compile-time assertions are no panics; the probe of `is_installed` is an allocation on purpose, as a user makes it;
    # `panicking` is the one question asked of std's threads.
    found=$(code "$file" | grep -E "$banned" |
        grep -vE 'const _: \(\) = assert!|Box::new\(0_u8\)|std::thread::panicking\(\)|cfg\(loom\)|size_class.rs.* assert!|magazine.rs.* assert!\(capacity as usize <= MAGAZINE_MAX\)|sync.rs.*panic!\("\{message\}"\)' || true)
    [ -z "$found" ] || fail "forbidden below GlobalAlloc:
$found"
done

echo "house rules: no constant page size"
if grep -rnE 'const +PAGE(_SIZE)?\b' src; then fail "a page size is asked of the system"; fi

echo "house rules: no machine's paths"
if git grep -nE '/(work|farm|home|root)/' -- . ':!ci/house_rules.sh'; then fail "paths of a machine"; fi

echo "house rules: no file over 500 lines in src"
long=$(find src -name '*.rs' -exec wc -l {} + | awk '$2 != "total" && $1 > 500')
[ -z "$long" ] || fail "files that hold two ideas:
$long"

echo "house rules: nothing unfinished"
if git grep -nE 'todo!\(|unimplemented!\(|FIXME|XXX|\bTODO\b' -- . ':!ci/house_rules.sh'; then fail "unfinished"; fi

exit $status
