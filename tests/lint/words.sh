#!/bin/sh
# Calls that we ban, marks that need an owner, and SQL outside store/.
set -eu
root=$1
bad=0
say() { [ -z "$2" ] || { echo "$1:"; echo "$2"; bad=1; }; }
say "banned call" "$(grep -rnE '\b(strcpy|strcat|sprintf|vsprintf|strtok|gets|system|popen|alloca|atoi|atol)\(' "$root/src" --include=*.c --include=*.h || true)"
say "open mark" "$(grep -rnwE 'TODO|FIXME|XXX|HACK' "$root/src" "$root/include" "$root/tests" "$root/config" "$root/migrations" --include=*.c --include=*.h --include=*.py --include=*.sql --include=*.conf || true)"
say "dead code" "$(grep -rnE '^[[:space:]]*#if 0|assert_true\((1|true)\)' "$root/src" "$root/tests" --include=*.c --include=*.h || true)"
say "SQL outside store/" "$(grep -rnE '"(SELECT|INSERT INTO|UPDATE [a-z]|DELETE FROM) ' "$root/src" --include=*.c --include=*.h | grep -v "^$root/src/store/" || true)"
exit $bad
