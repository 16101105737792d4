#!/usr/bin/env bash
# The fast path as the machine sees it: in `__rust_alloc` and `__rust_dealloc` of an optimised program (fast-path/) nothing
# is called before the first return, that is, all of the fast path is inlined and all else is a jump to elsewhere; and no
# instruction of theirs locks the bus, on any path.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -m)" != x86_64 ]; then
    echo "disassembly: skipped: it is x86_64's that is read"
    exit 0
fi
command -v objdump >/dev/null || { apt-get update && apt-get install -y binutils; }

unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS
cargo build --quiet --release --package allotment-fast-path
out=${CARGO_TARGET_DIR:-target}/fast_path
mkdir -p "$out"
objdump --disassemble --demangle --no-show-raw-insn "${CARGO_TARGET_DIR:-target}/release/allotment-fast-path" >"$out/disassembly"

status=0
for function in alloc dealloc; do
    # Where rustc gives `__rust_alloc` to the allocator's own function by a jump, that one is `__rg_alloc`.
    code=$(awk -v name="^[0-9a-f]+ <(__rustc::)?__(rust|rg)_$function>:$" '
        /^[0-9a-f]+ </ { on = $0 ~ name }
        on && NF && !/int3$/' "$out/disassembly")
    faults=$(awk '
        function fault(what) { print "  " what; }
        /^[0-9a-f]+ </ { found = 1; next }
        { line = $0; sub(/^ *[0-9a-f]+:[ \t]*/, "", line); sub(/ *#.*/, "", line); sub(/ *<.*/, "", line) }
        # `xchg` with memory locks without saying so; a fence costs as much.
        line ~ /(^| )lock( |$)/ || line ~ /^xchg.*\(/ || line ~ /^[ml]fence/ { fault("locked: " $0) }
        returned { next }
        line ~ /^(notrack |bnd )?call/ { fault("a call before the first return: " $0) }
        line ~ /%fs:/ { thread = 1 }
        line ~ /^(repz |bnd )?ret/ { returned = 1; if (!thread) fault("the first return is not the fast path: it has not seen the thread: " $0) }
        END {
            if (!found) fault("not in the program under this name")
            else if (!returned) fault("no return: the fast path is elsewhere")
        }' <<<"$code")
    if [ -n "$faults" ]; then
        printf '%s\n' "$code"
        printf 'disassembly: __rust_%s:\n%s\n' "$function" "$faults"
        status=1
    else
        echo "disassembly: __rust_$function: $(awk '/^ / { count++ } /\tret/ { exit } END { print count }' <<<"$code")" \
            "instructions up to the first return, no call among them, and no locked one anywhere"
    fi
done
exit $status
