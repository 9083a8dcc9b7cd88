"""What a refusal has: a code, words, the line of the user, and a next step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import crossstream as cs


def check_refused(
    kind: type[cs.CrossStreamError], file: str, code: str, act: Callable[[], object], *words: str
) -> None:
    """``act()`` raises an error of this kind and code, with these words, that says where in ``file`` and what next."""
    with pytest.raises(kind) as caught:
        act()
    error = caught.value
    assert error.code == code, str(error)
    assert str(error.where["line"]).startswith(file)
    assert error.next
    for word in words:
        assert word in str(error)
