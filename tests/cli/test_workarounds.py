"""`examples/workarounds.py`: where each work-around gives the rows of the foreign-key join, and where it differs."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest

from crossstream.cli.loading import execute
from tests.cli.cases import ROOT

Change = tuple[str, str, dict[str, Any] | None]


@pytest.fixture(scope="module")
def workarounds() -> ModuleType:
    return execute(ROOT / "examples" / "workarounds.py")


def product(rng: Random, version: int) -> Change:
    """A product that appears, changes, moves, loses its merchant or is deleted."""
    key, merchant = f"p{rng.randrange(6)}", rng.choice(["m0", "m1", "m2", "m3", None])
    row = {"version": version, "name": f"n{version}", "merchant": merchant}
    return "products", key, None if rng.random() < 0.2 else row


def merchant(rng: Random, version: int) -> Change:
    return "merchants", f"m{rng.randrange(4)}", None if rng.random() < 0.3 else {"name": f"shop {version}"}


def at_the_last_change(changes: list[Change]) -> dict[str, dict[str, Any]]:
    """Each product with its merchant of the moment when the product changed last."""
    merchants: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for topic, key, value in changes:
        if topic == "merchants":
            merchants[key] = value
        else:
            shop = None if value is None else merchants.get(value["merchant"])
            rows[key] = (
                None if value is None or shop is None else {"name": value["name"], "shop": shop["name"]}
            )
    return {key: row for key, row in rows.items() if row is not None}


@pytest.mark.parametrize("every", [1, 7, 1_000])
@pytest.mark.parametrize("seed", range(3))
def test_the_grouped_map_gives_the_rows_of_the_foreign_key_join(workarounds, seed: int, every: int) -> None:
    rng = Random(seed)
    changes = [rng.choice([product, product, merchant])(rng, number) for number in range(60)]
    rows = workarounds.result_of(workarounds.foreign_key_join(), changes, every)
    assert rows
    assert workarounds.result_of(workarounds.grouped_map(), changes, every) == rows


@pytest.mark.parametrize("name", ["global-table", "rekeyed-stream"])
@pytest.mark.parametrize("seed", range(3))
def test_the_others_give_them_while_only_products_change(workarounds, name: str, seed: int) -> None:
    rng = Random(seed)
    changes = [merchant(rng, number) for number in range(8)] + [product(rng, 8 + n) for n in range(40)]
    rows = workarounds.result_of(workarounds.foreign_key_join(), changes)
    assert rows
    assert workarounds.result_of(workarounds.WORKAROUNDS[name](), changes) == rows


@pytest.mark.parametrize("name", ["global-table", "rekeyed-stream"])
def test_the_others_keep_the_merchant_of_the_last_change_of_a_product(workarounds, name: str) -> None:
    rng = Random(1)
    changes = [rng.choice([product, merchant])(rng, number) for number in range(60)]
    rows = workarounds.result_of(workarounds.WORKAROUNDS[name](), changes)
    assert rows == at_the_last_change(changes)
    assert rows != workarounds.result_of(workarounds.foreign_key_join(), changes)
