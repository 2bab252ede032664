# $1: 1 at the first installation, 2 at an upgrade.
systemd-sysusers uvmd.conf >/dev/null 2>&1 || :
if [ -d /run/systemd/system ]; then
  systemd-tmpfiles --create uvmd.conf || :
  systemctl daemon-reload || :
  if [ "$1" = 1 ]; then
    systemctl --no-reload preset uvmd.service uvmd.socket || :
  fi
fi
