"""Compiles the library into the wheel: a C compiler is all that is needed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread"]


def compile(root: Path, library: Path) -> None:
    """CC and CFLAGS of the environment count."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = [str(source) for source in sorted((root / "src").glob("*.c"))]
    more = shlex.split(os.environ.get("CFLAGS", ""))
    subprocess.run([*compiler, *FLAGS, *more, "-o", str(library), *sources, "-ldl"], check=True)


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """One library for all versions of Python: it does not know Python."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        package = Path("crossstream_native") / "libcrossstream_native.so"
        compile(root, root / package)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(str(package))
