#!/bin/sh
# Prints the newest usable Python (3.11 or newer) of this machine, or with an argument such as "3.11" the one of that version.
# A candidate counts only when it runs and can make a virtual environment: pyenv's shims on PATH exist but exit 127, and Debian's
# python3 without python3-venv lacks ensurepip.
set -eu
wanted=${1:-}
home=$(getent passwd "$(id -u)" | cut -d: -f6) # HOME may be empty or elsewhere, as in CI

usable() {
  "$1" - "$wanted" 2>/dev/null <<'PY'
import sys
import ensurepip, ssl, venv  # noqa: F401
wanted = sys.argv[1]
version = "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11) or sys.version_info >= (3, 15) or (wanted and version != wanted):
    sys.exit(1)
print("%03d%03d%03d %s" % (sys.version_info[:3] + (sys.executable,)))
PY
}

if [ -n "${PYTHON:-}" ]; then
  found=$(usable "$PYTHON" || true)
else
  found=$(
    for candidate in $(command -v python3.14 python3.13 python3.12 python3.11 python3 || true) \
      /usr/bin/python3 /usr/local/bin/python3 "${PYENV_ROOT:-$home/.pyenv}"/versions/*/bin/python3 \
      /opt/python*/bin/python3; do
      if [ -x "$candidate" ]; then usable "$candidate" || true; fi
    done | sort -u | tail -n 1
  )
fi

if [ -z "$found" ]; then
  echo "No usable Python ${wanted:-3.11 or newer (below 3.15)}${PYTHON:+ at PYTHON=$PYTHON}: install it with its venv module" \
    "(Debian, Ubuntu: apt-get install python3 python3-venv), or set PYTHON=/path/to/python3." >&2
  exit 1
fi
echo "${found#* }"
