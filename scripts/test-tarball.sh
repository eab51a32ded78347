#!/usr/bin/env bash
# Builds the tarball, checks its content, installs it into an empty path and renders from the installed copy.
set -euo pipefail
export LC_ALL=C.UTF-8 # one sort order for both lists
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# From the tracked files only: what lies beside them must not reach the tarball, nor hide that something is missing.
python "$root/scripts/stage_collection.py" "$work/stage" >/dev/null
cd "$work/stage/ansible_collections/railyard/rdma"
ansible-galaxy collection build --output-path "$work" >/dev/null
tarball=$(ls "$work"/railyard-rdma-*.tar.gz)

echo "Content of the tarball:"
tar -tzf "$tarball" | grep -vE '/$' | sort >"$work/listing"
# Nothing but the product: no tests, no rehearsal, no tool folders.
if grep -nE '^(tests|rehearsal|scripts|molecule|collections|\.)' "$work/listing"; then
  echo "The tarball holds files that are not part of the product." >&2
  exit 1
fi
# Everything of the product: each tracked file below these folders.
(cd "$root" && git ls-files plugins roles playbooks inventories/examples meta site.yml README.md COPYING requirements.txt | grep -v '^playbooks/rehearse.yml$' | sort) >"$work/wanted"
if missing=$(comm -23 "$work/wanted" "$work/listing") && [ -n "$missing" ]; then
  printf 'The tarball lacks:\n%s\n' "$missing" >&2
  exit 1
fi
wc -l <"$work/listing"

empty=$work/installed
# With the checkout's own path configured, ansible-galaxy would find the collection there and do nothing.
export ANSIBLE_COLLECTIONS_PATH=$empty
unset ANSIBLE_CONFIG
ansible-galaxy collection install "$tarball" -p "$empty" --no-deps >/dev/null
cp -r "$root/inventories/examples/a100-sriov-node" "$work/inventory"
cd "$work"
for dependency in "$root"/collections/ansible_collections/*; do
  if [ "$(basename "$dependency")" != railyard ]; then ln -s "$dependency" "$empty/ansible_collections/"; fi
done
ansible-playbook railyard.rdma.render -i "$work/inventory" -e render_dir="$work/rendered"
find "$work/rendered" -type f -size +0 | sort
find "$work/rendered" -type f -size +0 | grep -q nicclusterpolicy
