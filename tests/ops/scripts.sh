#!/bin/sh
# The shell scripts parse, are executable where they are called, and say what is missing instead of
# going on: each sets -eu.
set -eu
root=$1
bad=0
for script in tests/run .ci/run config/install config/quickstart config/make-rootfs $(cd "$root" && ls config/package/*/p* tests/lint/*.sh tests/ops/*.sh); do
	file=$root/$script
	shell=$(sed -n '1s/^#!\/bin\///p' "$file")
	"$shell" -n "$file" || bad=1
	grep -qE '^set -e' "$file" || { echo "$script does not set -e"; bad=1; }
	case $script in tests/lint/* | tests/ops/*) continue ;; esac
	[ -x "$file" ] || { echo "$script is not executable"; bad=1; }
done
for script in "$root"/tests/system/*.py; do
	/usr/bin/python3 - "$script" <<'PY' || bad=1
import ast, sys
ast.parse(open(sys.argv[1]).read(), sys.argv[1])
PY
done
exit $bad
