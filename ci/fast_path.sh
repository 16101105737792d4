#!/usr/bin/env bash
# What a pair of alloc and free costs on the fast path, in instructions, is what ci/fast_path.tsv says.
#
# Callgrind counts two runs of one situation (fast-path/src/lib.rs); the difference by the number of pairs they differ in
# is exact, and start-up cancels out. The same loop without the allocation is taken off. Faster is as wrong as slower: the
# table is to be true. By hand:
#   ci/fast_path.sh --update    writes the table anew
#   ci/fast_path.sh --peers     prints the counts of mimalloc v3 and jemalloc too (builds both; compares nothing)
#
# Up to 200 instructions a figure may be off by 2: that code is straight, and no run differs from another. Above, slow
# paths are averaged in, or several functions that the compiler may cut differently: by 10.
set -euo pipefail
cd "$(dirname "$0")/.."

table=ci/fast_path.tsv
modes=(threads locked rseq)
# Situation and what is taken off it.
situations=(
    "tenant-64 empty"
    "root-64 empty"
    "tenant-1024 empty"
    "tenant-16384 empty"
    "transfer-64 scope"
    "fifo-64 empty-fifo"
    "scope empty"
)
# Callgrind has no restartable sequences of its own: a pretended area for one thread stands in for what libc registers.
features=pretend-rseq
few=20000
many=80000

todo=${1:-compare}
case $todo in
compare | --update) ;;
--peers) features+=" peers" ;;
*)
    echo "fast path: unknown argument $todo"
    exit 2
    ;;
esac

compiler=$(rustc -V)
host=$(rustc -vV | sed -n 's/^host: //p')
if [ "$todo" = compare ]; then
    [ -f "$table" ] || { echo "fast path: there is no $table; ci/fast_path.sh --update writes it"; exit 1; }
    of_compiler=$(sed -n 's/^# rustc //p' "$table")
    of_host=$(sed -n 's/^# host //p' "$table")
    [ -n "$of_compiler" ] && [ -n "$of_host" ] || { echo "fast path: $table does not say what it is for"; exit 1; }
    if [ "$(cut -d. -f1,2 <<<"$of_compiler")" != "$(cut -d. -f1,2 <<<"${compiler#rustc }")" ]; then
        echo "fast path: skipped: table is for rustc $of_compiler"
        exit 0
    fi
    if [ "$of_host" != "$host" ]; then
        echo "fast path: skipped: table is for $of_host"
        exit 0
    fi
fi

command -v valgrind >/dev/null || { apt-get update && apt-get install -y valgrind; }

# Flags of the machine would count too.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS
cargo build --quiet --release --package allotment-fast-path --features "$features"
binaries=${CARGO_TARGET_DIR:-target}/release
out=${CARGO_TARGET_DIR:-target}/fast_path
mkdir -p "$out"

# count PROGRAM MODE SITUATION PAIRS: the instructions of one run, which must have been in that mode.
count() {
    local options=(--mode) ran profile=$out/$1.$2.$3.$4
    [ "$2" != rseq ] || options+=(--pretend-rseq)
    if ! ran=$(ALLOTMENT_MODE=$2 valgrind --tool=callgrind --callgrind-out-file="$profile" \
        "$binaries/$1-fast-path" "${options[@]}" "$3" "$4" 2>"$profile.log"); then
        grep -v '^==' "$profile.log" >&2 || cat "$profile.log" >&2
        return 1
    fi
    if [ "$ran" != "$2" ]; then
        echo "it ran in mode $ran" >&2
        return 1
    fi
    # Newer versions write the second line only.
    awk '/^(summary|totals):/ { count = $2 } END { if (!count) exit 1; print count }' "$profile"
}

# measure PROGRAM MODE: its rows of the table.
measure() {
    local row situation harness first second
    local -A per_pair
    for row in "${situations[@]}"; do
        for situation in $row; do
            [ -z "${per_pair[$situation]:-}" ] || continue
            first=$(count "$1" "$2" "$situation" "$few") || return 1
            second=$(count "$1" "$2" "$situation" "$many") || return 1
            per_pair[$situation]=$(awk -v all=$((second - first)) -v pairs=$((many - few)) 'BEGIN { print all / pairs }')
        done
        read -r situation harness <<<"$row"
        awk -v mode="$2" -v situation="$situation" -v gross="${per_pair[$situation]}" -v off="${per_pair[$harness]}" \
            'BEGIN { printf "%s\t%s\t%.1f\n", mode, situation, gross - off }'
    done
}

status=0
measured=$out/measured.tsv
: >"$measured"
for mode in "${modes[@]}"; do
    echo "fast path: $host, $compiler, mode $mode"
    if rows=$(measure allotment "$mode" 2>"$out/$mode.failure"); then
        echo "$rows" >>"$measured"
    else
        echo "fast path: no figures of mode $mode: $(cat "$out/$mode.failure")"
        status=1
    fi
done

case $todo in
--peers)
    for peer in mimalloc jemalloc; do
        echo "fast path: $peer"
        # Scopes are ours.
        measure "$peer" "$peer" | grep -v '\sscope\s' >>"$measured"
    done
    awk -F'\t' '
        !($1 in column) { column[$1] = ++columns; name[columns] = $1 }
        !($2 in row) { row[$2] = ++rows; situation[rows] = $2 }
        { cell[$2, $1] = $3 }
        END {
            printf "%-14s", "instructions"
            for (c = 1; c <= columns; c++) printf "%10s", name[c]
            print ""
            for (r = 1; r <= rows; r++) {
                printf "%-14s", situation[r]
                for (c = 1; c <= columns; c++) printf "%10s", cell[situation[r], name[c]] ? cell[situation[r], name[c]] : "-"
                print ""
            }
        }' "$measured"
    ;;
--update)
    {
        printf '# Instructions for a pair of alloc and free, without the loop. Written by ci/fast_path.sh --update.\n'
        printf '# %s\n# host %s\n# mode\tsituation\tinstructions\n' "$compiler" "$host"
        cat "$measured"
    } >"$table"
    echo "fast path: $table has the $(wc -l <"$measured") figures that could be measured"
    ;;
compare)
    awk -F'\t' '
        function report(verdict, difference) {
            printf "%-8s %-14s %8s %8s %8s  %s\n", $1, $2, (key in table ? table[key] : "-"), $3, difference, verdict
        }
        NR == FNR { if ($0 !~ /^#/) { table[$1 FS $2] = $3; left[$1 FS $2] }; next }
        FNR == 1 { printf "%-8s %-14s %8s %8s %8s\n", "mode", "situation", "table", "measured", "by" }
        {
            key = $1 FS $2
            delete left[key]
            if (!(key in table)) { report("NOT IN THE TABLE", "-"); bad = 1; next }
            difference = $3 - table[key]
            allowed = (table[key] > 200 ? 10 : 2) + 0.05
            verdict = difference > allowed ? "REGRESSION" : difference < -allowed ? "IMPROVEMENT" : "ok"
            if (verdict != "ok") bad = 1
            report(verdict, sprintf("%+.1f", difference))
        }
        END {
            for (key in left) {
                split(key, name, FS)
                printf "%-8s %-14s %8s %8s %8s  %s\n", name[1], name[2], table[key], "-", "-", "NOT MEASURED"
                bad = 1
            }
            exit bad
        }' "$table" "$measured" || {
        echo "fast path: the table is not true any more; if that is meant so: ci/fast_path.sh --update"
        status=1
    }
    ;;
esac
exit $status
