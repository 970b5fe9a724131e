#!/bin/sh
# Before the files go. Debian says `remove` or `upgrade`, RPM how many versions stay.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac

command -v systemctl >/dev/null || exit 0
if [ -d /run/systemd/system ]; then
	systemctl stop stint.service
fi
systemctl --quiet disable stint.service
