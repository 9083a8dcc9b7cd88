"""How much the laws on the driver are tried.

``make test`` tries the same 30 cases of each law every time, ``make test-fast`` 7; ``make test-nightly``
tries 3,000, others each time, and prints the seed. A failure it finds becomes an `@example`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


def cases(share: float = 1.0) -> settings:
    """Settings for a law: its share of the usual number of cases, for one whose cases take more or less time."""
    default = settings.default
    assert default is not None
    fresh = default.max_examples > 1000  # the profile is the nightly one
    count = default.max_examples * share * (1.0 if fresh else 0.6)
    return settings(
        max_examples=max(3, round(count)),  # the first of Hypothesis is the simplest there is
        derandomize=not fresh,
        print_blob=fresh,
        suppress_health_check=_SLOW,
    )


law = cases()
