"""What every worker gets, as bytes; and whose fault it is if there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from crossstream.errors import TopologyError, told
from crossstream.serdes.shipping import dumps
from crossstream.spark.worker import Job
from crossstream.topology.graph import Node

_NAMES = {"key": "key serde", "value": "value serde", "topic_of": "topic extractor", "action": "function"}
"""Of parts of a node, where the name of the field does not say what the user passed."""


def packed(job: Job) -> bytes:
    """The job for `pickle.loads` in any worker.

    Raises `TopologyError` CS-112 if something the user passed cannot be sent: it holds an open file, a lock, a
    connection, the Spark session.
    """
    try:
        return dumps(job)
    except Exception:  # whatever the objects' own methods raise
        for node in job.plan.topology:
            for part, error in _unsendable(node):
                raise _refusal(node, part, error) from error
        raise


def _unsendable(node: Node) -> Iterator[tuple[str, Exception]]:
    for field in fields(node):
        try:
            dumps(getattr(node, field.name))
        except Exception as error:  # likewise
            yield field.name, error


def _refusal(node: Node, part: str, error: Exception) -> TopologyError:
    name = _NAMES.get(part, part.replace("_", " "))
    return TopologyError(
        f"the {name} of {node.name} cannot be sent to Spark's workers ({told(error)})",
        code="CS-112",
        where={"operator": node.name, "line": None if node.location is None else str(node.location)},
        next="let each worker make what it holds when it is first needed, in a function with functools.cache "
        "for instance",
    )
