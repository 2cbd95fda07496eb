#!/bin/sh
# Every #include "a/b.h" in src/<module> must be of the module itself or of one that tests/lint/layers allows.
set -eu
root=$1
bad=0
for dir in "$root"/src/*/; do
	mod=$(basename "$dir")
	line=$(grep "^$mod:" "$root/tests/lint/layers") || { echo "no rule for src/$mod"; bad=1; continue; }
	may=" $mod ${line#*:} "
	for used in $(grep -rhoE '^#include "[a-z]+/' "$dir" | sed 's/.*"//; s#/##' | sort -u); do
		case "$may" in *" $used "*) ;; *) echo "src/$mod may not include $used/"; bad=1 ;; esac
	done
done
# A third-party handle stays in its module.
owns() { # word-pattern, header-pattern, modules
	out=$(grep -rnE "^#include <($2)>" "$root/src" | grep -vE "^$root/src/($3)/" || true)
	[ -z "$out" ] || { echo "$1 belongs to $3: $out"; bad=1; }
}
owns libmicrohttpd 'microhttpd\.h' 'http'
owns libpq 'libpq-fe\.h' 'store'
owns libcurl 'curl/.*' 'net'
owns rhonabwy 'rhonabwy\.h' 'region'
owns OpenSSL 'openssl/.*' 'base'
owns libidn2 'idn2\.h' 'base'
owns libfuse 'fuse.*\.h' 'mount'
owns libarchive 'archive.*\.h' 'agent'
exit $bad
