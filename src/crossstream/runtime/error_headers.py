"""The headers that Kafka Streams gives its dead letters (KIP-1034), for tools that read them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from crossstream.errors import type_and_text
from crossstream.records import Header

STACKTRACE = "__streams.errors.stacktrace"


def as_kafka_says(error: BaseException, place: Mapping[str, object]) -> list[Header]:
    """The headers, as text in UTF-8. Exception and stack trace look as Python shows them.

    ``place``: topic, partition and offset, where they are known.

    >>> place = {"topic": "in", "partition": 0, "offset": 7}
    >>> dict(as_kafka_says(ZeroDivisionError("by zero"), place))["__streams.errors.exception"]
    b'ZeroDivisionError: by zero'
    """
    message = type_and_text(error).partition(": ")[2]
    kind, module = type(error).__qualname__, type(error).__module__
    said: dict[str, object] = {
        "exception": f"{kind if module == 'builtins' else f'{module}.{kind}'}: {message}",
        "message": message,
        "stacktrace": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        **{name: place[name] for name in ("topic", "partition", "offset")},
    }
    return [
        (f"__streams.errors.{name}", str(value).encode(errors="backslashreplace"))
        for name, value in said.items()
        if value is not None
    ]
