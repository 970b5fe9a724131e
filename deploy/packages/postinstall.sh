#!/bin/sh
# After the files are there. Debian says `configure` and the version before, RPM how many versions there are.
set -e

case "$1" in
configure) [ -n "$2" ] && upgrade=yes || upgrade=no ;;
1) upgrade=no ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac

command -v systemctl >/dev/null || exit 0
if [ $upgrade = no ]; then
	# Whether services start by themselves is the distribution's choice.
	systemctl preset stint.service
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ $upgrade = yes ]; then
	systemctl try-restart stint.service
elif systemctl --quiet is-enabled stint.service; then
	systemctl start stint.service
fi
