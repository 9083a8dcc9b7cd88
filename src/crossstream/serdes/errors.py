"""The errors of serdes: one function builds each message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError

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


def _of_value(code: str, serde: str, value: object, what: str, next: str) -> CrossStreamError:
    where = {"serde": serde, "type": type(value).__name__}
    return refuse(code, f"{what}: {show(value)}", next, **where)


def wrong_type(serde: str, value: object, wanted: str, next: str) -> CrossStreamError:
    what = f"serde {serde} takes {wanted}, not {type(value).__name__}"
    return _of_value("CS-401", serde, value, what, next)


def misfit(serde: str, value: object, reason: str) -> CrossStreamError:
    what = f"this {type(value).__name__} does not fit serde {serde} ({reason})"
    next = "return an instance of the declared type, or a dict that fits it"
    return _of_value("CS-401", serde, value, what, next)


def unreadable(serde: str, value: object, reason: str) -> CrossStreamError:
    """An instance of the declared type whose fields are of other types than it declares."""
    what = f"this {type(value).__name__} could not be read again by serde {serde} ({reason})"
    next = "give its fields what the type says, for instance int(price), or widen the type: float | None"
    return _of_value("CS-401", serde, value, what, next)


def wrong_column(serde: str, dtype: object, wanted: str, next: str, field: str = "") -> CrossStreamError:
    what = f"field {field} is" if field else "got"
    return refuse(
        "CS-401",
        f"serde {serde} takes a column of {wanted}; {what} {dtype}",
        next,
        serde=serde,
        type=str(dtype),
    )


def undecodable(serde: str, reason: str, data: bytes | None = None) -> CrossStreamError:
    shown = "" if data is None else f": {show(data)}"
    return refuse(UNDECODABLE, f"bytes are not what serde {serde} reads ({reason}){shown}", serde=serde)


def undecodable_rows(serde: str, rows: Mapping[int, str]) -> UndecodableRows:
    """``rows``: reasons, by row; at least one."""
    like = undecodable(serde, rows[min(rows)])
    error = UndecodableRows(like.what, code=like.code, where=like.where, next=like.next)
    error.rows = rows
    return error


def unreadable_row(reason: str, store: str, **where: object) -> CrossStreamError:
    what = f"a row that an earlier run kept in the store {store} cannot be read: {reason}"
    step = (
        "give fields that are new in its type a default, and do not change the types of the others; or begin "
        "again, with a new application_id or an empty state folder"
    )
    return refuse(UNDECODABLE, what, step, store=store, **where)


@contextmanager
def naming_store(store: str, **where: object) -> Iterator[None]:
    """Makes an error of bytes in the state that the serdes cannot read one that says where they are."""
    try:
        yield
    except SerdeError as error:
        if error.code != UNDECODABLE:
            raise
        raise unreadable_row(error.what, store, **where) from error.__cause__


def no_bytes_for(serde: str, value: object, reason: str, next: str) -> CrossStreamError:
    what = f"serde {serde} has no bytes for this {type(value).__name__} ({reason})"
    return _of_value("CS-403", serde, value, what, next)


def unencodable(serde: str, reason: str) -> CrossStreamError:
    what = f"serde {serde} has no bytes for a value ({reason})"
    return refuse("CS-403", what, "fix the serde, or the function that gives it the value", serde=serde)


def classless(serde: str, value: object) -> CrossStreamError:
    what = f"without its class, the bytes that serde {serde} has for {show(value)} are not known"
    step = f"pass serdes={{{serde!r}: …}} to open_store, or a dict of all fields where they are plain"
    return refuse("CS-403", what, step, serde=serde)


def wrong_answer(serde: str, method: str, wanted: str, given: object) -> CrossStreamError:
    what = f"{method} of serde {serde} gave a {type(given).__name__}, not {wanted}"
    step = f"let {method} return {wanted}; crossstream.serdes.Serde says what every method gives"
    return refuse(WRONG_ANSWER, what, step, serde=serde, method=method)


def wrong_count(serde: str, method: str, rows: int, given: int) -> CrossStreamError:
    what = f"{method} of serde {serde} gave {given} rows for {rows}"
    step = f"let {method} return one for each row, in their order; for a null that is None"
    return refuse(WRONG_ANSWER, what, step, serde=serde, method=method)


def no_column(serde: str, reason: str) -> CrossStreamError:
    step = (
        "use a Python callable here, or give the field a type of fixed shape: a dataclass, list[...], "
        "or one of int, float, bool, str, bytes, datetime, date, Decimal, UUID, Enum"
    )
    return refuse(NO_COLUMN, f"values of serde {serde} cannot be columns: {reason}", step, serde=serde)


def beyond_the_calendar(serde: str) -> CrossStreamError:
    what = f"serde {serde} has no bytes for times before the year 1 or after 9999"
    return refuse("CS-403", what, "keep times between these years, or make them null", serde=serde)


def null_text(serde: str, value: object) -> CrossStreamError:
    what = f"the JSON of this {type(value).__name__} is the text null, which would read as a tombstone"
    next = "return None for a tombstone, or wrap the value, for instance {'value': ...}"
    return _of_value("CS-403", serde, value, what, next)


def not_finite(serde: str, value: object, number: float, field: str) -> CrossStreamError:
    """NaN or an infinity in a value; ``field``: the path to it, "" where it is the value itself."""
    place = f" in field {field}" if field else ""
    what = f"serde {serde} has no bytes for {number}{place}, for JSON has finite numbers only: {show(value)}"
    step = (
        "give None or a text in its place; in an expression for instance .fill_nan(None), or "
        "pl.when(pl.col('price').is_finite()).then('price')"
    )
    return refuse("CS-403", what, step, serde=serde, field=field or None)


def unfit_for_keys(serde: str, reason: str) -> CrossStreamError:
    what = f"serde {serde} cannot serve keys, because equal objects may have different bytes: {reason}"
    step = "key by another type, such as a frozen dataclass of text and numbers; values may have this one"
    return refuse("CS-404", what, step, serde=serde)


def mixed_types(serde: str, reason: Exception) -> CrossStreamError:
    what = f"values without a declared type do not fit one column: {reason}"
    step = "declare the type, for instance serdes.json({'price': pl.Float64})"
    return refuse("CS-404", what, step, serde=serde)


def unusable_type(given: object, reason: str) -> CrossStreamError:
    step = (
        "pass a dataclass, a msgspec.Struct, a type such as list[str], an Arrow schema, "
        "or a dict of Polars types such as {'price': pl.Float64}"
    )
    return refuse("CS-404", f"serdes.json({show(given)}): {reason}", step, serde="json")


def no_serde(call: str, given: object) -> CrossStreamError:
    """For a serde made of another one, which is not a serde."""
    what = f"{call} takes a serde, not {show(given)}"
    return refuse("CS-404", what, f"pass one, such as {call}(serdes.string(), …)", serde=call)


def unknown_fields(serde: str, unknown: Iterable[str], known: Iterable[str]) -> CrossStreamError:
    names = ", ".join(sorted(unknown))
    step = f"it has {', '.join(known) or 'no fields'}; correct the name, or add the field to the type"
    return refuse("CS-401", f"serde {serde} has no field {names}", step, serde=serde, field=names)


def null_field(serde: str, field: str) -> CrossStreamError:
    what = f"field {field} is null, but {serde} could not read a null there again"
    step = "make the field Optional in the type, or fill the nulls, for instance with .fill_null(0)"
    return refuse("CS-401", what, step, serde=serde, field=field)


def not_kept(value: object, kind: str) -> CrossStreamError:
    what = f"a value without a serde is kept as JSON, which does not give back a {kind}: {show(value)}"
    return refuse("CS-410", what, type=kind)
