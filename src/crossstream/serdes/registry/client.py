"""A schema registry: its client, schemas by id, ids of schemas, and subjects.

The client is that of `confluent_kafka`; it is made in each process when it is first needed. Schemas that a process has
seen are kept, so that known ids need no registry.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast, get_args

from crossstream.durations import to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.serdes import errors
from crossstream.serdes.registry.answers import MOST_REFERENCES, Unusable, bound_answers, in_time
from crossstream.serdes.registry.errors import (
    Refused,
    away,
    no_access,
    no_schema,
    no_use,
    not_registered,
    unknown_id,
    unusable,
)

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
Strategy = Literal["topic", "record", "topic-record"]
STRATEGIES = get_args(Strategy)
SCHEMES = ("http://", "https://", "mock://")

UNKNOWN_FOR = 10.0
"""Seconds for which an id whose schema is not known, or of no use, is not asked for again."""


def subject_name(strategy: Strategy, topic: str | None, is_key: bool, record_name: str | None) -> str:
    """The subject of a schema. Raises `SerdeError` (CS-404) where the strategy needs what is not known."""
    if strategy not in STRATEGIES:
        raise _no_subject(f"{strategy!r} is not a subject name strategy", f"use {', '.join(STRATEGIES)}")
    if strategy != "topic" and not record_name:
        raise _no_subject(f"the schema has no name, which strategy {strategy!r} needs", "pass subject=…")
    if strategy != "record" and topic is None:
        raise _no_subject(
            f"strategy {strategy!r} needs one topic, and a function or a pattern names it",
            'pass subject=…, or strategy="record"',
        )
    if strategy == "topic":
        return f"{topic}-{'key' if is_key else 'value'}"
    return str(record_name) if strategy == "record" else f"{topic}-{record_name}"


def _no_subject(what: str, next: str) -> CrossStreamError:
    return refuse("CS-404", f"no subject for a schema: {what}", next)


# Settings


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is, and how it is asked. Compared by all settings; ``repr`` has no secrets."""

    url: str
    digest: str = field(repr=False)
    patience: int = field(repr=False, compare=False)
    values: tuple[tuple[str, Any], ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, registry: Any) -> RegistrySettings:
        """``registry``: a URL, a dict of settings of `confluent_kafka.schema_registry`, or a client of it.

        A dict may have ``patience`` too: the duration for which a registry that is away is waited for, "30 seconds".
        Raises `ConfigError` (CS-201).
        """
        if isinstance(registry, RegistrySettings):
            return registry
        _library()
        client = None
        if isinstance(registry, str):
            values: dict[str, Any] = {"url": registry}
        elif isinstance(registry, Mapping):
            values = dict(registry)
        elif hasattr(registry, "register_schema") and hasattr(registry, "_conf"):
            client = registry
            values = dict(registry._conf)
        else:
            raise unusable(f"{errors.show(registry)} is not a schema registry")
        url = values.get("url")
        if not isinstance(url, str) or not url.startswith(SCHEMES):
            raise unusable(f"{errors.show(url)} is not the URL of a schema registry")
        patience = to_milliseconds(values.pop("patience", "30 seconds"), "patience", unclear="refuse")
        settings = cls._made(values, patience)
        connection(settings, client)
        return settings

    @classmethod
    def at(cls, url: str) -> RegistrySettings:
        """A registry that state names, which is never asked: the state may be of anybody.

        Raises ValueError for what is no URL of one.
        """
        if not url.startswith(SCHEMES):
            raise ValueError(f"{url!r} is not the URL of a schema registry")
        return replace(cls._made({"url": url}, to_milliseconds("30 seconds", "patience")), values=())

    @classmethod
    def _made(cls, values: Mapping[str, Any], patience: int) -> RegistrySettings:
        items = tuple(sorted(values.items()))
        digest = hashlib.sha256(repr((items, patience)).encode()).hexdigest()
        return cls(re.sub(r"//[^/@,]*@", "//", values["url"]), digest, patience, items)

    @property
    def public_url(self) -> str:
        """The URL without what may be secret: names, passwords and parameters."""
        return re.sub(r"[?#][^,]*", "", self.url)


def _library() -> Any:
    """`confluent_kafka.schema_registry`, with what it needs."""
    try:
        from confluent_kafka import schema_registry
    except ImportError as error:
        what = f"a schema registry needs packages that are not installed: {error}"
        raise refuse("CS-201", what, 'pip install "crossstream[registry]"') from error
    return schema_registry


# What a registry knows


class Reference(NamedTuple):
    """A schema that another one refers to by ``name``. It is registered under a subject of this name."""

    name: str
    text: str
    references: tuple[Reference, ...] = ()


class Registered(NamedTuple):
    """A schema of a registry; ``references``: (name, text) of all it refers to, those that others need first."""

    id: int
    kind: Kind
    text: str
    references: tuple[tuple[str, str], ...] = ()


def connection(settings: RegistrySettings, client: Any = None) -> Connection:
    """The connection of this process. ``client``: use this client from now on."""
    if not settings.values:
        raise refuse(
            errors.NO_REGISTRY,
            f"rows need a schema of the registry {settings.url}; only the state names it, so it is not asked",
            "name a registry that you trust: --registry URL, or open_store(…, registry=URL)",
        )
    found = _connection(settings, os.getpid())
    if client is not None and client is not found.client:
        found.use(client)
    return found


@lru_cache(maxsize=64)
def _connection(settings: RegistrySettings, process: int) -> Connection:
    return Connection(settings)


class Connection:
    """A client, and what it has learned. Threads may share it. The client that it makes ends with it."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        library = _library()
        values = dict(settings.values)
        values.setdefault("max.retries", 0)  # this class tries again
        values.setdefault("timeout", max(1, min(10, settings.patience // 1000)))
        try:
            client = library.SchemaRegistryClient.new_client(values)
        except Exception as error:  # ValueError and TypeError of the client, OSError of files of certificates
            raise unusable(
                f"the settings of the schema registry cannot be used: {type_and_text(error)}"
            ) from error
        weakref.finalize(self, client.__exit__)  # older clients have no close()
        self.use(client)

    def use(self, client: Any) -> None:
        bound_answers(client)
        self.client = client
        self._schemas: dict[int, Registered] = {}
        self._unknown: dict[int, tuple[float, str]] = {}
        self._ids: dict[tuple[Any, ...], int] = {}

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Alone, and for as long as the registry is waited for: for all that one schema refers to."""
        with self._lock:
            self._until = time.monotonic() + self._settings.patience / 1000
            yield

    def schema_of(self, id: int, form: str | None = None) -> Registered:
        """The schema of an id. ``form``: that of the text, "serialized" for Protobuf.

        Raises `SerdeError`: CS-402 for an id that the registry does not know, or whose schema is of no use; CS-420 if
        it does not answer in time.
        """
        known = self._schemas.get(id)
        if known is not None:
            return known
        with self._in_time():
            until, reason = self._unknown.get(id, (0.0, ""))
            if until > time.monotonic():
                raise unknown_id(self._settings, id, reason)
            asked = f"schema id {id}"
            try:
                schema = self._ask(asked, self.client.get_schema, id, **({"fmt": form} if form else {}))
                found = self._registered(id, schema, form)
            except (Refused, Unusable) as refused:
                if isinstance(refused, Refused) and refused.status != 404:
                    raise no_access(self._settings, asked, refused) from refused.__cause__
                reason = str(refused) if isinstance(refused, Unusable) else ""
                self._unknown[id] = time.monotonic() + UNKNOWN_FOR, reason
                raise unknown_id(self._settings, id, reason) from refused.__cause__
            self._schemas[id] = found
            return found

    def register(
        self,
        subject: str,
        kind: Kind,
        text: str,
        references: Sequence[Reference | tuple[str, str]] = (),
        auto_register: bool = True,
    ) -> int:
        """The id of a schema under a subject; it is registered, or with ``auto_register=False`` looked up.

        Raises `SerdeError`: CS-421 if the registry refuses it, or it is not there; CS-420 if the registry does not
        answer.
        """
        others = tuple(Reference(*reference) for reference in references)
        key = subject, kind, text, others, auto_register
        known = self._ids.get(key)
        if known is not None:
            return known
        with self._in_time():
            try:
                found = self._put(subject, self._schema(kind, text, others, auto_register), auto_register)
            except Unusable as error:
                raise no_use(self._settings, f"subject {subject}", error) from error
            self._ids[key] = found
            self._schemas.setdefault(found, Registered(found, kind, text, _flat(others)))
            return found

    def latest(self, subject: str) -> Registered:
        """The newest schema of a subject. Raises `SerdeError`: CS-421, CS-420."""
        asked = f"subject {subject}"
        with self._in_time():
            try:
                found = self._ask(asked, self.client.get_latest_version, subject)
                return self._registered(found.schema_id, found.schema, None)
            except Unusable as error:
                raise no_use(self._settings, asked, error) from error
            except Refused as refused:
                if refused.status != 404:
                    raise no_access(self._settings, asked, refused) from refused.__cause__
                raise no_schema(self._settings, subject, refused) from refused.__cause__

    def _schema(self, kind: Kind, text: str, references: Sequence[Reference], auto_register: bool) -> Any:
        """A schema of the client, after those that it refers to are registered."""
        library = _library()
        found = []
        for name, inner, others in references:
            schema = self._schema(kind, inner, others, auto_register)
            self._put(name, schema, auto_register)
            there = self._ask(f"subject {name}", self.client.lookup_schema, name, schema)
            found.append(library.SchemaReference(name, name, there.version))
        return library.Schema(text, kind, found)

    def _put(self, subject: str, schema: Any, auto_register: bool) -> int:
        asked = f"subject {subject}"
        try:
            if auto_register:
                return int(self._ask(asked, self.client.register_schema, subject, schema))
            return int(self._ask(asked, self.client.lookup_schema, subject, schema).schema_id)
        except Refused as refused:
            kind = schema.schema_type
            raise not_registered(self._settings, subject, kind, refused, auto_register) from refused.__cause__

    def _registered(self, id: int, schema: Any, form: str | None) -> Registered:
        references: dict[str, str] = {}
        self._add_references(schema, references, set(), form)
        kind = cast(Kind, schema.schema_type or "AVRO")
        return Registered(id, kind, _text_of(schema), tuple(references.items()))

    def _add_references(self, schema: Any, found: dict[str, str], names: set[str], form: str | None) -> None:
        """Adds the schemas that another one refers to. ``names``: all that were asked for, which may be in a circle."""
        for one in schema.references or ():
            if one.name in names:
                continue
            names.add(one.name)
            if len(names) > MOST_REFERENCES:
                raise Unusable(f"it refers to more than {MOST_REFERENCES} schemas")
            get, asked = self.client.get_version, f"subject {one.subject}"
            there = self._ask(asked, get, one.subject, one.version, deleted=True, fmt=form)
            self._add_references(there.schema, found, names, form)
            found[one.name] = _text_of(there.schema)

    def _ask(self, what: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The answer. Waits for a registry that is away; raises `Refused` for an answer that is a refusal, `Unusable`
        for one that is no answer."""
        pause = 0.1
        while True:
            try:
                return in_time(self._until - time.monotonic(), lambda: call(*arguments, **options))
            except Unusable:
                raise
            except Exception as error:
                status = getattr(error, "http_status_code", None)
                message = str(getattr(error, "error_message", error))
                passes = status in (408, 429) or (status == 409 and message.endswith(_MADE_MEANWHILE))
                if status is not None and not passes and status < 500:
                    raise Refused(status, message) from error
                if status is None and isinstance(
                    error, ValueError | LookupError | TypeError | AttributeError
                ):
                    raise Unusable(f"the answer is no schema ({type_and_text(error)})") from error
                if status is None and not _passing(error):
                    raise
                if time.monotonic() + pause > self._until:
                    raise away(self._settings, what, error) from error
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


_MADE_MEANWHILE = "already exists."
"""Apicurio's refusal of a schema that another writer registers at the same moment."""


def _text_of(schema: Any) -> str:
    if not isinstance(schema.schema_str, str):
        raise Unusable("the answer has no text of a schema")
    return schema.schema_str


def _flat(references: tuple[Reference, ...]) -> tuple[tuple[str, str], ...]:
    """As `Registered.references`."""
    found: dict[str, str] = {}
    for name, text, others in references:
        found.update(_flat(others))
        found.setdefault(name, text)
    return tuple(found.items())


def _passing(error: Exception) -> bool:
    """Whether it is about the way to the registry, so that it may work later. Names: httpx or httpx2, as installed."""
    names = {base.__name__ for base in type(error).__mro__}
    return isinstance(error, OSError) or bool(names & {"TransportError", "OAuthTokenError"})
