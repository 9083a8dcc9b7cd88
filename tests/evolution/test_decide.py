"""What is decided of a change: what is kept, computed, read again, and sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.columns.functions import Function
from crossstream.errors import StateError
from crossstream.evolution.decision import Decision
from crossstream.evolution.matching import family
from crossstream.graph import nodes as graph
from crossstream.graph.node import Graph
from crossstream.serdes.own import known
from crossstream.storage.commit_log import BatchLog
from tests.evolution.kinds import KINDS, LARGE
from tests.evolution.shop import (
    NAMED,
    ORDER,
    ROWS,
    TEXT,
    Shop,
    bill,
    copied,
    joined,
    left_by,
    many,
    note_another_python,
    noted_by,
    other_bill,
    state_of,
    totals,
    typed,
    windowed,
)
from tests.faults.one_process import process

SUBSCRIBED = "orders.join(customers).subscriptions"


def rows_of(decision: Decision) -> dict[str, str]:
    return {node: table.store for node, table in decision.rows.items()}


def results_of(decision: Decision) -> dict[str, str]:
    return {one.place: one.compared for one in decision.results}


@pytest.mark.parametrize("kind", KINDS)
def test_unchanged_code_gives_an_empty_decision(kind: str) -> None:
    build = KINDS[kind][0]
    decision = state_of(build).decide(build())
    assert decision.is_empty
    assert dict(decision.kept) == {name: name for name in decision.before.topology.stores}
    assert not decision.changes


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nothing"])
def test_every_kind_of_change_is_noticed_and_put_into_words(kind: str) -> None:
    before, after = KINDS[kind]
    decision = state_of(before).decide(after())
    assert not decision.is_empty
    assert decision.changes


@pytest.mark.parametrize("kind", KINDS)
def test_each_new_store_is_kept_computed_or_empty_and_each_old_one_kept_or_dropped(kind: str) -> None:
    before, after = KINDS[kind]
    decision = state_of(before).decide(after())
    new = [*decision.kept, *decision.rebuilt, *decision.empty]
    assert sorted(new) == sorted(decision.wanted.topology.stores)
    assert sorted({*decision.kept.values(), *decision.dropped}) == sorted(decision.before.topology.stores)
    assert sorted(new) == sorted(decision.wanted.stores.keys() - copies_of(after()))


def copies_of(topology: cs.Topology) -> set[str]:
    """Stores that are made again in the next batch, whatever changed (decision 0053)."""
    return {name for name, store in plan_topology(topology).stores.items() if store.copies is not None}


def test_another_joiner_keeps_all_and_reads_no_topic() -> None:
    decision = state_of(joined).decide(joined(joiner=other_bill))
    assert not any((decision.rebuilt, decision.dropped, decision.read_again))
    assert rows_of(decision) == {"orders": SUBSCRIBED, "customers": "customers@2"}
    assert decision.rows["orders"].by_second_key
    assert results_of(decision) == {"topic bills": "sink"}


def test_a_result_in_a_store_is_compared_with_that() -> None:
    def before() -> cs.Topology:
        return joined(store="joined")

    decision = state_of(before).decide(joined(store="joined", joiner=other_bill))
    assert decision.rebuilt == ("joined",)
    (result,) = decision.results
    assert (result.compared, result.table) == ("store", "orders.join(customers)")
    assert result.before is not None
    assert result.before.store == "joined"


def test_rows_without_a_foreign_key_are_in_no_store(tmp_path: Path) -> None:
    order = {"customer": None, "shop": "s0", "amount": 1}
    before = left_by(joined(), [*ROWS, ("o99", order, 99)], tmp_path / "one")
    decision = before.decide(joined(joiner=other_bill))
    assert set(decision.read_again) == {"orders"}
    assert rows_of(decision) == {"customers": "customers@2"}
    gone = left_by(joined(), [*ROWS, ("o99", order, 99), ("o99", None, 100)], tmp_path / "two")
    assert rows_of(gone.decide(joined(joiner=other_bill))) == {
        "orders": SUBSCRIBED,
        "customers": "customers@2",
    }


def test_left_rows_of_join_many_are_in_its_rows() -> None:
    decision = state_of(lambda: many("customer")).decide(many("customer", "shop"))
    assert rows_of(decision)["orders"] == "orders.join_many(customer).rows"
    assert set(decision.read_again) == {"shops"}
    assert decision.read_again["shops"].startswith("it is read for the first time")


@pytest.mark.parametrize("kind", ["column-added", "column-removed", "column-renamed", "column-widened"])
def test_another_type_is_read_from_the_bytes_that_are_stored(kind: str) -> None:
    before, after = KINDS[kind]
    decision = state_of(before).decide(after())
    assert not decision.read_again
    assert decision.rows["orders"].store == SUBSCRIBED
    assert decision.rows["orders"].value == after()["orders"].value


def test_another_key_of_a_source_is_read_again() -> None:
    def topology(key: Any) -> cs.Topology:
        builder = cs.StreamsBuilder()
        table = builder.table("orders", cs.Consumed(key=key, value=serdes.json(ORDER)), store="orders")
        table.to_stream().to("bills", cs.Produced(value=serdes.json(ORDER)))
        return builder.build()

    decision = state_of(lambda: topology(TEXT)).decide(topology(serdes.bytes()))
    assert set(decision.read_again) == {"orders"}
    assert decision.rebuilt == ("orders",)


def test_an_aggregate_of_stored_rows_is_computed_from_them_if_no_order_counts() -> None:
    def kept(*names: str) -> Callable[[], cs.Topology]:
        return lambda: totals(*names)

    before = state_of(kept("counts"))
    decision = before.decide(totals("counts", "sums"))
    assert rows_of(decision) == {"orders": "orders@1"}
    assert results_of(decision) == {"topic to-sums": "nothing"}
    in_order = before.decide(totals("counts", "first"))
    assert set(in_order.read_again) == {"orders"}
    assert not in_order.rows


def test_what_is_below_a_stream_is_read_again_with_all_above_it() -> None:
    def topology(size: str) -> cs.Topology:
        shop = Shop.open()
        clicks = shop.builder.stream("clicks", typed({"page": pl.String}))
        named = clicks.join(shop.customers, lambda click, customer: click["page"])
        named.group_by_key(cs.Grouped(key=TEXT, value=serdes.json())).windowed_by(size).count(store="clicks")
        joined_ = shop.orders.join(shop.customers, bill, foreign_key="customer")
        joined_.to_stream().to("bills", cs.Produced(value=serdes.json()))
        return shop.builder.build()

    before = state_of(lambda: topology("1 minute"))
    decision = before.decide(topology("2 minutes"))
    assert set(decision.read_again) == {"clicks", "customers"}
    assert not decision.rows
    assert decision.rebuilt == ("clicks",)
    assert decision.untouched


def test_events_are_not_sent_again_unless_that_is_asked_for() -> None:
    def topology(only: pl.Expr) -> cs.Topology:
        shop = Shop.open()
        shop.orders.to_stream().filter(only).to("bills", cs.Produced(value=serdes.json(ORDER)))
        return shop.builder.build()

    before = state_of(lambda: topology(LARGE))
    decision = before.decide(topology(pl.col("amount") > 5))
    assert decision.events == ("orders.to_stream.filter.to(bills)",)
    assert not any((decision.results, decision.read_again))
    again = before.decide(topology(pl.col("amount") > 5), replay_from=0)
    assert set(again.read_again) == {"orders"}
    assert again.replay_from == 0


@pytest.mark.parametrize("windows", [True, False])
def test_results_of_windows_and_suppressions_are_made_again_of_all_records(windows: bool) -> None:
    def topology(factor: int) -> cs.Topology:
        shop = Shop.open()
        table = shop.orders
        if not windows:
            table = table.suppress(cs.Suppressed.until_time_limit("1 minute"))
            table.to_stream().map_values(lambda order: order["amount"] * factor).to("bills", value=int)
        else:
            grouped = table.to_stream().group_by_key().windowed_by("1 minute").count()
            counts = grouped.map_values(lambda count: count * factor)
            counts.to_stream().to("bills", cs.Produced(value=serdes.int64()))
        return shop.builder.build()

    decision = state_of(lambda: topology(1)).decide(topology(2))
    assert results_of(decision) == {"topic bills": "sink"}
    assert set(decision.read_again) == {"orders"}


def test_a_function_that_gives_the_topic_makes_events() -> None:
    def topology(factor: int) -> cs.Topology:
        shop = Shop.open()
        amounts = shop.orders.to_stream().map_values(lambda order: order["amount"] * factor)
        amounts.to(lambda key, value: "bills", cs.Produced(key=TEXT, value=serdes.int64()))
        return shop.builder.build()

    decision = state_of(lambda: topology(1)).decide(topology(2))
    assert len(decision.events) == 1


def test_map_values_and_peek_leave_rows_rows() -> None:
    def topology(factor: int) -> cs.Topology:
        shop = Shop.open()
        amounts = shop.orders.to_stream().peek(print).map_values(lambda order: order["amount"] * factor)
        amounts.to("bills", cs.Produced(value=serdes.int64()))
        return shop.builder.build()

    decision = state_of(lambda: topology(1)).decide(topology(2))
    assert results_of(decision) == {"topic bills": "sink"}
    assert decision.results[0].table == "orders"


def test_a_new_sink_gets_all_and_one_that_is_gone_is_named() -> None:
    added = state_of(lambda: copied("bills")).decide(copied("bills", "copies"))
    assert results_of(added) == {"topic copies": "nothing"}
    assert added.untouched == ("orders.to_stream.to(bills)",)
    gone = state_of(lambda: copied("bills", "copies")).decide(copied("bills"))
    assert gone.gone == ("orders.to_stream-2.to(copies)",)
    assert not any((gone.results, gone.read_again, gone.rows))


def test_what_is_new_altogether_is_read_as_at_a_first_start() -> None:
    def after() -> cs.Topology:
        shop = Shop.open()
        shop.orders.join(shop.customers, bill, foreign_key="customer").to_stream().to(
            "bills", cs.Produced(value=serdes.json())
        )
        shop.builder.stream("clicks", typed({"page": pl.String})).group_by_key().count(store="per-page")
        return shop.builder.build()

    decision = state_of(joined).decide(after())
    assert decision.begins == ("clicks",)
    assert decision.empty == ("per-page",)
    assert not any((decision.rebuilt, decision.read_again, decision.results))


def test_a_new_name_of_a_source_or_store_keeps_what_it_has() -> None:
    def topology(name: str, store: str) -> cs.Topology:
        builder = cs.StreamsBuilder()
        named = cs.Consumed(key=TEXT, value=serdes.json(ORDER), name=name)
        builder.table("orders", named, store=store).to_stream().to(
            "bills", cs.Produced(value=serdes.json(ORDER))
        )
        return builder.build()

    decision = state_of(lambda: topology("first", "one")).decide(topology("second", "two"))
    assert dict(decision.kept) == {"two": "one"}
    assert dict(decision.sources) == {"second": "first"}
    assert not any((decision.rebuilt, decision.results, decision.dropped))
    assert not decision.is_empty


def test_headers_of_rows_need_a_store_that_has_them() -> None:
    def topology(headers: Any) -> cs.Topology:
        shop = Shop.open()
        result = shop.orders.join(shop.customers, bill, foreign_key="customer", headers=headers)
        result.to_stream().to("bills", cs.Produced(value=serdes.json()))
        return shop.builder.build()

    decision = state_of(lambda: topology(None)).decide(topology("both"))
    assert set(decision.read_again) == {"orders", "customers"}


def test_changed_names_are_computed_again_with_what_is_below() -> None:
    def before() -> cs.Topology:
        return joined(store="joined")

    for name in ("joined", "orders.join(customers)"):
        decision = state_of(before).decide(before(), changed=[name])
        assert set(decision.rebuilt) == {"joined", SUBSCRIBED, "orders.join(customers).references"}
        assert results_of(decision) == {"topic bills": "store"}
    sink = state_of(before).decide(before(), changed=["bills"])
    assert not sink.rebuilt
    assert results_of(sink) == {"topic bills": "store"}
    assert "bills" in state_of(before).text(before(), changed=["bills"])


def test_a_source_that_changed_is_read_again() -> None:
    decision = state_of(joined).decide(joined(), changed=["customers"])
    assert set(decision.read_again) == {"customers"}
    assert "customers@2" in decision.rebuilt


def test_every_function_may_be_taken_for_changed() -> None:
    decision = state_of(joined).decide(joined(), every=True)
    assert set(decision.kept) == {"customers@2"}
    assert results_of(decision) == {"topic bills": "sink"}


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(StateError, match="no store, operator or sink named 'orderz'") as error:
        state_of(joined).decide(joined(), changed=["orderz"])
    assert error.value.code == "CS-752"
    assert "customers@2" in str(error.value)


def test_state_without_a_note_is_refused(tmp_path: Path) -> None:
    before = left_by(joined(), root=tmp_path)
    log = BatchLog(before.world.state_dir)
    found = log.application()
    assert found is not None
    log.write_application(msgspec.structs.replace(found, topology=type(found.topology)()))
    with pytest.raises(StateError, match="does not say which topology") as error:
        before.decide(joined(joiner=other_bill))
    assert error.value.code == "CS-753"


def test_another_python_asks_and_counts_as_unchanged(tmp_path: Path) -> None:
    before = left_by(joined(), root=tmp_path)
    note_another_python(before.world.state_dir, joined())
    decision = before.decide(joined())
    assert decision.is_empty
    assert not decision.changes, "a hash that cannot be compared says nothing"
    (question,) = decision.questions
    assert (question.node, question.role) == ("orders.join(customers)", "joiner")
    assert "Python 3.9" in question.why
    text = " ".join(before.text(joined()).split())
    assert "nothing, if the functions below are as they were" in text
    assert "--changed 'orders.join(customers)'" in text, "as a shell takes it"
    assert "--all computes all functions again" in text


@pytest.mark.parametrize("size", ["1 minute", "5 minutes"])
def test_nothing_of_a_window_is_computed_from_stored_windows(size: str) -> None:
    decision = state_of(lambda: windowed("2 minutes")).decide(windowed(size))
    assert set(decision.read_again) == {"orders"}


@given(st.sampled_from(["join", "left_join", "right_join", "outer_join", "filter", "filter_not", "table"]))
def test_a_family_is_its_own_family(kind: str) -> None:
    assert family(family(kind)) == family(kind)


def test_state_of_two_joiners_is_computed_again_with_either(tmp_path: Path) -> None:
    before = left_by(joined(), root=tmp_path)
    before.world.append(
        "orders", [("o1", {"customer": "c1", "shop": "s1", "amount": 77}, 99)], value=serdes.json()
    )
    process(joined(joiner=other_bill), before.world.config())
    for joiner in (bill, other_bill):
        decision = before.decide(joined(joiner=joiner))
        assert results_of(decision) == {"topic bills": "sink"}
        assert not any((decision.rebuilt, decision.dropped, decision.read_again))


def test_state_that_other_code_filled_is_not_kept(tmp_path: Path) -> None:
    before = left_by(joined(only=LARGE), root=tmp_path)
    process(joined(only=pl.col("amount") > 5), before.world.config())
    decision = before.decide(joined(only=pl.col("amount") > 5))
    assert set(decision.kept) == {"orders@1", "customers@2"}
    assert set(decision.rebuilt) == {
        f"orders.filter.{SUBSCRIBED[7:]}",
        "orders.filter.join(customers).references",
    }


def test_a_restart_of_the_same_code_notes_the_same(tmp_path: Path) -> None:
    before = left_by(joined(), root=tmp_path)
    noted_first = BatchLog(before.world.state_dir).application()
    process(joined(), before.world.config())
    assert BatchLog(before.world.state_dir).application() == noted_first


def test_a_dataframe_cannot_be_read_again() -> None:
    def topology(only: str) -> Graph:
        text: Any = {"key": known(TEXT), "value": known(serdes.json(ORDER))}
        counts: Any = {"operator": "aggregate", "group_key": known(TEXT), "group_values": (text["value"],)}
        nodes: list[graph.Node] = [
            graph.FrameSource(name="rows", **text),
            graph.Aggregate(
                name="counts",
                parents=("rows",),
                shape="table",
                key=known(TEXT),
                value=known(serdes.int64()),
                adders=(Function.of(lambda key, value, total: only, arguments=3),),
                initializer=int,
                store=graph.StoreSpec(name="counts"),
                **counts,
            ),
        ]
        return Graph({node.name: node for node in nodes})

    before = noted_by(topology("a"))
    with pytest.raises(StateError, match="rows of the DataFrame 'rows'") as error:
        before.decide(topology("b"))
    assert error.value.code == "CS-751"
    assert before.decide(topology("a")).is_empty


def test_tables_in_lakes_are_compared_with_a_store_or_with_themselves() -> None:
    pytest.importorskip("deltalake")

    def topology(joiner: Any, **kept: Any) -> cs.Topology:
        shop = Shop.open()
        fields = {"amount": pl.Int64, "name": pl.String}
        result = shop.orders.join(
            shop.customers, joiner, foreign_key="customer", value=serdes.json(fields), **kept
        )
        result.to_delta("lake/bills")
        return shop.builder.build()

    (result,) = noted_by(topology(bill)).decide(topology(other_bill)).results
    assert result.compared == "sink"
    assert result.place.startswith("delta table ")
    stored = noted_by(topology(bill, store="bills")).decide(topology(other_bill, store="bills"))
    assert [one.compared for one in stored.results] == ["store"]


def placed(key: Any, *, by: Callable[..., int] | None) -> cs.Topology:
    """Orders to a topic under keys of a serde, in the partition that a function names."""
    shop = Shop.open()
    shop.orders.to_stream().to("bills", cs.Produced(key=key, partitioner=by))
    return shop.builder.build()


def first(topic: str, key: str, value: Any, partitions: int) -> int:
    return 0


def test_a_partitioner_cannot_be_given_keys_that_another_serde_wrote() -> None:
    """Rows that are gone are deleted where they are, and only the partitioner knows where."""
    before = left_by(placed(None, by=first))
    with pytest.raises(StateError, match="partitioner") as refused:
        before.decide(placed(serdes.json(pl.String), by=first))
    assert refused.value.code == "CS-755"
    assert "topic bills" in refused.value.what
    assert "new topic" in str(refused.value.next)
    assert results_of(before.decide(placed(serdes.json(pl.String), by=None))) == {"topic bills": "sink"}
    assert before.decide(placed(None, by=first)).is_empty
    assert before.decide(placed(None, by=first), changed=["bills"]).results


def test_a_global_table_is_read_from_its_store() -> None:
    def topology(joiner: Any) -> cs.Topology:
        builder = cs.StreamsBuilder()
        customers = builder.global_table("customers", typed(NAMED))
        orders = builder.table("orders", typed(ORDER))
        result = orders.join(customers, joiner, foreign_key="customer")
        result.to_stream().to("bills", cs.Produced(value=serdes.json()))
        return builder.build()

    decision = state_of(lambda: topology(bill)).decide(topology(other_bill))
    assert not decision.read_again
    assert rows_of(decision) == {"customers": "customers@global", "orders": SUBSCRIBED}


def test_a_pattern_of_topics_is_known_by_the_pattern() -> None:
    def topology(name: str) -> cs.Topology:
        builder = cs.StreamsBuilder()
        named = cs.Consumed(key=TEXT, value=serdes.json(ORDER), name=name, offset_reset="latest")
        builder.stream(re.compile("order.*"), named).group_by_key().count(store="counts")
        return builder.build()

    decision = state_of(lambda: topology("first")).decide(topology("second"))
    assert dict(decision.sources) == {"second": "first"}
    assert decision.wanted.starts.sources == ("second",)
    assert not any((decision.begins, decision.rebuilt, decision.read_again))


def test_a_table_that_loads_first_or_begins_later_is_the_same() -> None:
    def topology(**options: Any) -> cs.Topology:
        builder = cs.StreamsBuilder()
        named = cs.Consumed(key=TEXT, value=serdes.json(ORDER), **options)
        builder.table("orders", named, store="orders").to_stream().to("bills", value=serdes.json(ORDER))
        return builder.build()

    assert noted_by(topology()).decide(topology(offset_reset="latest")).is_empty


def test_a_function_of_batches_is_sent_all_rows() -> None:
    def topology(joiner: Callable[..., Any], function: Callable[..., Any]) -> cs.Topology:
        shop = Shop.open()
        result = shop.orders.join(shop.customers, joiner, foreign_key="customer", value=serdes.json())
        result.to_stream().for_each_batch(function)
        return shop.builder.build()

    def write(frame: Any, batch: int) -> None: ...

    def write_more(frame: Any, batch: int) -> None:
        write(frame, batch + 1)

    decision = left_by(topology(bill, write)).decide(topology(other_bill, write))
    assert [one.compared for one in decision.results] == ["nothing"]
    same = left_by(topology(bill, write)).decide(topology(bill, write_more))
    assert same.is_empty
    assert same.changes
