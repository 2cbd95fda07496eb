#!/bin/sh
# docs/openapi.json passes a public linter.  Exits 77 where there is no npm, or it cannot install.
# openapi.sh FILE FOLDER (where the linter is installed, kept between runs)
set -eu
file=$1 folder=$2
command -v npm >/dev/null || { echo "SKIP: openapi lint: there is no npm"; exit 77; }
mkdir -p "$folder"
if [ ! -x "$folder/node_modules/.bin/redocly" ]; then
	(cd "$folder" && timeout 120 npm install --silent --no-audit --no-fund @redocly/cli@2.77.0 >npm.log 2>&1) || {
		echo "SKIP: openapi lint: npm cannot install @redocly/cli"
		exit 77
	}
fi
REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true "$folder/node_modules/.bin/redocly" lint "$file"
