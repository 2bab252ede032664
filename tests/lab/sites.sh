#!/bin/sh
# CPU faults of a program count for the instructions that raised them, with their functions and copied bytes
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/program /tmp/sites /tmp/one /tmp/explained $UVMD_LOG"
TCP=http://127.0.0.1:9477
umask 077
echo 0123456789abcdef >/tmp/token

start uvmd --set auth.token_file=/tmp/token
state_becomes counting

# launch PROGRAM ROUNDS: as $program, until its input ends.
mkfifo /tmp/stdin
launch() {
  LD_LIBRARY_PATH=/lab/cuda "$1" "$2" 5 </tmp/stdin >/tmp/program 2>&1 &
  program=$!
  exec 5>/tmp/stdin
}
end() {
  exec 5>&-
  wait $program || fail "the program fails"
}
has_run() { grep -q '^often' /tmp/program; }
get() { wget -qO "$2" --header 'Authorization: Bearer 0123456789abcdef' "$TCP/api/v1/processes/$program$1"; }
# A site in a line.
list() { get /sites /tmp/sites && tr -d ' \n' </tmp/sites | sed 's/{"address"/\n&/g' >/tmp/lines; }
# field NAME: of the lines of standard input, one a line.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
faults_of() { grep "\"function\":\"$1\"" /tmp/lines | field cpu_faults; }
are_found() { list && grep -q '"function":"often"' /tmp/lines && grep -q '"function":"seldom"' /tmp/lines; }
explains() { uvmctl explain $program >/tmp/explained 2>&1 && grep -q "faults  often+0x[0-9a-f]* in /usr/bin/sites" /tmp/explained; }

# --- two functions with known numbers of faults, which are explained while the program runs
launch sites 600
within 120 "the explanation has no function" explains
grep -q 'moves memory back and forth\|ping-pong' /tmp/explained || fail "it is no ping-pong"
within 300 "the program does not end its work" has_run
often=$(sed -n 's/^often \([0-9]*\).*/\1/p' /tmp/program)
seldom=$(sed -n 's/.*seldom \([0-9]*\)$/\1/p' /tmp/program)
within 60 "the functions are not found" are_found
[ "$(faults_of often)" = "$often" ] || fail "often() has $(faults_of often) faults, not $often"
[ "$(faults_of seldom)" = "$seldom" ] || fail "seldom() has $(faults_of seldom) faults, not $seldom"
[ "$(sed -n 2p /tmp/lines | field function)" = often ] || fail "often() is not the first"
[ "$(field unattributed_cpu_faults </tmp/lines)" = 0 ] || fail "faults are without a site"
# All that was copied for CPU faults.
get '' /tmp/one || fail "no process"
tr -d ' \n' </tmp/one >/tmp/line
sum() { field "$1" </tmp/lines | awk '{ sum += $1 } END { printf "%d\n", sum }'; }
copied=$(grep -o '"dtoh":{[^}]*}' /tmp/line | sed -n 's/.*"fault":\([0-9]*\).*/\1/p' | sed -n 1p)
echo "often $often, seldom $seldom faults; $copied bytes copied, of which at sites $(sum bytes_dtoh)"
[ "$(sum bytes_dtoh)" = "$copied" ] || fail "$copied bytes were copied for CPU faults, and sites have $(sum bytes_dtoh)"
cat /tmp/explained
cat /tmp/sites
# Addresses and functions require read permission.
! wget -qO /dev/null "$TCP/api/v1/processes/$program/sites" || fail "sites are readable without a token"
end

# --- the file of a program is removed before its code is looked up
cp /usr/bin/sites /usr/bin/removed
launch removed 20
is_running() { [ "$(readlink /proc/$program/exe)" = /usr/bin/removed ]; }
within 20 "the program does not begin" is_running
rm /usr/bin/removed
within 120 "the program does not end its work" has_run
is_removed() { list && grep -q '"function_unavailable":"thefilewasdeletedorreplaced"' /tmp/lines; }
within 60 "the module of a removed file has another state" is_removed
[ "$(sed -n 2p /tmp/lines | field cpu_faults)" = 160 ] || fail "the removed program has other counts"
end
stop_uvmd
echo ok
