#!/bin/sh
# After the files are gone. Debian says `purge` when the configuration goes, too; RPM says 0 and keeps what was changed.
set -e

if [ "$1" = purge ]; then
	rm -rf /etc/stint /var/lib/stint /var/lib/private/stint
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
