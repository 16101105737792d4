#!/usr/bin/env bash
# Every atomic ordering has its reason: `pairs:` within six lines above a non-Relaxed one, `relaxed:` within six lines above
# a Relaxed one, or `relaxed (whole fn|whole file|both)` further up. Tests are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "orderings: each has its reason"
status=0
for file in $(find src -name '*.rs'); do
    awk '
        /^#\[cfg\((all\()?test/ { exit }
        /pairs:/ { pairs = NR }
        /relaxed( \([a-z ]*\))?:/ { relaxed = NR }
        /relaxed \(whole file/ { file = 1 }
        /relaxed \(whole fn/ { fn = 1 }
        /^    }$/ || /^}$/ { fn = 0 }
        /Ordering::(Acquire|Release|AcqRel|SeqCst)/ {
            if (!pairs || NR - pairs > 6) { print FILENAME ":" NR ": no `pairs:`: " $0; bad = 1 }
        }
        /Ordering::Relaxed/ {
            if (!file && !fn && (!relaxed || NR - relaxed > 6) && (!pairs || NR - pairs > 6)) {
                print FILENAME ":" NR ": no `relaxed:`: " $0; bad = 1
            }
        }
        END { exit bad }
    ' "$file" || status=1
done
exit $status
