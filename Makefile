# The two commands that matter:
#   make rehearse   the whole of site.yml over a simulated fleet on this machine
#   make test       lint, unit, golden, fleet and sanity tests, real image builders, molecule on simulated and on virtual machines
# Both set up all they need below this checkout (.venv, .cache, collections/) and install the Debian packages that
# scripts/system-packages.sh names. `make clean` removes it again.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

INVENTORY ?= inventories/rehearsal
CACHE := $(CURDIR)/.cache
STATE := .rehearsal
# What runs gets a home and a temporary folder of its own, so nothing stays behind outside the checkout. Installers keep
# the user's configuration (mirrors, proxies) and cache here.
ifeq ($(MAKELEVEL),0)
USER_PATH := $(PATH)
export PIP_CONFIG_FILE ?= $(firstword $(wildcard $(HOME)/.config/pip/pip.conf $(HOME)/.pip/pip.conf))
export npm_config_userconfig ?= $(HOME)/.npmrc
endif
export USER_PATH
export PIP_CACHE_DIR := $(CACHE)/pip
export npm_config_cache := $(CACHE)/npm
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HOME := $(CACHE)/home
export TMPDIR := $(CACHE)/tmp
# For modules on this machine; Ansible takes the home of the password file for them. Rehearsal nodes have their own.
export ANSIBLE_REMOTE_TMP := $(CACHE)/home/.ansible/tmp
export PATH := $(CURDIR)/.venv/bin:$(CACHE)/bin:$(USER_PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Bytecode is kept, but not between the sources: a fleet starts hundreds of interpreters.
export PYTHONPYCACHEPREFIX := $(CACHE)/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help rehearse test lint unit golden report-tests fleet-tests simulation-tests sanity molecule vm vm-machines builders oldest tarball \
	benchmark benchmark-tests fleet-up fleet-down docs clean system-packages

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

rehearse: .venv/rehearsal ## Run site.yml twice over a simulated fleet (INVENTORY=…)
	python -m rehearsal run -i $(INVENTORY) --state $(STATE)

# Two at a time, the long ones first; each shows its output when it ends, with its time, and one that fails keeps no other from running. The unit tests run in sanity and oldest.
# They keep two processors busy; LANES=3 takes as long there.
LANES ?= 2
CHECKS := vm simulation-tests fleet-tests sanity rehearse oldest builders molecule lint golden report-tests benchmark-tests tarball
test: ## Everything that CI runs
	@$(MAKE) --no-print-directory -j2 .venv/test vm-machines
	@$(MAKE) --no-print-directory -j$(LANES) --keep-going --output-sync=recurse $(addprefix check-,$(CHECKS))
	@echo "All checks passed: $(CHECKS)"

check-%:
	@echo "== $*"; TIMEFORMAT='== $* took %1R s, of the processors %1U s and of the kernel %1S s'; time $(MAKE) --no-print-directory -j1 $*; echo "== $* passed"

lint: .venv/test ## ruff, shellcheck, yamllint, ansible-lint (profile production), generated documents
	ruff check .
	ruff format --check .
	shellcheck scripts/*.sh molecule/*/*.sh molecule/*/*/*.sh tests/*/*.sh .ci/run
	yamllint --strict .
	ansible-lint --offline
	python scripts/generate_docs.py --check
	python scripts/generate_access.py --check

unit: .venv/test ## Tests of the pure code and the modules
	pytest -q tests/unit

report-tests: .venv/test ## The report: its schemas, and its page in a headless browser
	pytest -q -rs tests/report

golden: .venv/test ## Rendered objects against the published ones
	pytest -q tests/golden

# In two parts, so that they can run beside each other: whole sites, and all else.
SITES := faults ways benchmark nccl
fleet-tests: .venv/test ## The playbooks over simulated fleets: ways, faults, measurements
	pytest -q $(SITES:%=tests/rehearsal/%)

simulation-tests: .venv/test ## The simulated kernel, machines, API and operators, and what the product does with them
	pytest -q tests/rehearsal $(SITES:%=--ignore=tests/rehearsal/%)

sanity: .venv/test ## ansible-test sanity and units
	scripts/ansible-test.sh

oldest: .venv/test ## The oldest supported pair: ansible-core 2.19 on Python 3.11
	scripts/test-oldest.sh

molecule: .venv/test ## molecule scenario default on rehearsal nodes
	MOLECULE_GLOB='molecule/*/molecule.yml' molecule test -s default

vm: .venv/test ## molecule scenario vm: two virtual machines with real kernels (QEMU; skipped with a reason where there is none)
	MOLECULE_GLOB='molecule/*/molecule.yml' molecule test -s vm

# Needs nothing that pip installs, so it can be made beside that. What fails here, the scenario tries again and tells.
vm-machines: .venv/packages
	@molecule/vm/packages.sh && python molecule/vm/machines build || echo "No virtual machines were built."

builders: .venv/test ## Boot images made by initramfs-tools and dracut in a Debian root
	pytest -q -rs tests/builders

benchmark: .venv/test ## Measure (docs/benchmarks.md)
	python tests/benchmarks/gid_tables.py
	python tests/benchmarks/apply_objects.py

benchmark-tests: .venv/test ## Tests of the benchmarks themselves; they judge no times
	pytest -q tests/benchmarks

tarball: .venv/test ## Build the collection, check its content, render from the installed copy
	scripts/test-tarball.sh

fleet-up: .venv/rehearsal ## Start the fleet and leave it running
	python -m rehearsal up -i $(INVENTORY) --state $(STATE)

fleet-down: .venv/rehearsal ## End the fleet, also after a crash
	python -m rehearsal down --state $(STATE)

docs: .venv/test ## Write the generated documents
	python scripts/generate_docs.py
	python scripts/generate_access.py

system-packages:
	@PATH="$(USER_PATH)" scripts/system-packages.sh

.venv/python: scripts/find-python.sh | system-packages
	@python=$$(PATH="$(USER_PATH)" scripts/find-python.sh); rm -rf .venv; mkdir -p $(CACHE)/home $(CACHE)/tmp; \
	echo "Virtual environment with $$python"; "$$python" -m venv .venv; touch $@

.venv/rehearsal: .venv/python requirements.txt rehearsal/requirements.txt constraints.txt collections/requirements.yml scripts/fetch_collections.py scripts/fetch_helm.py rehearsal/machine/kept_zip_code.py
	.venv/bin/pip install --quiet --no-compile -c constraints.txt ansible-core -r requirements.txt -r rehearsal/requirements.txt
	python scripts/fetch_collections.py
	python scripts/fetch_helm.py $(CACHE)/bin
	@site=$$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); mkdir -p $(PYTHONPYCACHEPREFIX)/kept_zip_code; \
	cp rehearsal/machine/kept_zip_code.py "$$site/"; echo "import kept_zip_code" > "$$site/kept_zip_code.pth"
	@touch $@

# A file, so that each of these comes once: one program at a time may use apt.
.venv/packages: .venv/python scripts/system-packages.sh
	@PATH="$(USER_PATH)" scripts/system-packages.sh test
	@touch $@

.venv/test: .venv/rehearsal .venv/packages tests/requirements.txt
	.venv/bin/pip install --quiet --no-compile -c constraints.txt -r tests/requirements.txt
	@touch $@

clean: ## Remove everything that make made below the checkout
	@if [ -e $(STATE)/fleet.json ] && [ -x .venv/bin/python ]; then python -m rehearsal down --state $(STATE); fi
	rm -rf .venv .venv-oldest .cache .build .ansible .pytest_cache .ruff_cache .hypothesis tests/output $(STATE)
	find collections/ansible_collections -mindepth 1 -maxdepth 1 ! -name railyard -exec rm -rf {} +
