#!/bin/sh
# Everything compiles with clang and -Werror too: it knows other mistakes than gcc.
set -eu
launcher=
command -v ccache >/dev/null && launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
cmake -G Ninja -S "$1" -B "$2" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug \
	-DCMAKE_C_FLAGS_DEBUG=-O0 $launcher >"$2.log" 2>&1 || { cat "$2.log"; exit 1; }
nice ninja -C "$2" -j 1 -k 0 >"$2.log" 2>&1 || { grep -vE '^\[[0-9]+/[0-9]+\] |^ninja: ' "$2.log"; exit 1; }
tail -n 1 "$2.log"
