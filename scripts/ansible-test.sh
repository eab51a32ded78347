#!/usr/bin/env bash
# Runs ansible-test sanity and units on a staged copy, with two Pythons: the oldest that managed nodes may have, and the controller's.
set -euo pipefail
cd "$(dirname "$0")/.."

python scripts/stage_collection.py .build >/dev/null

# ansible-test downloads get-pip.py unless its cache holds it under the name that its version wants.
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
names=$(python - <<'PY'
import re
from importlib.util import find_spec
from pathlib import Path

root = Path(find_spec("ansible_test").submodule_search_locations[0])
text = "".join(path.read_text() for path in (root / "_internal").rglob("python_requirements.py"))
text += "".join(path.read_text() for path in (root / "_util").rglob("requirements.py"))
print(" ".join(sorted(set(re.findall(r"get_pip_\d+_\d+\.py", text)) or {"get_pip_25_2.py", "get_pip_24_2.py"})))
PY
)
for name in $names; do cp scripts/get_pip.py "$cache/$name"; done

controller=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Real interpreters only: ansible-test stops at a pyenv shim that does not run.
home=$(getent passwd "$(id -u)" | cut -d: -f6)
path=""
for python in /usr/bin/python3.* "${PYENV_ROOT:-$home/.pyenv}"/versions/*/bin/python3.*; do
  if [[ $python =~ /python(3\.9|$controller)$ && -x $python ]] && "$python" -c 'import ssl, venv' 2>/dev/null; then
    path+=":$(dirname "$python")"
  fi
done
# Debian's own programs (git, sh) come first: a folder of pyenv holds only Python.
PATH="$(dirname "$(command -v ansible-test)"):$(tr ':' '\n' <<<"$PATH" | grep -v '/shims$' | paste -sd:)$path"
export PATH

cd .build/ansible_collections/railyard/rdma
# What the tarball does not hold follows the project's own lint rules (ruff), not those for collections; nor does access/, whose files
# hold several documents, as those for kubectl do.
# The oldest and the newest Python of the ones here say what those between them say; Debian has one of its own.
targets=(--target-python "$controller")
if command -v python3.9 >/dev/null; then targets+=(--target-python 3.9); fi
ansible-test sanity --color no "${targets[@]}" --exclude access/ --exclude rehearsal/ --exclude scripts/ --exclude molecule/ --exclude tests/ "$@"
# One worker: each reads all tests anew, and other checks run beside this one. For the controller's Python all that the tests need is here.
if command -v python3.9 >/dev/null; then
  ansible-test units --color no --num-workers 1 --venv --python 3.9
else
  echo "Skipped: no Python 3.9 on this machine, so the unit tests did not run with it."
fi
ansible-test units --color no --num-workers 1 --python "$controller"
