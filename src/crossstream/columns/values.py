"""A column of values that is decoded at most once, in the form that is asked for first.

Values arrive as wire bytes with a serde, come out of a callable as Python objects and out of an expression as a
Polars series. Each form is made from another when it is first needed, and kept. Picking rows is lazy: rows that are
picked many times (the right side of a fan-out) are decoded once. A joiner that is a callable gets objects of its own,
because it may change its arguments (`own_objects`, decision 0031).

What a function made has no bytes of its own: the reader of its bytes names the serde. Its ``serde``, if there is one,
is that of the type which the function declares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, calls
from crossstream.serdes.contract import EngineSerde, Readers, Serde
from crossstream.serdes.copies import Copy, copier_of
from crossstream.serdes.own import known
from crossstream.storage.columns import cut, take_or_null, valid

Bytes: TypeAlias = Any
"""`pyarrow.LargeBinaryArray`."""


class Values:
    """Values of one column, in the forms given; `serde` is that of the wire form.

    ``objects`` and ``series`` may hold nulls; ``None`` is a null (a tombstone, or a missing side). ``fields``: beside
    ``wire`` a series of some fields, that have been decoded.
    """

    __slots__ = (
        "_base",
        "_chained",
        "_copied",
        "_encoded",
        "_expressed",
        "_given",
        "_nulls",
        "_objects",
        "_partial",
        "_picked",
        "_series",
        "_wire",
        "rows",
        "serde",
    )
    serde: EngineSerde | None
    rows: int
    _wire: Bytes | None
    _objects: list[Any] | None
    _series: pl.Series | None
    _partial: bool
    """Whether the series has some fields only."""
    _expressed: bool
    """Whether the series is what an expression gave."""
    _encoded: tuple[EngineSerde, Bytes] | None
    """The bytes in another serde, once made."""
    _nulls: np.ndarray | None
    _given: np.ndarray | None
    """Of objects that were decoded: which of them a joiner has got."""
    _copied: tuple[list[Any], Copy | None] | None
    """Objects of which copies are given, and what makes these; None: it does not pay."""
    _chained: Sequence[Values]
    """Parts one after the other, each in the form it has."""
    _base: Values | None
    """The values of which rows were ``_picked``."""
    _picked: np.ndarray

    def __init__(
        self,
        serde: Serde | None = None,
        *,
        wire: Bytes | None = None,
        objects: list[Any] | None = None,
        series: pl.Series | None = None,
        fields: pl.Series | None = None,
    ) -> None:
        form: Any = wire if wire is not None else objects if objects is not None else series
        self._begin(serde, len(form))
        self._wire, self._objects = wire, objects
        self._series = series if fields is None else fields
        self._partial = fields is not None
        self._expressed = series is not None and form is series

    def _begin(self, serde: Serde | None, rows: int) -> None:
        self.serde, self.rows = None if serde is None else known(serde), rows
        self._wire = self._objects = self._series = self._encoded = self._nulls = self._given = None
        self._copied = None
        self._base, self._chained = None, ()
        self._partial = self._expressed = False

    def take(self, rows: np.ndarray) -> Values:
        """The rows asked for; a negative number gives a null."""
        if len(rows) == 1 == self.rows and rows[0] == 0:
            return self
        base, picked = self, np.maximum(rows, -1)
        if self._base is not None and not self._is_near():
            base, inner = self._base, self._picked
            picked = np.where(picked < 0, -1, inner[picked]) if len(inner) else picked
        view = _empty(base.serde, len(picked))
        view._base, view._picked = base, picked
        return view

    def _is_near(self) -> bool:
        """Whether rows are better taken of these than of those they were picked of: they are here, and in a row."""
        base: Any = self._base
        others = base._objects is not None or base._series is not None or base._chained
        return self.decoded() is not None or (self._wire is not None and not others)

    def slice(self, start: int, stop: int) -> Values:
        """Rows ``start`` to ``stop``, in the forms that are there."""
        if self._chained:
            return self.take(np.arange(start, stop))
        part = _empty(self.serde, stop - start)
        part._partial, part._expressed, part._base = self._partial, self._expressed, self._base
        part._wire = None if self._wire is None else cut(self._wire, start, stop)
        part._objects = None if self._objects is None else self._objects[start:stop]
        part._series = None if self._series is None else self._series.slice(start, stop - start)
        part._nulls = None if self._nulls is None else self._nulls[start:stop]
        part._given = None if self._given is None else self._given[start:stop]
        if self._encoded is not None:
            part._encoded = self._encoded[0], cut(self._encoded[1], start, stop)
        if self._base is not None:
            part._picked = self._picked[start:stop]
        return part

    def missing(self) -> np.ndarray:
        """Row by row, whether the value is null on the wire or as an object."""
        if self._nulls is None:
            self._nulls = self._find_nulls()
        return self._nulls

    def _find_nulls(self) -> np.ndarray:
        if self._wire is not None:
            return ~valid(self._wire)
        if self._objects is not None:
            return np.fromiter((v is None for v in self._objects), bool, self.rows)
        if self._series is not None:
            return missing_in(self._series)
        if self._base is None:
            return np.concatenate([part.missing() for part in self._chained])
        if not self._base.rows:
            return np.ones(self.rows, bool)
        return np.asarray(self._base.missing()[self._picked] | (self._picked < 0))

    def wire(self, serde: EngineSerde | None = None) -> Bytes:
        """Serialised bytes; ``serde`` None: the one they have, if no function made them. Raises `SerdeError`."""
        if (serde is None or serde is self.serde or serde == self.serde) and not self.made():
            return self._own_wire()
        wanted = self._known_serde() if serde is None else serde
        if self._encoded is None or self._encoded[0] != wanted:
            self._encoded = wanted, self._encode(wanted)
        return self._encoded[1]

    def _own_wire(self) -> Bytes:
        if self._wire is None:
            assert self._base is not None
            self._wire = take_or_null(self._base._wire, self._picked)
        return self._wire

    def _encode(self, serde: EngineSerde) -> Bytes:
        base = self._base
        if base is not None and (base._chained or base._has_bytes_in(serde)):
            return take_or_null(base.wire(serde), self._picked)
        if self._chained:
            return pa.concat_arrays([part.wire(serde) for part in self._chained])
        if self.expressed():
            return calls.encode_series(serde, self.series())
        return calls.encode_objects(serde, self.objects())

    def _has_bytes_in(self, serde: EngineSerde) -> bool:
        encoded = self._encoded is not None and self._encoded[0] == serde
        return encoded or (self._wire is not None and self.serde == serde)

    def objects(self) -> list[Any]:
        """Python objects, shared by all callers. Raises `SerdeError`."""
        if self._objects is None:
            shared = self._base is not None and self._base._objects is not None
            self._objects = self._to_objects()
            if self._wire is not None and not shared:
                self._given = np.zeros(self.rows, bool)
        return self._objects

    def own_objects(self) -> list[Any]:
        """Objects that no other caller of this gets, where they can be changed and have bytes. Raises `SerdeError`."""
        if self._cannot_change():
            return self.objects()
        if self._base is None or (self._objects is not None and self._given is not None):
            base, rows = self, np.arange(self.rows)
        else:
            base, rows = self._base, self._picked
        if base._objects is None:
            copies = base._copies(rows)
            return self._to_objects() if copies is None else copies
        return self.objects() if base._given is None else base._give_away(rows)

    def _copies(self, rows: np.ndarray) -> list[Any] | None:
        """Copies of the objects of these rows, where there are more of them than objects; None: decoding is as good."""
        if self._copied is None:
            if len(rows) <= self.rows or self._wire is None:
                return None
            objects = calls.decode_objects(self._known_serde(), self._wire)
            self._copied = objects, copier_of(objects)
        objects, copy = self._copied
        if copy is None or not (rows < 0).any():
            return None if copy is None else list(map(copy, map(objects.__getitem__, rows.tolist())))
        return [None if row < 0 else copy(objects[row]) for row in rows.tolist()]

    def _to_objects(self) -> list[Any]:
        base = self._base
        if base is None:
            if self._chained:
                return [value for part in self._chained for value in part.objects()]
            if self._wire is not None:
                return calls.decode_objects(self._known_serde(), self._wire)
            assert self._series is not None
            return self._series.to_list()
        repeated = base.rows < self.rows and base._cannot_change()
        if base._objects is not None or base._chained or repeated:
            items = base.objects()
            return [None if row < 0 else items[row] for row in self._picked.tolist()]
        if base._wire is None:
            return self.series().to_list()
        return calls.decode_objects(self._known_serde(), self._own_wire())

    def _give_away(self, rows: np.ndarray) -> list[Any]:
        """The objects of these rows. Where a joiner has got one before, and may have changed it, another like it."""
        items, given = self.objects(), self._given
        assert given is not None
        found = [None if row < 0 else items[row] for row in rows.tolist()]
        places = np.flatnonzero(rows >= 0)
        first = np.full(self.rows, -1)
        first[rows[places[::-1]]] = places[::-1]
        again = places[given[rows[places]] | (first[rows[places]] != places)]
        given[rows[places]] = True
        if len(again):
            wire, copies = take_or_null(self._wire, rows[again]), self._copies(rows[again])
            others = calls.decode_objects(self._known_serde(), wire) if copies is None else copies
            for place, item in zip(again.tolist(), others, strict=True):
                found[place] = item
        return found

    def _cannot_change(self) -> bool:
        """Whether the objects are numbers, text or the like."""
        return self.serde is not None and self.serde.dtype is not None and not self.serde.dtype.is_nested()

    def series(self, fields: Collection[str] | None = None, *, checked: Readers | None = None) -> pl.Series:
        """A Polars series; ``fields``: only these struct fields are needed. Raises `SerdeError`.

        ``checked``: all fields are checked nevertheless, for these readers, and there may be more of them.
        """
        if self._series is not None and (self.expressed() or self._holds(self._series, fields)):
            return self._series
        base = self._base
        if base is not None and (base._has_columns(fields) or base.rows < self.rows):
            rows = pl.Series(self._picked).cast(pl.Int64)
            if (self._picked < 0).any():
                rows = rows.set(rows < 0, None)
            return base.series(fields, checked=checked).gather(rows)
        if self._chained:
            self._series = pl.concat([part.series() for part in self._chained])
        else:
            self._series = _decoded(self._known_serde(), self.wire(), fields, checked)
        self._partial = fields is not None and not self._chained
        return self._series

    def _has_columns(self, fields: Collection[str] | None) -> bool:
        """Whether there is a series of these fields, or one without bytes to make another of."""
        return self._series is not None and (self._wire is None or self._holds(self._series, fields))

    def _holds(self, series: pl.Series, fields: Collection[str] | None) -> bool:
        return not self._partial if fields is None else _has_fields(series, fields)

    def decoded(self, fields: Collection[str] | None = None) -> pl.Series | None:
        """A series of those fields that have been decoded of the bytes; None if none have.

        ``fields``: of these, if all of them have.
        """
        if not self._partial or self._series is None or self._wire is None or self._objects is not None:
            return None
        return self._series if fields is None else _only(self._series, fields)

    def parts(self) -> Iterator[tuple[np.ndarray, Values]]:
        """The parts of a concatenation that have rows here: the rows, and their values."""
        base = self._base or self
        if not base._chained or not self.rows:
            yield np.arange(self.rows), self
            return
        rows = np.arange(self.rows) if base is self else self._picked
        starts = np.cumsum([0, *(part.rows for part in base._chained)])
        numbers = np.maximum(np.searchsorted(starts, rows, side="right") - 1, 0)
        order = np.argsort(numbers, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            number, picked = int(numbers[places[0]]), rows[places]
            part = base._chained[number].take(np.where(picked < 0, -1, picked - starts[number]))
            for within, one in part.parts():
                yield places[within], one

    def declared(self) -> bool:
        """Whether the type of the values is declared."""
        return self.serde is not None and self.serde.dtype is not None

    def expressed(self) -> bool:
        """Whether the values came out of an expression: then the column decides, and objects follow from it."""
        return (self._base or self)._expressed

    def made(self) -> bool:
        """Whether a function made the values, so that they have no bytes yet."""
        return (self._base or self)._wire is None

    def as_wire(self, serde: EngineSerde | None) -> Values:
        """The same with bytes in the serde, but those of picked rows only when they are needed."""
        is_picked = self._base is not None and self._wire is None and not self.made()
        return self if is_picked and self.serde == serde else Values(serde, wire=self.wire(serde))

    def _known_serde(self) -> EngineSerde:
        if self.serde is None:
            raise TypeError(
                "what a function made has bytes, and a column, only in the serde that its reader names"
            )
        return self.serde


def _empty(serde: EngineSerde | None, rows: int) -> Values:
    values = Values.__new__(Values)
    values._begin(serde, rows)
    return values


def nulls(rows: int, serde: EngineSerde | None = None) -> Values:
    """Values that are all null."""
    return Values(serde, wire=pa.nulls(rows, pa.large_binary()))


def concat_values(parts: Sequence[Values]) -> Values:
    """Values one after the other, in the cheapest form they share; where they share none, each keeps its own."""
    parts = [part for part in parts if part.rows] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    serdes = {part.serde for part in parts}
    serde = parts[0].serde if len(serdes) == 1 else None
    if len(serdes) > 1 or any((part._base or part)._chained for part in parts):
        return _chain(serde, parts)
    if all(part.expressed() for part in parts):
        columns = [part.series() for part in parts]
        if len({column.dtype for column in columns}) == 1:
            return Values(serde, series=pl.concat(columns))
    elif not any(part.expressed() for part in parts):
        if all(part.made() for part in parts):
            return Values(serde, objects=[value for part in parts for value in part.objects()])
        if serde is not None:
            return Values(serde, wire=pa.concat_arrays([part.wire() for part in parts]))
    return _chain(serde, parts)


def _chain(serde: EngineSerde | None, parts: Sequence[Values]) -> Values:
    """Values one after the other, each in the form it has: columns of several types, bytes beside what was made."""
    whole = _empty(serde, sum(part.rows for part in parts))
    whole._chained = [one for part in parts for one in part._chained or [part]]
    return whole


def missing_in(series: pl.Series) -> np.ndarray:
    """Row by row, whether the value is null; counting is enough where all or none are, at a hundredth of the cost."""
    count = series.null_count()
    return np.full(len(series), count > 0) if count in (0, len(series)) else series.is_null().to_numpy()


def _decoded(
    serde: EngineSerde, wire: Bytes, fields: Collection[str] | None, checked: Readers | None
) -> pl.Series:
    """A series of bytes; ``fields``, ``checked``: as in `Values.series`. Raises `SerdeError`."""
    if fields is None or checked is None:
        return calls.decode_series(serde, wire, fields)
    return calls.decode_checked(serde, wire, fields, checked)


def _only(series: pl.Series, fields: Collection[str]) -> pl.Series | None:
    """The struct with these fields; None if it has not all of them."""
    if not isinstance(series.dtype, pl.Struct) or not _has_fields(series, fields):
        return None
    chosen = [name for name in series.struct.fields if name in fields]
    if len(chosen) == len(series.struct.fields):
        return series
    return arrays.with_nulls_of(series.struct.unnest().select(chosen).to_struct(series.name), series)


def _has_fields(series: pl.Series, fields: Collection[str]) -> bool:
    """Whether these are among the fields of the series, if it has any."""
    if not isinstance(series.dtype, pl.Struct):
        return True
    return {field.name for field in series.dtype.fields}.issuperset(fields)
