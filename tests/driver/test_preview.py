"""`preview`: a stream or a table on the first records of its topics, and what a notebook shows of it."""

from __future__ import annotations

import json
import re
import sys
import time
from types import SimpleNamespace

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.html import html_of, show_live
from crossstream.filetopics import FileTopics
from crossstream.metrics.observation import Progress, Running
from tests.cli.cases import call

JSON = cs.Consumed(key=serdes.string(), value=serdes.json())
CUSTOMERS = [("c0", {"name": "Ada"}, 0), ("c1", {"name": "Bob"}, 1)]
ORDERS = [(f"o{n}", {"customer": f"c{n % 2}", "total": n}, 1000 * n) for n in range(20)]


@pytest.fixture
def topics(tmp_path, capsys):
    folder = tmp_path / "topics"
    for topic, partitions, records in (("customers", 1, CUSTOMERS), ("orders", 3, ORDERS)):
        FileTopics(str(folder)).log().create_topic(topic, partitions)
        lines = [json.dumps({"key": k, "value": v, "timestamp": t}) for k, v, t in records]
        (tmp_path / "lines").write_text("\n".join(lines))
        assert call(capsys, "topics", "write", topic, tmp_path / "lines", "--topics-dir", folder).code == 0
    return folder


def joined(builder: cs.StreamsBuilder) -> cs.KTable:
    orders, customers = builder.table("orders", JSON), builder.table("customers", JSON)
    return orders.join(
        customers,
        lambda order, customer: {**order, **customer},
        foreign_key=lambda order: order["customer"],
        materialized=cs.Materialized(store="result"),
    )


def test_a_global_table_and_a_view_show_their_rows(topics):
    builder = cs.StreamsBuilder()
    orders, customers = builder.global_table("orders", JSON), builder.global_table("customers", JSON)
    view = orders.join(
        customers,
        lambda order, customer: {**order, **customer},
        key_selector=lambda key, order: order["customer"],
    )
    assert customers.preview(10, topics_dir=topics).rows() == CUSTOMERS
    assert view.preview(2).rows() == [
        ("o0", {"customer": "c0", "total": 0, "name": "Ada"}, 0),
        ("o1", {"customer": "c1", "total": 1, "name": "Bob"}, 1000),
    ]
    shown = view._repr_html_()
    assert "GlobalKTable" in shown
    assert "Bob" in shown
    assert "<svg" in shown
    assert "preview(10" in orders._repr_html_()
    assert set(builder._draft.nodes) == {"orders", "customers", view._node.name}, "the builder is unchanged"


def test_the_first_records_of_each_topic_go_in(topics):
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", JSON)
    found = orders.preview(4, topics_dir=topics)
    assert found.rows() == [(key, value, stamp) for key, value, stamp in ORDERS[:4]]
    assert found.schema == {
        "key": pl.String,
        "value": pl.Struct({"customer": pl.String, "total": pl.Int64}),
        "timestamp": pl.Int64,
    }
    assert orders.preview(topics_dir=str(topics)).height == 10
    assert orders.preview(100).height == len(ORDERS), "the builder remembers where the topics are"


def test_a_table_has_its_rows_at_the_end_and_a_stream_all_records(topics):
    table = joined(cs.StreamsBuilder())
    rows = table.preview(3, topics_dir=topics)
    assert rows["key"].to_list() == ["o0", "o1", "o2"]
    assert rows["value"].to_list()[1] == {"customer": "c1", "total": 1, "name": "Bob"}
    by_name = table.to_stream().group_by(
        lambda key, value: value["name"], cs.Grouped(key=serdes.string(), value=serdes.json())
    )
    assert dict(by_name.count().preview(5).select("key", "value").rows()) == {"Ada": 3, "Bob": 2}
    windows = by_name.windowed_by("4 seconds").count().preview(6)
    assert windows["key"][0] == {"key": "Ada", "start": 0, "end": 4000}


def test_values_without_serde_or_of_several_types_are_shown(topics):
    stream = cs.StreamsBuilder().stream("orders", JSON)
    mixed = stream.map(lambda key, order: (order["total"], [order["customer"], order["total"]]))
    assert mixed.preview(1, topics_dir=topics).rows() == [(0, '["c0",0]', 0)]
    gone = stream.map_values(lambda order: None)
    assert gone.preview(1).rows() == [("o0", None, 0)]
    assert stream.filter(lambda order: False).preview(1).rows() == []


def test_the_topology_is_unchanged_and_what_follows_does_not_run(topics):
    builder, seen = cs.StreamsBuilder(), []
    stream = builder.stream("orders", JSON).filter(lambda order: order["total"] > 1)
    stream.foreach(lambda key, order: seen.append(key))
    stream.to("out")
    before = builder.build().describe()
    assert stream.preview(4, topics_dir=topics)["key"].to_list() == ["o2", "o3"]
    assert (builder.build().describe(), seen) == (before, [])
    assert sorted(FileTopics(str(topics)).log().topics()) == ["customers", "orders"]


def test_a_config_says_where_the_topics_are_and_what_becomes_of_bad_records(topics):
    config = cs.StreamsConfig(application_id="a", topics_dir=topics, processing_errors="skip")
    stream = cs.StreamsBuilder().stream("orders", JSON).map_values(lambda order: 6 // order["total"])
    assert stream.preview(3, config)["value"].to_list() == [6, 3]
    with pytest.raises(cs.ProcessingError) as failed:
        stream.preview(3, topics_dir=topics)
    assert (failed.value.code, failed.value.where["key"]) == ("CS-501", "o0")


@pytest.mark.parametrize(
    ("arguments", "settings", "code"),
    [
        ((), {}, "CS-203"),
        ((0,), {"topics_dir": "t"}, "CS-201"),
        ((True,), {"topics_dir": "t"}, "CS-201"),
        ((5, "topics"), {}, "CS-201"),
        ((5, cs.StreamsConfig(application_id="a")), {}, "CS-203"),
        ((5, cs.StreamsConfig(application_id="a", topics_dir="t")), {"topics_dir": "t"}, "CS-203"),
    ],
)
def test_wrong_arguments_name_the_line(arguments, settings, code):
    stream = cs.StreamsBuilder().stream("orders", JSON)
    with pytest.raises(cs.ConfigError) as refused:
        stream.preview(*arguments, **settings)
    assert refused.value.code == code
    assert __file__ in str(refused.value.where["line"])


def test_a_missing_topic_is_named(topics):
    with pytest.raises(cs.SourceError, match="there is no topic 'bills'") as missing:
        cs.StreamsBuilder().stream("bills", JSON).preview(topics_dir=topics)
    assert "customers, orders" in missing.value.next


def test_a_notebook_shows_a_table_its_rows_and_its_drawing(topics):
    table = joined(cs.StreamsBuilder())
    before = table._repr_html_()
    assert "KTable" in before
    assert "store: result" in before
    assert "<svg" in before
    assert "preview(10" in before
    table.preview(12, topics_dir=topics)
    after = table._repr_html_()
    assert after.count("<tr>") == 11
    assert "from the first 12 records of each topic, of 12 rows" in after


def test_what_a_topic_holds_is_no_markup(topics, tmp_path, capsys):
    (tmp_path / "lines").write_text(json.dumps({"key": "<script>alert(1)</script>", "value": {"a": "<b>"}}))
    FileTopics(str(topics)).log().create_topic("evil", 1)
    assert call(capsys, "topics", "write", "evil", tmp_path / "lines", "--topics-dir", topics).code == 0
    stream = cs.StreamsBuilder().stream("evil", JSON)
    stream.preview(topics_dir=topics)
    assert "<script>" not in stream._repr_html_()
    assert "&lt;script&gt;" in stream._repr_html_()


def test_a_notebook_shows_the_first_rows_of_a_store(topics):
    builder = cs.StreamsBuilder()
    builder.table("orders", JSON, cs.Materialized(store="orders"))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders", serdes.string(), serdes.json()).pipe_records(ORDERS)
        store = driver.get_key_value_store("orders")
        html = store._repr_html_()
        assert store.count() == 20
    assert html.count("<tr>") == 11
    assert "20 rows" in html


def application(status: str = "running") -> SimpleNamespace:
    progress = Progress(
        batch=3,
        rows=10,
        seconds=0.5,
        rows_in={"orders": 10},
        rows_out={"out": 7},
        state_rows={"s": 9},
        state_bytes={"s": 99},
        phases={"run": 1.0},
        lag=4,
        total_rows=40,
    )
    config = SimpleNamespace(application_id="promo")
    return SimpleNamespace(
        status=status, progress=progress, running=Running(4, time.time() - 3, 4381), config=config
    )


def test_a_notebook_shows_an_application():
    text = re.sub(r"<[^>]*>", " ", html_of(application()))
    for expected in (
        "promo",
        "running · 40 records so far · 4 waiting",
        "batch 4 running: 4,381 records, 3 s",
    ):
        assert expected in text
    assert "batch 3: 10 records in 0.5 s (run 1 ms)" in text


def test_the_output_of_a_cell_follows_the_application_to_its_end(monkeypatch):
    shown: list[str] = []
    app = application()

    def update(html: str) -> None:
        shown.append(html)
        app.status = "failed"

    handle = SimpleNamespace(update=update)
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    notebook = SimpleNamespace(HTML=str, display=lambda html, display_id: shown.append(html) or handle)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    show_live(app)
    deadline = time.monotonic() + 10
    while len(shown) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ["running" in shown[0], "running" in shown[1], "failed" in shown[2]] == [True] * 3
    kernel.get_ipython = lambda: SimpleNamespace()
    with pytest.raises(NotImplementedError):
        show_live(app)
