"""How much the laws on the driver are tried.

``make test`` tries the same few cases of each every time; ``pytest tests/laws --hypothesis-profile=nightly``
tries thousands, others each time. A failure it finds becomes an `@example`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

CASES = 60
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


def cases(share: float = 1.0) -> settings:
    """Settings for a law: its share of the usual number of cases, for one whose cases take longer."""
    default = settings.default
    assert default is not None
    if default.max_examples > 1000:
        count = round(default.max_examples * share)
        return settings(max_examples=count, print_blob=True, suppress_health_check=_SLOW)
    return settings(max_examples=round(CASES * share), derandomize=True, suppress_health_check=_SLOW)


law = cases()
