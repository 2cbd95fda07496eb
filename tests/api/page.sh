#!/bin/sh
# A committed page is what the program prints now: page.sh PROGRAM FLAG FILE
set -eu
"$1" "$2" | diff -u "$3" - || {
	echo "$3 is not current: $(basename "$1") $2 > $3"
	exit 1
}
