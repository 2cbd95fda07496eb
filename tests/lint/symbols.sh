#!/bin/sh
# Every external symbol of lib<module>.a begins with a prefix that the module owns (tests/lint/prefixes).
set -eu
root=$1 build=$2
bad=0
for lib in "$build"/lib*.a; do
	mod=$(basename "$lib" .a); mod=${mod#lib}
	pat=$(sed -n "s/^$mod: *//p" "$root/tests/lint/prefixes")
	[ -n "$pat" ] || { echo "no prefix for $mod"; bad=1; continue; }
	out=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF==3{print $3}' | grep -v '^_' | grep -vE "^($pat)" || true)
	[ -z "$out" ] || { echo "$mod exports: $out"; bad=1; }
done
exit $bad
