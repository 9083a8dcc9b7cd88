"""The errors of serdes: one function builds each message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from crossstream.errors import SerdeError

_SHOWN = 60

UNDECODABLE = "CS-402"
"""The code for single rows that cannot be read; other codes are about a type or a column."""

NO_COLUMN = "CS-404"
"""The code of a type without a column form: no single row is at fault."""

WRONG_ANSWER = "CS-412"

NO_REGISTRY = "CS-420"
"""The code of a schema registry that does not answer."""

REFUSED_SCHEMA = "CS-421"

OF_REGISTRY = (NO_REGISTRY, REFUSED_SCHEMA)
"""The codes that are about no row: the application stops, and does not ask once more for each half of the rows."""


class UndecodableRows(SerdeError):
    """The undecodable rows are known: row → reason. Others may be undecodable, too."""

    rows: Mapping[int, str] = MappingProxyType({})


def show(value: object) -> str:
    """A value for a message: its ``repr``, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def below(path: str, name: str) -> str:
    """The path to a field, for a message."""
    return f"{path}.{name}" if path else name


def _of_value(code: str, serde: str, value: object, what: str, next: str) -> SerdeError:
    where = {"serde": serde, "type": type(value).__name__}
    return SerdeError(f"{what}: {show(value)}", code=code, where=where, next=next)


def wrong_type(serde: str, value: object, wanted: str, next: str) -> SerdeError:
    what = f"serde {serde} takes {wanted}, not {type(value).__name__}"
    return _of_value("CS-401", serde, value, what, next)


def misfit(serde: str, value: object, reason: str) -> SerdeError:
    what = f"this {type(value).__name__} does not fit serde {serde} ({reason})"
    next = "return an instance of the declared type, or a dict that fits it"
    return _of_value("CS-401", serde, value, what, next)


def unreadable(serde: str, value: object, reason: str) -> SerdeError:
    """An instance of the declared type whose fields are of other types than it declares."""
    what = f"this {type(value).__name__} could not be read again by serde {serde} ({reason})"
    next = "give its fields what the type says, for instance int(price), or widen the type: float | None"
    return _of_value("CS-401", serde, value, what, next)


def wrong_column(serde: str, dtype: object, wanted: str, next: str, field: str = "") -> SerdeError:
    what = f"field {field} is" if field else "got"
    return SerdeError(
        f"serde {serde} takes a column of {wanted}; {what} {dtype}",
        code="CS-401",
        where={"serde": serde, "type": str(dtype)},
        next=next,
    )


def undecodable(serde: str, reason: str, data: bytes | None = None) -> SerdeError:
    shown = "" if data is None else f": {show(data)}"
    return SerdeError(
        f"bytes are not what serde {serde} reads ({reason}){shown}",
        code=UNDECODABLE,
        where={"serde": serde},
        next="check that the topic was written with the same serde; to skip such records, or send them to a "
        'dead letter topic, set deserialization_errors="skip" or cs.DeadLetter(topic)',
    )


def undecodable_rows(serde: str, rows: Mapping[int, str]) -> UndecodableRows:
    """``rows``: reasons, by row; at least one."""
    like = undecodable(serde, rows[min(rows)])
    error = UndecodableRows(like.what, code=like.code, where=like.where, next=like.next)
    error.rows = rows
    return error


def unreadable_row(reason: str, store: str, **where: object) -> SerdeError:
    return SerdeError(
        f"a row that an earlier run kept in the store {store} cannot be read: {reason}",
        code=UNDECODABLE,
        where={"store": store, **where},
        next="give fields that are new in its type a default, and do not change the types of the others; or begin "
        "again, with a new application_id or an empty state folder",
    )


def no_bytes_for(serde: str, value: object, reason: str, next: str) -> SerdeError:
    what = f"serde {serde} has no bytes for this {type(value).__name__} ({reason})"
    return _of_value("CS-403", serde, value, what, next)


def unencodable(serde: str, reason: str) -> SerdeError:
    return SerdeError(
        f"serde {serde} has no bytes for a value ({reason})",
        code="CS-403",
        where={"serde": serde},
        next="fix the serde, or the function that gives it the value",
    )


def classless(serde: str, value: object) -> SerdeError:
    return SerdeError(
        f"without its class, the bytes that serde {serde} has for {show(value)} are not known",
        code="CS-403",
        where={"serde": serde},
        next=f"pass serdes={{{serde!r}: …}} to open_store, or a dict of all fields where they are plain",
    )


def wrong_answer(serde: str, method: str, wanted: str, given: object) -> SerdeError:
    return SerdeError(
        f"{method} of serde {serde} gave a {type(given).__name__}, not {wanted}",
        code=WRONG_ANSWER,
        where={"serde": serde, "method": method},
        next=f"let {method} return {wanted}; crossstream.serdes.Serde says what every method gives",
    )


def wrong_count(serde: str, method: str, rows: int, given: int) -> SerdeError:
    return SerdeError(
        f"{method} of serde {serde} gave {given} rows for {rows}",
        code=WRONG_ANSWER,
        where={"serde": serde, "method": method},
        next=f"let {method} return one for each row, in their order; for a null that is None",
    )


def no_column(serde: str, reason: str) -> SerdeError:
    return SerdeError(
        f"values of serde {serde} cannot be columns: {reason}",
        code=NO_COLUMN,
        where={"serde": serde},
        next="use a Python callable here, or give the field a type of fixed shape: a dataclass, list[...], "
        "or one of int, float, bool, str, bytes, datetime, date, Decimal, UUID, Enum",
    )


def beyond_the_calendar(serde: str) -> SerdeError:
    return SerdeError(
        f"serde {serde} has no bytes for times before the year 1 or after 9999",
        code="CS-403",
        where={"serde": serde},
        next="keep times between these years, or make them null",
    )


def null_text(serde: str, value: object) -> SerdeError:
    what = f"the JSON of this {type(value).__name__} is the text null, which would read as a tombstone"
    next = "return None for a tombstone, or wrap the value, for instance {'value': ...}"
    return _of_value("CS-403", serde, value, what, next)


def not_finite(serde: str, value: object, number: float, field: str) -> SerdeError:
    """NaN or an infinity in a value; ``field``: the path to it, "" where it is the value itself."""
    place = f" in field {field}" if field else ""
    return SerdeError(
        f"serde {serde} has no bytes for {number}{place}, for JSON has finite numbers only: {show(value)}",
        code="CS-403",
        where={"serde": serde, "field": field or None},
        next="give None or a text in its place; in an expression for instance .fill_nan(None), or "
        "pl.when(pl.col('price').is_finite()).then('price')",
    )


def unfit_for_keys(serde: str, reason: str) -> SerdeError:
    return SerdeError(
        f"serde {serde} cannot serve keys, because equal objects may have different bytes: {reason}",
        code="CS-404",
        where={"serde": serde},
        next="key by another type, such as a frozen dataclass of text and numbers; values may have this one",
    )


def mixed_types(serde: str, reason: Exception) -> SerdeError:
    return SerdeError(
        f"values without a declared type do not fit one column: {reason}",
        code="CS-404",
        where={"serde": serde},
        next="declare the type, for instance serdes.json({'price': pl.Float64})",
    )


def unusable_type(given: object, reason: str) -> SerdeError:
    return SerdeError(
        f"serdes.json({show(given)}): {reason}",
        code="CS-404",
        where={"serde": "json"},
        next="pass a dataclass, a msgspec.Struct, a type such as list[str], an Arrow schema, "
        "or a dict of Polars types such as {'price': pl.Float64}",
    )


def no_serde(call: str, given: object) -> SerdeError:
    """For a serde made of another one, which is not a serde."""
    return SerdeError(
        f"{call} takes a serde, not {show(given)}",
        code="CS-404",
        where={"serde": call},
        next=f"pass one, such as {call}(serdes.string(), …)",
    )


def unknown_fields(serde: str, unknown: Iterable[str], known: Iterable[str]) -> SerdeError:
    names = ", ".join(sorted(unknown))
    return SerdeError(
        f"serde {serde} has no field {names}",
        code="CS-401",
        where={"serde": serde, "field": names},
        next=f"it has {', '.join(known) or 'no fields'}; correct the name, or add the field to the type",
    )


def null_field(serde: str, field: str) -> SerdeError:
    return SerdeError(
        f"field {field} is null, but {serde} could not read a null there again",
        code="CS-401",
        where={"serde": serde, "field": field},
        next="make the field Optional in the type, or fill the nulls, for instance with .fill_null(0)",
    )


def not_kept(value: object, kind: str) -> SerdeError:
    return SerdeError(
        f"a value without a serde is kept as JSON, which does not give back a {kind}: {show(value)}",
        code="CS-410",
        where={"type": kind},
        next="name a serde for the values, such as cs.Materialized(value=serdes.json(Order)) or"
        " cs.Repartitioned(value=…), annotate what the function returns (-> Order), or return dicts, lists, text and"
        " numbers",
    )
