"""The errors of a schema registry."""

from __future__ import annotations

import re
from typing import Protocol

from crossstream.errors import ConfigError, SerdeError, type_and_text
from crossstream.serdes import refusals
from crossstream.serdes.registry.answers import Unusable


class Settings(Protocol):
    """Where a registry is, and how many milliseconds it is waited for."""

    @property
    def url(self) -> str: ...

    @property
    def patience(self) -> int: ...


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def unusable(what: str) -> ConfigError:
    return ConfigError(
        what,
        code="CS-201",
        next='pass its URL, such as "http://localhost:8081", a dict of settings ("url", "basic.auth.user.info", …),'
        " or a SchemaRegistryClient of confluent_kafka",
    )


def away(settings: Settings, what: str, error: Exception) -> SerdeError:
    return SerdeError(
        f"the schema registry did not answer for {settings.patience / 1000:g} s: {type_and_text(error)}",
        code=refusals.NO_REGISTRY,
        where={"registry": settings.url, "asked": what},
        next="check that it runs, and its URL; wait longer for it with the setting patience, such as"
        ' {"url": …, "patience": "5 minutes"}',
    )


def no_access(settings: Settings, what: str, refused: Refused) -> SerdeError:
    next = "check its URL: a proxy or another server may have answered"
    if refused.status in (401, 403):
        next = 'check the credentials, for instance the setting "basic.auth.user.info": "user:password"'
    return SerdeError(
        f"the schema registry refused to answer (HTTP {refused.status}): {short(refused.message)}",
        code=refusals.NO_REGISTRY,
        where={"registry": settings.url, "asked": what},
        next=next,
    )


def unknown_id(settings: Settings, id: int, reason: str = "") -> SerdeError:
    what = f"the schema registry has no schema with id {id}"
    if reason:
        what = f"what the schema registry has for schema id {id} cannot be used: {short(reason)}"
    return SerdeError(
        what,
        code=refusals.UNDECODABLE,
        where={"registry": settings.url, "id": id},
        next="check that this is the registry of the topic's producer; to skip such records, or send them to a "
        'dead letter topic, set deserialization_errors="skip" or cs.DeadLetter(topic)',
    )


def no_use(settings: Settings, what: str, error: Unusable) -> SerdeError:
    return SerdeError(
        f"the answer of the schema registry cannot be used: {short(str(error))}",
        code=refusals.REFUSED_SCHEMA,
        where={"registry": settings.url, "asked": what},
        next="check its URL: a proxy or another server may have answered; else declare the schema",
    )


def no_schema(settings: Settings, subject: str, refused: Refused) -> SerdeError:
    return SerdeError(
        f"the schema registry has no schema under subject {subject}: {short(refused.message)}",
        code=refusals.REFUSED_SCHEMA,
        where={"registry": settings.url, "subject": subject},
        next="check the name of the topic or of subject=; or declare the schema, so that it can be registered",
    )


_DESCRIPTION = re.compile(r"""description"?:\s*["'](.*?)["'],\s*"?additionalInfo""", re.DOTALL)


def not_registered(
    settings: Settings, subject: str, kind: str, refused: Refused, auto_register: bool
) -> SerdeError:
    where = {"registry": settings.url, "subject": subject}
    if refused.status not in (404, 409, 422):
        return no_access(settings, f"subject {subject}", refused)
    if refused.status == 404 and not auto_register:
        what = f"this {kind} schema is not registered under subject {subject}"
        next = "register it, or leave auto_register=False out"
    elif refused.status == 409:
        found = "; ".join(dict.fromkeys(_DESCRIPTION.findall(refused.message)))
        what = (
            f"the schema is incompatible with those of subject {subject}: {found or short(refused.message)}"
        )
        next = "give new fields a default, keep the others, or change the compatibility of the subject"
    else:
        what = f"the schema registry refused the schema for subject {subject}: {short(refused.message)}"
        next = "correct the schema"
    return SerdeError(what, code=refusals.REFUSED_SCHEMA, where=where, next=next)


def short(text: str) -> str:
    return text if len(text) <= 400 else text[:400] + "…"
