"""Where `to_postgres` connects; what it refuses before; and that no password is seen anywhere."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.api import lakehouse
from crossstream.catalog.planners import plan_topology
from tests.databases.tables import PostgresLives, Tables
from tests.lakehouse.test_tables import ORDER, TEXT, order, pipe, topology

SECRET = "s3cret"
UNREADABLE = [
    f"postgresql://user:{SECRET}@x@db/shop",
    f"postgresql://user:{SECRET}/x@db/shop",
    f"postgresql://user:%zz{SECRET}@db/shop",
    f"host=db passwrd={SECRET}",
    f"host=db password={SECRET} {SECRET}",
    f"host=db password='{SECRET}",
]


def table() -> cs.KTable[Any, Any]:
    return cs.StreamsBuilder().table("orders", cs.Consumed(key=TEXT, value=ORDER))


@pytest.mark.parametrize("dsn", UNREADABLE)
def test_a_dsn_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        table().to_postgres(dsn, "orders")
    assert caught.value.code == "CS-101"
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        assert SECRET not in repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("dsn", [None, 7, Path("db")])
def test_a_dsn_is_text(dsn: Any) -> None:
    with pytest.raises(cs.TopologyError, match="the DSN is a"):
        table().to_postgres(dsn, "orders")


@pytest.mark.parametrize(
    "name", ["", ".", "shop.", ".orders", "a.b.c", "n" * 64, f"s.{'é' * 32}", "a\0b", None, 7]
)
def test_names_of_no_table(name: Any) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        table().to_postgres("", name)
    assert caught.value.code == "CS-101"


def test_what_is_refused_as_for_a_lake() -> None:
    with pytest.raises(cs.TopologyError, match="key=None leaves it out"):
        table().to_postgres("", "orders", key=None)
    with pytest.raises(cs.TopologyError) as caught:
        cs.StreamsBuilder().table("orders", cs.Consumed(key=TEXT, value=serdes.json())).to_postgres(
            "", "orders"
        )
    assert caught.value.code == "CS-116"


def test_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(lakehouse, "find_spec", lambda name: None if name == "psycopg" else find(name))
    with pytest.raises(cs.ConfigError) as caught:
        table().to_postgres("", "orders")
    assert (caught.value.code, "crossstream[postgres]" in str(caught.value.next)) == ("CS-201", True)


def test_the_environment_says_where(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the process that runs the application: when the topology is built nothing is known."""
    parts = dict(pair.split("=", 1) for pair in tables.dsn.split())
    names = {
        "host": "PGHOST",
        "port": "PGPORT",
        "user": "PGUSER",
        "password": "PGPASSWORD",
        "dbname": "PGDATABASE",
    }
    of_environment = Tables("", tables.schema)
    built = topology(of_environment)
    with pytest.raises(cs.SinkError) as caught:
        pipe(built, [("a", order("x", 1.0))])
    assert caught.value.code == "CS-665"
    for name, variable in names.items():
        monkeypatch.setenv(variable, parts[name])
    pipe(built, [("a", order("x", 1.0))])
    assert tables.tuples("orders") == [("a", "x", 1.0)]


def test_a_server_that_does_not_answer(tables: Tables) -> None:
    elsewhere = Tables(f"host=127.0.0.1 port=1 user=u password={SECRET}", tables.schema)
    with pytest.raises(cs.SinkError) as caught:
        pipe(topology(elsewhere), [("a", order("x", 1.0))])
    assert (caught.value.code, SECRET in str(caught.value)) == ("CS-665", False)


def test_a_password_is_seen_nowhere(lives: PostgresLives, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the state, nor the plan, the drawings, the log, or an error of a password that is wrong."""
    caplog.set_level(logging.DEBUG)
    password = lives.lake.dsn.split("password=")[1].split()[0]
    built = lives.topology()
    lives.append("a")
    lives.run(topology=built)
    drawn = (
        built.describe(),
        built.to_mermaid(),
        built.to_dot(),
        str(built.to_dict()),
        plan_topology(built).text(),
    )
    for text in (*drawn, repr(list(built)), caplog.text):
        assert password not in text
    for path in lives.world.root.rglob("*"):
        assert not path.is_file() or password.encode() not in path.read_bytes(), path
    lives.lake.dsn = lives.lake.dsn.replace(password, SECRET)
    with pytest.raises(cs.SinkError) as caught:
        lives.run()
    assert (caught.value.code, "password authentication failed" in str(caught.value)) == ("CS-665", True)
    assert SECRET not in f"{caught.value!r}{caught.value}{caught.value.__cause__}"
