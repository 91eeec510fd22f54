#!/bin/bash
# The README on a machine that has nothing: its apt line, a clone, `make run`, one session; with SBX_BARE_DEPTH=full also `make test`.
# Runs inside tests/bare/run.sh; every line it runs is shown as a person would type it.
set -euo pipefail
cd
[ -z "$(ls -A)" ] || rm -rf .[!.]*

say() { printf '\n$ %s\n' "$*"; }
try() { say "$*"; "$@"; }

readme=/source/README.md
install=$(grep -m 1 -oE 'apt-get install -y [a-z0-9 .+-]+' "$readme")
say "apt-get update && $install"
apt-get update -qq
$install -qq >/tmp/apt.log 2>&1 || { tail -n 20 /tmp/apt.log; exit 1; }
git config --global --add safe.directory '*'
try git clone -q /source sbx
cd sbx
try git log -1 --format=%h
try make run
sbx=.venv/bin/sbx
try $sbx create bare
try $sbx exec bare -- python3 -c 'print(6 * 7)' | tee /tmp/answer
grep -qx 42 /tmp/answer
try $sbx cp README.md bare:/work/README.md
try $sbx exec bare -- sha256sum /work/README.md
try $sbx stop bare
try $sbx start bare
try $sbx exec bare -- sha256sum /work/README.md >/tmp/after
grep -q "$(sha256sum <README.md | cut -d' ' -f1)" /tmp/after
try make run
try $sbx rm bare --yes
try $sbx local stop
if [ "$SBX_BARE_DEPTH" = full ]; then
  try make test
fi
printf '\nbare machine: done\n'
