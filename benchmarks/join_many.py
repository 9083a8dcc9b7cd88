"""`crossstream bench join_many`: orders with customer, product and store, in one operator and in three joins, chained.

The same results three ways, same machine, data and broker, in turn: `join_many`, three foreign-key joins of ours, and
three of Kafka Streams. ``left``: updates, no orders there yet; ``later``: when all are there; ``pairs``: as ``later``,
but all sides run at once and get the same updates in turn, seconds apart, for the speed of a shared machine changes
from minute to minute; ``fan-out``: right rows change. ``engine`` counts the processor time of the operators alone, in
the test driver. With ``--sides`` also crossstream-many-callables and crossstream-chain-callables, which take callables
on untyped JSON where the others take expressions on typed JSON; and crossstream-orders, but for ``fan-out``: the orders
read, kept and written, and joined with nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

from benchmarks.arguments import parse
from benchmarks.data import START_MS, Message
from benchmarks.fk import PEER_SETTINGS, Bench, Sizes, leaving, machine
from benchmarks.generate import Sending, Sent, Topics, create, create_more
from benchmarks.join_many_app import KEPT, TABLES, TAKEN, OursMany
from benchmarks.join_many_engine import measure
from benchmarks.peers.kafka_streams import peer
from benchmarks.star_data import Star, StarEnds, order_updates, orders_and_updates, rows_of
from benchmarks.waiting import PARTITIONS

SIDES = ("crossstream-many", "crossstream-chain", "kafka-streams")
ALONE = "crossstream-orders"
LATER = START_MS + 86_400_000
_CHUNK = 20_000


@dataclass(frozen=True, slots=True)
class StarSizes:
    """How much of everything. ``changes``: new rows of each right table in the measure of fan-out."""

    star: Star
    updates: int
    changes: dict[str, int]

    @classmethod
    def scaled(cls, scale: float) -> StarSizes:
        full = Star()
        counts = {name: max(100, int(full.rows(name) * scale)) for name in full.__dataclass_fields__}
        star = Star(**counts)
        # every table's changes reach about a fifth of the orders
        changes = {table: max(1, star.rows(table) // 5) for table in TABLES.values()}
        return cls(star, int(1_000_000 * scale), changes)


class StarBench(Bench):
    """`Bench` with four topics."""

    def __init__(self, sizes: StarSizes, port: int, rounds: int, sides: Sequence[str]) -> None:
        super().__init__(Sizes(), port, rounds, sides)
        self.star = sizes
        self.ends = StarEnds.of(PARTITIONS)

    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        topics = Topics.of(prefix)
        if not name.startswith("kafka-streams"):
            how = name.removeprefix("crossstream-")
            return OursMany(self.servers, prefix, topics, functions=how, warm_up=warm)
        rights = {"right": prefix, "warm-right": warm.prefix}
        taken = [",".join(f"{name}={to}" for to, name in TAKEN[side].items()) for side in TABLES]
        return peer.KafkaStreamsPeer(
            self.servers,
            prefix,
            topics,
            mode="fk-chain",
            warm_up=warm,
            foreign_key=",".join(f"{side}_id" for side in TABLES),
            settings={"consumer.isolation.level": "read_committed", **PEER_SETTINGS[name]},
            arguments={
                **{
                    name: ",".join(f"{of}-{table}" for table in TABLES.values())
                    for name, of in rights.items()
                },
                "kept": ",".join(KEPT),
                "taken": ";".join(taken),
            },
        )

    def warm_topics(self) -> Sent:
        """Topics to warm up with. The ends have keys of their own: their results come when all others have."""
        star, ends = self.star, StarEnds.of(PARTITIONS, "warm-end")
        prefix = self.prefix("warm")
        self.fill(prefix)
        with Sending(self.servers, prefix) as sending:
            sending.orders(order_updates(star.star, star.updates, 1, START_MS))
            for table in TABLES.values():
                sending.send(f"{prefix}-{table}", [ends.right_messages(table, START_MS)])
            sending.orders([ends.order_messages(START_MS)])
        return self._sent(sending, ends)

    def fill(self, prefix: str, orders: Iterable[list[Message]] = (), append_time: bool = False) -> Sent:
        """Makes the topics and sends all right rows, then ``orders``, and the ends."""
        star, topics = self.star.star, Topics.of(prefix)
        create(self.servers, topics, PARTITIONS, append_time)
        create_more(self.servers, [f"{prefix}-products", f"{prefix}-stores"], PARTITIONS)
        with Sending(self.servers, prefix) as sending:
            for table in TABLES.values():
                sending.send(f"{prefix}-{table}", [rows_of(table, range(star.rows(table)), 1)])
                sending.send(f"{prefix}-{table}", [self.ends.right_messages(table, START_MS)])
            sending.orders(orders)
            sending.orders([self.ends.order_messages(START_MS)])
        return self._sent(sending, self.ends)

    def update(self, prefix: str, updates: Iterable[list[Message]]) -> Sent:
        """Updates of orders, all visible at once, and the ends."""
        with Sending(self.servers, prefix, at_once=True) as sending:
            sending.orders(updates)
            sending.orders([self.ends.order_messages(LATER + self.star.updates)])
        return self._sent(sending, self.ends)

    def change(self, prefix: str, table: str, seed: int) -> Sent:
        """New rows of a right table, all visible at once, and the ends."""
        count, rows = self.star.changes[table], self.star.star.rows(table)
        numbers = range(0, rows, max(1, rows // count))[:count]
        with Sending(self.servers, prefix, at_once=True) as sending:
            sending.send(f"{prefix}-{table}", [rows_of(table, numbers, seed, LATER)])
            sending.send(f"{prefix}-{table}", [self.ends.right_messages(table, LATER + count, seed)])
        return self._sent(sending, self.ends)

    @staticmethod
    def _sent(sending: Sending, ends: StarEnds) -> Sent:
        return Sent(sending.topics, 0, 0, ends.results, time.monotonic() - sending.began, sending.visible)

    def left_updates(self) -> None:
        """Left updates per second, and core-seconds per million of them, when there are no orders before."""
        star = self.star
        for side in self.turns():
            updates = order_updates(star.star, star.updates, 2, LATER)
            self._updates("left updates", side, (), updates)

    def later_updates(self) -> None:
        """Likewise, when all orders are there and most updates leave their foreign keys as they are."""
        star = self.star
        for side in self.turns():
            orders, updates = orders_and_updates(star.star, star.updates, 2, START_MS, LATER)
            self._updates("updates of orders that are there", side, orders, updates)

    def _updates(
        self, what: str, side: str, orders: Iterable[list[Message]], updates: Iterable[list[Message]]
    ) -> None:
        prefix = self.prefix("many")
        fill = partial(self.fill, prefix, orders, append_time=True)
        running, manager = self.caught_up(prefix, fill, side)
        with leaving(manager):
            time.sleep(2)
            took = self.timed(running, partial(self.update, prefix, updates), f"{prefix}-results")
        self._note(what, side, self.star.updates, took)

    def pairs(self) -> None:
        """As `later_updates`, of all sides at once, each given its updates while the others have none.

        Before each of its turns a side gets a twentieth of them uncounted: Spark has ended Python workers that had
        nothing to do for a minute. The first turn of all sides is not counted. In every second turn the last side is
        the first.
        """
        star, waking = self.star, self.star.updates // 20
        sides: list[tuple[str, str, Any, Iterator[Message]]] = []
        with ExitStack() as stack:
            for side in self.sides:
                prefix, count = self.prefix("pairs"), (self.rounds + 1) * (star.updates + waking)
                orders, updates = orders_and_updates(star.star, count, 2, START_MS, LATER)
                running, manager = self.caught_up(prefix, partial(self.fill, prefix, orders, True), side)
                stack.enter_context(leaving(manager))
                sides.append((side, prefix, running, chain.from_iterable(updates)))
            for turn in range(self.rounds + 1):
                self._for_nothing = turn == 0
                for side, prefix, running, mine in sides[:: -1 if turn % 2 else 1]:
                    for count in (waking, star.updates):
                        given = partial(self.update, prefix, next_updates(mine, count))
                        took = self.timed(running, given, f"{prefix}-results")
                    self._note("updates in pairs", side, star.updates, took)

    def fan_out(self) -> None:
        """Results per second, and core-seconds per million of them, when rows of the right tables change in turn."""
        for side in self.turns():
            self._fan_out(side, self.prefix("wide"))

    def _fan_out(self, side: str, prefix: str) -> None:
        star = self.star.star
        orders = order_updates(star, star.orders, 1, START_MS)
        fill = partial(self.fill, prefix, orders, append_time=True)
        running, manager = self.caught_up(prefix, fill, side)
        total: dict[str, float] = {}
        with leaving(manager):
            for seed, table in enumerate(TABLES.values(), 10):
                time.sleep(2)
                took = self.timed(
                    running,
                    partial(self.change, prefix, table, seed),
                    f"{prefix}-results",
                )
                results = star.orders * self.star.changes[table] / star.rows(table)
                self._note(f"results of new {table}", side, results, took)
                for name, number in {**took, "results": results}.items():
                    total[name] = total.get(name, 0.0) + number
        self._note("results of all new right rows", side, total.pop("results"), total)

    def _note(self, what: str, side: str, count: float, took: dict[str, float]) -> None:
        cores = (took["side_cpu"] + took["broker_cpu"]) * 1_000_000 / count
        self.note(f"{what} per second", side, count / took["seconds"], **took)
        self.note(f"core-seconds per million {what}", side, cores)


def next_updates(messages: Iterator[Message], count: int) -> Iterator[list[Message]]:
    """The next ``count`` of them, some thousands at a time."""
    for start in range(0, count, _CHUNK):
        yield list(islice(messages, min(_CHUNK, count - start)))


FIGURES = {
    "left": StarBench.left_updates,
    "later": StarBench.later_updates,
    "pairs": StarBench.pairs,
    "fan-out": StarBench.fan_out,
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv, "join_many", __doc__, "figures", ("engine", *FIGURES), SIDES, 19492)
    print(json.dumps(machine()), flush=True)
    if "engine" in arguments.figures:
        for line in measure(arguments.scale):
            print(json.dumps(line), flush=True)
    figures = [figure for figure in arguments.figures if figure in FIGURES]
    if ALONE in arguments.sides and "fan-out" in figures:
        print(f"without fan-out: no right row reaches {ALONE}")
        figures.remove("fan-out")
    if not figures:
        return 0
    sizes = StarSizes.scaled(arguments.scale)
    with closing(StarBench(sizes, arguments.port, arguments.rounds, arguments.sides)) as bench:
        for figure in figures:
            FIGURES[figure](bench)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
