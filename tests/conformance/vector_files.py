"""The recorded cases of `vectors/`, as dicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "vectors"


def all_cases() -> list[dict[str, Any]]:
    """Every case of every file, files by name, cases as they stand there."""
    return [
        case
        for file in sorted(FOLDER.glob("*.json"))
        for case in json.loads(file.read_text(encoding="utf-8"))["cases"]
    ]
