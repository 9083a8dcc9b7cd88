"""How much Hypothesis tries: ``--hypothesis-profile=nightly`` for a long search, of other cases each time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

slow_cases = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", max_examples=60, deadline=None, derandomize=True, suppress_health_check=slow_cases
)
settings.register_profile(
    "nightly", max_examples=3000, deadline=None, print_blob=True, suppress_health_check=slow_cases
)
settings.load_profile("ci")
