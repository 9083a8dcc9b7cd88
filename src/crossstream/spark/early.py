"""What the settings of a session say that Spark would refuse only after seconds, or never: checked before it starts."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from crossstream.errors import ConfigError

_MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.*\]|yarn|[a-z0-9+.-]+://.+")
_SPARK = re.compile(r"spark://([^:/,]+:\d+)(,[^:/,]+:\d+)*")
_MEMORY = re.compile(r"(\d+)([kmgtp]?)b?", re.IGNORECASE)
_FACTORS = {"": 20, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
"""Powers of two; a number without a unit is MiB."""

LEAST_MEMORY = 450 << 20
"""With a smaller heap Spark's driver does not start."""
SECONDS = 1.0
"""How long a master may take to accept a connection. A second try waits longer."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises `ConfigError` CS-230 for a master that does not answer, and for memory or a Python that Spark refuses."""
    master = settings.get("spark.master")
    if master is not None:
        _check_master(str(master))
    for name in ("spark.driver.memory", "spark.executor.memory"):
        if name in settings:
            _check_memory(name, str(settings[name]))
    if master is None or str(master).startswith("local"):
        for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
            if name in settings:
                _check_python(name, str(settings[name]))


def _check_master(master: str) -> None:
    if _MASTER.fullmatch(master) is None or (master.startswith("spark://") and not _SPARK.fullmatch(master)):
        raise _refusal(
            f"spark.master={master!r} is not a master",
            'write "local[*]", "spark://host:7077", "yarn" or "k8s://https://host:6443"',
        )
    if not master.startswith("spark://"):
        return
    hosts = master.removeprefix("spark://").split(",")
    with ThreadPoolExecutor(len(hosts)) as pool:
        faults = dict(zip(hosts, pool.map(_fault, hosts), strict=True))
    if all(faults.values()):
        said = ", ".join(f"{host}: {fault}" for host, fault in faults.items())
        raise _refusal(
            f"no Spark master answers at {master} ({said})",
            "start the master, or correct spark.master; without it Spark runs in this process",
        )


def _fault(address: str) -> str | None:
    """Why no connection is made; None: there is one."""
    host, _, port = address.rpartition(":")
    fault = None
    for seconds in (SECONDS, 3 * SECONDS):
        try:
            socket.create_connection((host, int(port)), seconds).close()
            return None
        except TimeoutError:
            fault = "no answer"
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)
    return fault


def _check_memory(name: str, text: str) -> None:
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise _refusal(f"{name}={text!r} is not an amount of memory", f'write {name}="2g" or "800m"')
    size = int(found[1]) << _FACTORS[found[2].lower()]
    if size < LEAST_MEMORY:
        raise _refusal(
            f"{name}={text!r} is too little: Spark needs {LEAST_MEMORY >> 20} MiB to start",
            f'write {name}="2g", or leave it out',
        )


def _check_python(name: str, command: str) -> None:
    """Refuses a program that is missing, and a Python of another version: it could not read our functions."""
    if command == sys.executable:
        return
    path = shutil.which(command)
    if path is None:
        raise _refusal(f"{name}={command!r} is not a program on this machine", f"leave {name} out")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return  # Spark says what is wrong with it
    version, own = done.stdout.strip(), f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != own:
        other = f"Python {version}" if version else "not a Python that runs"
        raise _refusal(
            f"{name}={command!r} is {other}, and this process is Python {own}",
            f"leave {name} out: the workers run {sys.executable}",
        )


def _refusal(what: str, step: str) -> ConfigError:
    return ConfigError(what, code="CS-230", next=step)
