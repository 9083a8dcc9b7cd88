"""`StreamsConfig`: how an application runs. What it computes is in its topology."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from crossstream.durations import Duration, to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.signatures import keyword_settings
from crossstream.storage.bucket import LOCAL, REMOTE, is_uri, scheme_of, shown
from crossstream.storage.door import MOST_PARTITIONS
from crossstream.storage.files import RIGHTS
from crossstream.topics import name_fault

Guarantee = Literal["at_least_once", "exactly_once"]
Engine = Literal["spark", "local"]
OnLostRecords = Literal["fail", "skip"]
StateMode = Literal["private", "group", "shared"]
OnLostState = Literal["fail", "restart"]
OnChange = Literal["refuse", "evolve"]


@keyword_settings("CS-201")
@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Sends a bad record to ``topic``, with the reason in its headers, and continues.

    A record that is too large for the topic is cut. ``spill`` names a folder, which all workers see, for files that
    hold such records in full. Only their owner can read them, and they stay until you delete them.

    Raises `ConfigError` CS-201 if Kafka would refuse the topic's name, or if ``spill`` is not a path.

    >>> DeadLetter("orders-bad").topic
    'orders-bad'
    """

    topic: str
    spill: str | Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name("DeadLetter", "topic", self.topic)
        folder: Any = self.spill
        if folder is None:
            return
        if not isinstance(folder, str | os.PathLike) or not str(folder) or is_uri(folder):
            raise _out_of_range("spill", folder, "the path of a folder that all workers see")
        object.__setattr__(self, "spill", os.path.abspath(folder))


OnError = Literal["fail", "skip"] | DeadLetter
"""What to do with a bad record: stop with an error, drop and count it, or send it to a topic."""

_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "default_key_serde": "give the serdes where the topic is read: Consumed(key=…, value=…)",
        "default_value_serde": "give the serdes where the topic is read: Consumed(key=…, value=…)",
        "commit_interval_ms": "use trigger=…, the time from one batch to the next; a batch is a commit",
        "num_stream_threads": "use partitions=…, the number of state partitions; Spark gives the threads",
        "statestore_cache_max_bytes": "there is no cache to size: a batch holds the last change per key",
        "group_id": "the consumer group is the application_id",
        "auto_offset_reset": 'set it where the topic is read: Consumed(offset_reset="latest"), "1 hour" or a datetime',
        "default_deserialization_exception_handler": "use deserialization_errors=…",
        "deserialization_exception_handler": "use deserialization_errors=…",
        "processing_exception_handler": "use processing_errors=…",
        "checkpoint": "use state_dir=…",
        "checkpoint_location": "use state_dir=…",
        "master": 'use spark={"spark.master": …}',
        "brokers": "use bootstrap_servers=…",
        "topic_dir": "use topics_dir=…",
    }
)

_OWN_KAFKA: Mapping[str, str] = MappingProxyType(
    {
        "bootstrap.servers": "use bootstrap_servers",
        "group.id": "use application_id",
        "auto.offset.reset": "use Consumed(offset_reset=)",
        "enable.auto.commit": "leave it out: each batch commits its offsets",
        "enable.auto.offset.store": "leave it out: each batch commits its offsets",
        "isolation.level": "leave it out: only committed records are read",
        "transactional.id": "leave it out: processing_guarantee decides about transactions",
    }
)


BROKER_PATIENCE = "60 seconds"


@keyword_settings("CS-201", hints=_HINTS)
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Settings of a running application; keyword arguments, checked and normalised when made.

    ============================ =========================================================================
    ``application_id``           names the state folder and Kafka's consumer group; Kafka's rule for names
    ``bootstrap_servers``        Kafka's brokers, ``"host:port,host:port"`` or a list of them
    ``topics_dir``               the folder of file topics, instead of Kafka; neither: only DataFrames
    ``state_dir``                where state and progress live: a folder that all workers see, or a URI
                                 (``s3://bucket/promo?region=…``). Default: ``./crossstream-state/<application_id>``
    ``engine``                   what runs the batches: ``"spark"``, or ``"local"``: this process, without a JVM and
                                 without DataFrames
    ``partitions``               state partitions, another number rescales; None: the engine chooses, then keeps it
    ``trigger``                  duration from the start of a batch to the next; None: without pause
    ``max_records_per_batch``    upper bound of input records in a batch; None: all that wait, also in a batch
                                 with rows of DataFrames
    ``max_transaction_records``  a transaction of ``cs.debezium(transactions=…)`` of more records is split, and the
                                 application says so
    ``single_task_rows``         one task processes a batch of about this many rows or fewer, without shuffles;
                                 0: all tasks share every batch
    ``max_task_idle``            how long a stream join waits for an input topic that has no records yet (Kafka's
                                 ``max.task.idle.ms``); 0: only large batches wait, for a tenth of a second
    ``processing_guarantee``     of results in Kafka: ``"at_least_once"``, or ``"exactly_once"``: a transaction a batch
    ``deserialization_errors``   a record that cannot be decoded: ``"fail"``, ``"skip"`` or `DeadLetter`
    ``processing_errors``        a function of the application that raises: ``"fail"``, ``"skip"`` or `DeadLetter`
    ``on_lost_records``          records that retention deleted unread: ``"fail"``, or ``"skip"`` and count; topics
                                 that were made again: ``"fail"``, or ``"skip"`` to their beginning
    ``on_lost_state``            an empty state folder though Kafka's consumer group has offsets: ``"fail"``, or
                                 ``"restart"`` as at a first start
    ``on_change``                state of another topology: ``"refuse"`` it where stores differ, or ``"evolve"``: the
                                 start takes it over, as ``crossstream evolve`` does
    ``broker_patience``          duration to wait for an absent broker before failing; where it is not set, ten seconds
                                 at the first start
    ``idle_after``               duration without input after which the clock moves stream time, so that waiting
                                 records come out; None: stream time stands still
    ``retain_batches``           past batches whose state stays readable (``as_of``)
    ``state_mode``               who may read the state files: ``"private"`` their owner, ``"group"`` also the group,
                                 which may write them too (workers of another user), ``"shared"`` everybody
    ``durable``                  commits survive a crash of the machine, not only of the process
    ``health_port``              the port that answers ``/health`` and ``/ready`` from `start` to `stop`; None: none
    ``health_host``              the address it listens on; default: this machine only
    ``health_patience``          duration after which a batch that does not end counts as stuck
    ``metrics_port``             serves numbers for Prometheus at this port of the driver; needs the extra ``metrics``
    ``metrics_host``             the address that it listens on; by default only this machine
    ``ui_port``                  serves a page on the running application at this port; needs the extra ``ui``
    ``ui_host``                  the address that it listens on; by default only this machine. The address that is
                                 logged at the start has a token, without which the page answers nothing
    ``ui_open``                  the page needs no token: everybody who reaches its port reads the state
    ``kafka``                    settings of the Kafka clients (TLS, SASL, …), by Kafka's own names
    ``spark``                    settings of the Spark session that crossstream makes
    ============================ =========================================================================

    Raises `ConfigError`: CS-201 for a setting that is unknown, missing or not valid, CS-203 for Kafka and file
    topics together, CS-210 for a bad duration.

    >>> StreamsConfig(application_id="promo", topics_dir="topics", trigger="2 seconds").trigger_ms
    2000
    """

    application_id: str
    bootstrap_servers: str | Sequence[str] | None = None
    topics_dir: str | Path | None = None
    state_dir: str | Path | None = None
    engine: Engine = "spark"
    partitions: int | None = None
    trigger: Duration | None = None
    max_records_per_batch: int | None = None
    max_transaction_records: int = 5_000_000
    single_task_rows: int = 10_000
    max_task_idle: Duration = 0
    processing_guarantee: Guarantee = "at_least_once"
    deserialization_errors: OnError = "fail"
    processing_errors: OnError = "fail"
    on_lost_records: OnLostRecords = "fail"
    on_lost_state: OnLostState = "fail"
    on_change: OnChange = "refuse"
    broker_patience: Duration = BROKER_PATIENCE
    idle_after: Duration | None = None
    retain_batches: int = 10
    state_mode: StateMode = "private"
    durable: bool = True
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    health_patience: Duration = "10 minutes"
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    ui_port: int | None = None
    ui_host: str = "127.0.0.1"
    ui_open: bool = False
    kafka: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    spark: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        _check_name("StreamsConfig", "application_id", self.application_id)
        self._check_types()
        self._check_topics()
        self._check_numbers()
        self._check_choices()
        self._normalise()

    def __repr__(self) -> str:
        """Leaves out settings that may hold secrets, also those in a URI."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
        if is_uri(self.state_dir):
            named["state_dir"] = shown(str(self.state_dir))
        return f"StreamsConfig({', '.join(f'{name}={value!r}' for name, value in named.items())})"

    @property
    def state_path(self) -> str:
        """``state_dir`` as text, including the secrets of a URI."""
        return str(self.state_dir)

    @property
    def topics_path(self) -> str | None:
        """``topics_dir`` as text; None without file topics."""
        return None if self.topics_dir is None else str(self.topics_dir)

    @property
    def servers(self) -> str | None:
        """``bootstrap_servers`` as one text; None without Kafka."""
        return _servers(self.bootstrap_servers)

    @property
    def trigger_ms(self) -> int | None:
        """``trigger`` in ms; None: the next batch starts when this one ends."""
        return None if self.trigger is None else to_milliseconds(self.trigger)

    @property
    def max_task_idle_ms(self) -> int:
        """``max_task_idle`` in ms."""
        return to_milliseconds(self.max_task_idle)

    @property
    def idle_after_ms(self) -> int | None:
        """``idle_after`` in ms; None: stream time stands still without input."""
        return None if self.idle_after is None else to_milliseconds(self.idle_after)

    @property
    def state_rights(self) -> int:
        """``state_mode`` as permission bits of files."""
        return RIGHTS[self.state_mode]

    @property
    def broker_patience_ms(self) -> int:
        """``broker_patience`` in ms."""
        return to_milliseconds(self.broker_patience)

    @property
    def health_patience_ms(self) -> int:
        """``health_patience`` in ms."""
        return to_milliseconds(self.health_patience)

    def _check_types(self) -> None:
        for name in ("kafka", "spark"):
            settings = getattr(self, name)
            if not isinstance(settings, Mapping):
                raise _out_of_range(name, settings, "a dict of setting names to values")
            for setting in settings:
                if not isinstance(setting, str):
                    raise _out_of_range(f"the name of a setting in {name}={{…}}", setting, "text")
        for name in ("durable", "ui_open"):
            if not isinstance(getattr(self, name), bool):
                raise _out_of_range(name, getattr(self, name), "True or False")
        for name in ("topics_dir", "state_dir"):
            path = getattr(self, name)
            if path is not None and (not isinstance(path, str | os.PathLike) or not str(path)):
                raise _out_of_range(name, path, "the path of a folder")
        if is_uri(self.topics_dir):
            uri = shown(str(self.topics_dir))
            raise _out_of_range("topics_dir", uri, "the path of a folder that all workers see")
        scheme = scheme_of(self.state_dir)
        if scheme is not None and not (is_uri(self.state_dir) and scheme in (REMOTE, LOCAL)):
            wanted = f"a path, or a URI as text: {REMOTE}://, {LOCAL}://"
            raise _out_of_range("state_dir", shown(str(self.state_dir)), wanted)
        if self.bootstrap_servers is not None and not _servers(self.bootstrap_servers):
            raise _out_of_range("bootstrap_servers", self.bootstrap_servers, '"host:port", or a list of them')

    def _check_topics(self) -> None:
        if self.bootstrap_servers is not None and self.topics_dir is not None:
            both = "bootstrap_servers and topics_dir are both set"
            raise _error(both, "keep one: topics are in Kafka, or in files", code="CS-203")
        if self.kafka and self.topics_dir is not None:
            next = "drop kafka={…}, or use bootstrap_servers instead of topics_dir"
            raise _error("kafka settings are given, but the topics are files", next, code="CS-203")
        for name, own in _OWN_KAFKA.items():
            if name in self.kafka:
                raise _error(f"crossstream itself sets kafka={{{name!r}: …}}", own)

    def _check_numbers(self) -> None:
        least = {"partitions": 1, "max_records_per_batch": 1, "retain_batches": 1, "single_task_rows": 0}
        least["max_transaction_records"] = 1
        for name, smallest in least.items():
            number = getattr(self, name)
            if number is None and name in ("partitions", "max_records_per_batch"):
                continue
            if isinstance(number, bool) or not isinstance(number, int) or number < smallest:
                raise _out_of_range(name, number, "a positive int" if smallest else "an int, 0 or more")
        ports = {name: getattr(self, name) for name in ("health_port", "metrics_port", "ui_port")}
        for name, port in ports.items():
            if port is not None and (isinstance(port, bool) or not isinstance(port, int) or port >> 16):
                raise _out_of_range(name, port, "a port: 1 to 65535, or 0 for any that is free")
        given = [port for port in ports.values() if port]
        if len(set(given)) < len(given):
            named = " and ".join(name for name, port in ports.items() if given.count(port or 0) > 1)
            raise _error(f"{named} are the same port", "give each a port of its own")
        for name in ("health_host", "metrics_host", "ui_host"):
            host: Any = getattr(self, name)
            if not isinstance(host, str) or not host:
                raise _out_of_range(name, host, "the address of an interface, such as 0.0.0.0")
        if self.partitions is not None:
            check_most_partitions(self.partitions)

    def _check_choices(self) -> None:
        _check_choice("engine", self.engine, get_args(Engine))
        _check_choice("processing_guarantee", self.processing_guarantee, get_args(Guarantee))
        _check_choice("on_lost_records", self.on_lost_records, get_args(OnLostRecords))
        _check_choice("state_mode", self.state_mode, get_args(StateMode))
        _check_choice("on_lost_state", self.on_lost_state, get_args(OnLostState))
        _check_choice("on_change", self.on_change, get_args(OnChange))
        for name in ("deserialization_errors", "processing_errors"):
            check_on_error(name, getattr(self, name))

    def _normalise(self) -> None:
        put = object.__setattr__
        if self.state_dir is None:
            put(self, "state_dir", os.path.join(".", "crossstream-state", self.application_id))
        durations = {
            "broker_patience": 1,
            "health_patience": 1,
            "max_task_idle": 0,
            "trigger": 0,
            "idle_after": 1,
        }
        for name, least in durations.items():
            duration = getattr(self, name)
            if duration is not None or name not in ("trigger", "idle_after"):
                settled = to_milliseconds(duration, name, minimum=least, unclear="refuse")
                put(self, name, f"{settled} ms")
        put(self, "bootstrap_servers", self.servers)
        put(self, "kafka", dict(self.kafka))
        put(self, "spark", dict(self.spark))


def check_on_error(setting: str, value: object) -> None:
    """Raises `ConfigError` CS-201 for a value that is not an `OnError`."""
    if not isinstance(value, DeadLetter):
        _check_choice(setting, value, ("fail", "skip"), "DeadLetter(topic)")


def _servers(servers: object) -> str | None:
    """The brokers as one text; None for anything but a text or a list of texts."""
    if isinstance(servers, str):
        return servers or None
    texts = isinstance(servers, Sequence) and all(isinstance(server, str) for server in servers)
    return ",".join(servers) or None if texts and isinstance(servers, Sequence) else None


def _check_name(owner: str, setting: str, name: object) -> None:
    fault = name_fault(name)
    if fault is not None:
        next = 'choose a name of ASCII letters, digits, ".", "_" and "-", at most 249 of them'
        raise _error(f"{owner}({setting}={name!r}): {fault}", next)


def _check_choice(setting: str, value: object, choices: tuple[str, ...], more: str = "") -> None:
    if value not in choices:
        named = [repr(choice) for choice in choices] + ([more] if more else [])
        raise _error(f"{setting} cannot be {value!r}", f"choose {' or '.join(named)}")


def check_most_partitions(number: int, where: dict[str, Any] | None = None) -> None:
    """Raises `ConfigError` CS-201 for too many state partitions. ``where``: by default the caller's line."""
    if number > MOST_PARTITIONS:
        wanted = f"at most {MOST_PARTITIONS:,}; about one for each core is enough"
        raise _out_of_range("partitions", number, wanted, where)


def _out_of_range(
    setting: str, value: object, wanted: str, where: dict[str, Any] | None = None
) -> CrossStreamError:
    return _error(f"{setting} cannot be {value!r}", f"give {wanted}", where)


def _error(
    what: str, next: str, where: dict[str, Any] | None = None, *, code: str = "CS-201"
) -> CrossStreamError:
    return refuse(code, what, next, **(caller_location() if where is None else where))


@contextmanager
def needs(extra: str, setting: str) -> Iterator[None]:
    """Raises `ConfigError` CS-201 where an import of ``extra`` fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        what = f"{setting} needs the package {error.name}, which is not installed"
        step = f'install it: pip install "crossstream[{extra}]"'
        raise refuse("CS-201", what, step, setting=setting) from error


def not_opened(setting: str, host: str, port: int, error: OSError) -> CrossStreamError:
    """The error of a port that is taken, or of a host that is not one of this machine."""
    what = f"{setting}: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
    return refuse("CS-201", what, f"give another {setting}, or stop what uses it", setting=setting)
