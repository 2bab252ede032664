# $1: 0 at a removal, 1 at an upgrade.
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
  if [ "$1" -ge 1 ]; then
    systemctl try-restart uvmd.service || :
  fi
fi
# The package lists no folders: cargo-generate-rpm 0.21 cannot.
if [ "$1" = 0 ]; then
  find /etc/uvmd /usr/share/uvmd /usr/share/doc/uvmd -depth -type d -empty -delete 2>/dev/null || :
fi
