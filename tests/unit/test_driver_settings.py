"""What the test driver refuses, in the line that says it: settings, topics, records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)


def relay() -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream("in", CONSUMED).to("out", PRODUCED)
    return builder.build()


def refused(code: str, act: Callable[[], object], *words: str) -> None:
    """``act()`` raises an error of this code, with these words, that says where and what next."""
    with pytest.raises(cs.ConfigError) as caught:
        act()
    error = caught.value
    assert error.code == code, str(error)
    assert str(error.where["line"]).startswith(__file__)
    assert error.next
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("setting", ["deserialization_errors", "processing_errors"])
@pytest.mark.parametrize(
    "policy", ["Fail", "ignore", None, True, "dead-letter", "dead-letter:bad", cs.DeadLetter, ["fail"]]
)
def test_policies_are_those_of_the_configuration(setting: str, policy: Any) -> None:
    settings: dict[str, Any] = {setting: policy}
    for act in (
        lambda: cs.TopologyTestDriver(relay(), **settings),
        lambda: cs.StreamsConfig(application_id="promo", **settings),
    ):
        refused("CS-205", act, setting, repr(policy), "'fail' or 'skip' or DeadLetter(topic)")
