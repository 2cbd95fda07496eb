#!/bin/sh
# A private PostgreSQL cluster for tests, on a unix socket in a short folder.  Without fsync: what was
# committed outlives a crash of the server, not one of the machine.
#
#   pg.sh run COMMAND...   a fresh cluster for one command; gone when it ends, whatever happens
#   pg.sh start DIR        a cluster in DIR (made when it is not there); prints its connection string
#   pg.sh stop DIR         fast shutdown, waits
#   pg.sh crash DIR        SIGQUIT: as after a crash, recovery at the next start
#
# COMMAND sees SBX_TEST_PG (connection string of an administrator) and SBX_TEST_PG_DIR.  Root runs
# the server as the user postgres; anybody else as himself.
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -n "$bin" ] && [ -x "$bin/initdb" ] || { echo "pg.sh: PostgreSQL is not installed" >&2; exit 1; }

as_server() {
	if [ "$(id -u)" = 0 ]; then
		(cd / && setpriv --reuid postgres --regid postgres --clear-groups "$@")
	else
		"$@"
	fi
}

start() {
	dir=$1
	if [ ! -f "$dir/data/PG_VERSION" ]; then
		mkdir -p "$dir/data"
		chmod 755 "$dir" && chmod 700 "$dir/data"
		[ "$(id -u)" != 0 ] || chown -R postgres "$dir"
		as_server "$bin/initdb" --no-sync -A trust -U postgres -E UTF8 --locale=C.UTF-8 \
			-D "$dir/data" >"$dir.initdb.log" 2>&1 || { cat "$dir.initdb.log" >&2; exit 1; }
		rm -f "$dir.initdb.log"
	fi
	as_server "$bin/pg_ctl" -s -w -t 30 -D "$dir/data" -l "$dir/data/log" -o "-k $dir -c listen_addresses= \
-c fsync=${SBX_TEST_PG_FSYNC:-off} -c full_page_writes=off \
-c max_connections=200 -c unix_socket_permissions=0777" start >/dev/null ||
		{ cat "$dir/data/log" >&2; exit 1; }
	echo "host=$dir user=postgres dbname=postgres"
}

stop() {
	as_server "$bin/pg_ctl" -s -w -t 30 -m "$2" -D "$1/data" stop >/dev/null
}

case ${1:-} in
start) start "$2" ;;
stop) stop "$2" fast ;;
crash) stop "$2" immediate ;;
run)
	shift
	SBX_TEST_PG_DIR=$(mktemp -d /tmp/sbxpg.XXXXXX)
	trap 'stop "$SBX_TEST_PG_DIR" immediate 2>/dev/null || true; rm -rf "$SBX_TEST_PG_DIR"' EXIT
	trap 'exit 130' INT TERM HUP
	SBX_TEST_PG=$(start "$SBX_TEST_PG_DIR")
	export SBX_TEST_PG SBX_TEST_PG_DIR
	"$@"
	;;
*)
	sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
