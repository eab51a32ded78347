#!/usr/bin/env bash
# The oldest supported pair, ansible-core 2.19 on Python 3.11: what runs within ansible-core (modules, plugins) and rendering. The pure code
# of module_utils runs with older and newer Pythons in ansible-test.sh. Skips with a reason where there is no Python 3.11.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(.venv/bin/python -c 'import sys; print(sys.version_info[:2] == (3, 11))')" = True ]; then
  echo "Skipped: the main environment is Python 3.11 already."
  exit 0
fi
if ! python=$(scripts/find-python.sh 3.11 2>/dev/null); then
  echo "Skipped: no Python 3.11 on this machine, so ansible-core 2.19 could not be tested."
  exit 0
fi
[ -x .venv-oldest/bin/python ] || "$python" -m venv .venv-oldest
# What these tests import: neither charts nor the fleet's API server.
.venv-oldest/bin/pip install --quiet --no-compile -c constraints.txt 'ansible-core==2.19.*' -r tests/unit/requirements.txt \
  jmespath jsonschema pytest pytest-asyncio
PATH="$PWD/.venv-oldest/bin:$PATH"
ansible --version | sed -n 1p
pytest -q --hypothesis-profile=few tests/unit/plugins/modules tests/unit/plugins/plugin_utils tests/golden
