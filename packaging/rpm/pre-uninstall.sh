# $1: 0 at a removal, 1 at an upgrade. The stop withdraws all advice.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
  systemctl --no-reload disable --now uvmd.service uvmd.socket || :
fi
