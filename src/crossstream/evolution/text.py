"""What `crossstream evolve --dry-run` prints: what is different, and what becomes of state, topics and results."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import quote

from crossstream.evolution.decision import Decision, Match, Result
from crossstream.evolution.estimates import Estimate, estimate
from crossstream.evolution.results import is_sink, sink_text
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.noted import NotedTopology

WIDTH = 80
_NOTHING = "nothing: the state is what the new code needs"
_HOW = {
    "its name": "by its name",
    "its store": "by the name of its store",
    "the same meaning": "for it does the same",
    "its place in the graph": "by its place in the graph",
}


def dry_run(log: BatchLog, decision: Decision) -> str:
    """The text of a decision, at most 80 columns wide, with an estimate of what it costs."""
    return shown(decision, estimate(log, decision))


def shown(decision: Decision, cost: Estimate) -> str:
    """The text of a decision."""
    batch = decision.commit.id
    of_state = f"state after batch {batch}" if batch >= 0 else "state without a batch"
    sections = [("What is different", list(decision.changes) or ["nothing that the code says"])]
    if decision.is_empty:
        sections = sections if decision.changes else []
        to_do = "nothing, if the functions below are as they were" if decision.questions else _NOTHING
        sections.append(("What there is to do", [to_do]))
    else:
        sections += [
            ("What was taken for the same", list(_matched(decision))),
            ("What becomes of the state", list(_state(decision, cost))),
            ("What is read", list(_read(decision, cost))),
            ("What is sent", list(_sent(decision))),
        ]
    sections.append(("Asked", list(_questions(decision))))
    if not decision.is_empty:
        sections.append(("What it takes", [_cost(cost)]))
    head = f"{decision.before.application_id}: {of_state}\n"
    return head + "".join(text for title, lines in sections for text in _section(title, lines))


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    """A title, and its lines; what follows a break in a line stands below its beginning."""
    if not lines:
        return
    yield f"\n{title}\n"
    for line in lines:
        for number, part in enumerate(line.split("\n")):
            indent = "  " if number == 0 else "      "
            wrapped = textwrap.wrap(
                part, WIDTH, initial_indent=indent, subsequent_indent="      ", break_on_hyphens=False
            )
            yield "\n".join(wrapped) + "\n"


def _state(decision: Decision, cost: Estimate) -> Iterator[str]:
    new, old = decision.wanted.topology, decision.before.topology
    named = {one.store for one in (*decision.wanted.readers.values(), *decision.before.readers.values())}
    again = [name for name in decision.rebuilt if name in decision.dropped]
    gone = [name for name in decision.dropped if name not in decision.rebuilt]
    fresh = [name for name in decision.rebuilt if name not in decision.dropped]
    if decision.kept:
        bytes_kept = size(cost.of(set(decision.kept.values())))
        yield f"kept, no row is touched: {_stores(decision.kept, named, new)}; {bytes_kept}"
    renamed = [f"{name} was {was}" for name, was in decision.kept.items() if name != was and name in named]
    if renamed:
        yield f"under another name: {', '.join(renamed)}"
    if again:
        yield f"computed again: {_stores(again, named, new)}"
    if fresh:
        yield f"computed for the first time: {_stores(fresh, named, new)}"
    if decision.empty:
        yield f"begins empty, for all that fills it is new: {_stores(decision.empty, named, new)}"
    if gone:
        yield f"not needed any more: {_stores(gone, named, old)}; {size(cost.of(gone))}"
    if decision.dropped:
        yield "what is replaced or not needed is deleted when no kept batch needs it"


def _stores(names: Iterable[str], named: Collection[str], topology: NotedTopology) -> str:
    """Stores by the names that users gave them; how many others there are, which operators keep for themselves."""
    given = sorted(name for name in names if name in named)
    inner: dict[str, int] = {}
    for name in sorted(name for name in names if name not in named):
        owner = topology.stores[name].node
        inner[owner] = inner.get(owner, 0) + 1
    texts = [f"{number} store{'' if number == 1 else 's'} of {owner}" for owner, number in inner.items()]
    return ", ".join((*given, *texts))


def _read(decision: Decision, cost: Estimate) -> Iterator[str]:
    if not decision.read_again:
        yield "no topic of the input is read again"
    for source, why in sorted(decision.read_again.items()):
        rows = "all rows" if source in cost.unknown else f"at most {_rows(cost.rows.get(source, 0))}"
        yield f"{_topics(decision, source)} from the beginning, {rows}: {why}"
    for node, table in sorted(decision.rows.items()):
        yield f"the rows of {node}, at most {_rows(cost.rows.get(table.store, 0))}, out of the store {table.store}"
    for one in decision.results:
        if one.before is not None:
            rows = _rows(cost.rows.get(one.before.store, 0))
            yield f"what {_place(one)} was sent, at most {rows}, out of the store {one.before.store}"
        elif one.compared == "sink":
            yield f"{_place(one)}, all that is in it, for no store has what it was sent"
    for source in decision.begins:
        yield f"{_topics(decision, source)}: not now, but as at a first start, when the application runs"


def _sent(decision: Decision) -> Iterator[str]:
    for one in decision.results:
        place = _place(one)
        if one.compared == "nothing" and not one.old:
            yield f"{place}: all rows of {one.table}, for the sink is new"
        elif one.compared == "nothing":
            yield (
                f"{place}: all rows of {one.table}, for what the function did with those before is not known;"
                " it does not hear of rows that are gone"
            )
        else:
            yield f"{place}: the rows that differ, and no others: changed, new, and a delete for each that is gone"
    yield from _events(decision)
    if decision.untouched:
        places = sorted(sink_text(decision.wanted.topology, name) for name in decision.untouched)
        yield f"nothing to {', '.join(places)}: the same as before"
    for name in decision.gone:
        place = sink_text(decision.before.topology, name)
        yield f"{place}: gone; what it has stays there, and nothing is written to it any more"
    if not any(map(is_sink, (*decision.wanted.topology.nodes, *decision.before.topology.nodes))):
        yield "nothing: there is no sink"


def _events(decision: Decision) -> Iterator[str]:
    """What sinks of events get, and those below sources that are new."""
    new = decision.wanted.topology
    before = {sink_text(decision.before.topology, node.name) for node in decision.before.topology.nodes}
    for name in decision.events:
        place = sink_text(new, name)
        if decision.replay_from is not None:
            yield f"{place}: its events are sent again, as you asked"
        elif place in before:
            yield f"{place}: its records are events, and none is sent again; from now on the new code makes them"
        else:
            yield f"{place}: it is new, and its records are events: it gets what comes from now on"
    named = {*decision.events, *decision.untouched, *(one.sink for one in decision.results)}
    for node in new.nodes:
        if is_sink(node) and node.name not in named:
            yield f"{sink_text(new, node.name)}: it is new, with all above it: it gets what is read from now on"


def _matched(decision: Decision) -> Iterator[str]:
    """What goes by another name now, but for what follows from its parent; and how many have the name they had."""
    groups: dict[str, list[str]] = {}
    same = sum(match.new == match.old for match in decision.matched.values())
    for match in decision.matched.values():
        if match.new != match.old and not _follows(match, decision.matched, decision.wanted.topology):
            groups.setdefault(match.how, []).append(f"{match.new} was {match.old}")
    for how, texts in groups.items():
        yield f"{_HOW[how]}: {', '.join(texts)}"
    if same:
        others = "other " if groups else ""
        yield f"{same} {others}operator{' is' if same == 1 else 's are'} called as before"


def _follows(match: Match, matches: Mapping[str, Match], topology: NotedTopology) -> bool:
    """Whether an operator has another name only because one above it has."""
    for name in topology.node(match.new).parents[:1]:
        above = matches.get(name)
        if above is not None and match.new.startswith(above.new) and match.old.startswith(above.old):
            return match.new[len(above.new) :] == match.old[len(above.old) :]
    return False


def _questions(decision: Decision) -> Iterator[str]:
    """Functions that cannot be compared, once for each reason; and how to compute again what they made."""
    for why, asked in decision.asked.items():
        yield f"are these functions as they were? They count as unchanged: {why}"
        for one in asked:
            role = one.role.replace("_", " ")
            yield f"the {role} of {one.node}, {one.text}\n--changed {quote(one.node)}"
    if decision.questions:
        yield (
            "if one is not, add what is below it to the command; --all computes all functions again. Rows that come"
            " out the same are not sent"
        )


def _cost(cost: Estimate) -> str:
    if not cost.seconds:
        return "a moment, and no room on the disk"
    by = (
        "at the speed of past batches"
        if cost.measured
        else "a guess: no batch so far was large enough to measure"
    )
    more = f", and what {', '.join(sorted(cost.unknown))} needs" if cost.unknown else ""
    return f"about {time_text(cost.seconds)}{more} ({by}), and about {size(cost.disk)} of disk"


def _topics(decision: Decision, source: str) -> str:
    topics = decision.wanted.topology.node(source).topics
    return f"topic {', '.join(topics)}" if topics else source


def _place(result: Result) -> str:
    return result.place or result.sink


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes, for people.

    >>> size(999), size(48_200_000)
    ('999 bytes', '48.2 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def time_text(seconds: float) -> str:
    """Seconds, for people.

    >>> time_text(2.4), time_text(150.0)
    ('2 seconds', '3 minutes')
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} second{'' if round(seconds) <= 1 else 's'}"
    return f"{-(-int(seconds) // 60)} minutes"
