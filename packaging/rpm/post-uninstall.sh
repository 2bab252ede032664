# $1: 0 at a removal, 1 at an upgrade.
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
  if [ "$1" -ge 1 ]; then
    systemctl try-restart uvmd.service || :
  fi
fi
