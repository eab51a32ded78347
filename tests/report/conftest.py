# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples and a browser, made once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.page import page
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils import report_fleet

NAMES = (*report_fleet.NAMES, "hostile")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Names that a parser, a terminal or a reader could take for something else.
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u202e{{ 7*7 }}$x_{2}$"


@pytest.fixture(scope="session")
def documents():
    """Proof documents by name, made when asked for."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = report_fleet.document(name) if name != "hostile" else hostile()
        return made[name]

    return get


@pytest.fixture(scope="session")
def pages(documents, tmp_path_factory):
    """Paths of HTML files by name."""
    folder: Path = tmp_path_factory.mktemp("pages")

    def get(name):
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page(documents(name)), encoding="utf-8")
        return path

    return get


def hostile():
    """The faulty sample with a hostile text in place of each one that is no word of our own."""
    words = {
        "pass",
        "fail",
        "unknown",
        "warning",
        "error",
        "info",
        "rail",
        "node",
        "pod",
        "app",
        "full",
        "low",
        "failed",
        "right",
        "wrong",
    }
    kept = {"state", "verdict", "severity", "because", "seen_in", "made_at"}

    def poison(value, key=None):
        if isinstance(value, dict):
            return {name if not _free(name) else f"{HOSTILE}{name}": poison(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [poison(item, key) for item in value]
        if isinstance(value, str) and key not in kept and value not in words:
            return f"{value}{HOSTILE}"
        return value

    return poison(report_fleet.document("faulty"))


def _free(name: str) -> bool:
    """Whether a key is a name from outside: a PCI address or a variable."""
    return ":" in name or name.isupper()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    # On PATH of the user, not of a virtual environment.
    found = next(filter(None, (shutil.which(name) for name in BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed (scripts/system-packages.sh test)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=arguments)
        yield made
        made.close()
