"""The errors of a schema registry."""

from __future__ import annotations

import re
from typing import Protocol

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.serdes import errors
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


def unusable(what: str) -> CrossStreamError:
    step = (
        'pass its URL, such as "http://localhost:8081", a dict of settings ("url", "basic.auth.user.info", …),'
        " or a SchemaRegistryClient of confluent_kafka"
    )
    return refuse("CS-201", what, step)


def away(settings: Settings, what: str, error: Exception) -> CrossStreamError:
    what = f"the schema registry did not answer for {settings.patience / 1000:g} s: {type_and_text(error)}"
    return refuse(errors.NO_REGISTRY, what, registry=settings.url, asked=what)


def no_access(settings: Settings, what: str, refused: Refused) -> CrossStreamError:
    next = "check its URL: a proxy or another server may have answered"
    if refused.status in (401, 403):
        next = 'check the credentials, for instance the setting "basic.auth.user.info": "user:password"'
    return refuse(
        errors.NO_REGISTRY,
        f"the schema registry refused to answer (HTTP {refused.status}): {short(refused.message)}",
        next,
        registry=settings.url,
        asked=what,
    )


def unknown_id(settings: Settings, id: int, reason: str = "") -> CrossStreamError:
    what = f"the schema registry has no schema with id {id}"
    if reason:
        what = f"what the schema registry has for schema id {id} cannot be used: {short(reason)}"
    step = (
        "check that this is the registry of the topic's producer; to skip such records, or send them to a "
        'dead letter topic, set deserialization_errors="skip" or cs.DeadLetter(topic)'
    )
    return refuse(errors.UNDECODABLE, what, step, registry=settings.url, id=id)


def no_use(settings: Settings, what: str, error: Unusable) -> CrossStreamError:
    return refuse(
        errors.REFUSED_SCHEMA,
        f"the answer of the schema registry cannot be used: {short(str(error))}",
        "check its URL: a proxy or another server may have answered; else declare the schema",
        registry=settings.url,
        asked=what,
    )


def no_schema(settings: Settings, subject: str, refused: Refused) -> CrossStreamError:
    what = f"the schema registry has no schema under subject {subject}: {short(refused.message)}"
    step = "check the name of the topic or of subject=; or declare the schema, so that it can be registered"
    return refuse(errors.REFUSED_SCHEMA, what, step, registry=settings.url, subject=subject)


_DESCRIPTION = re.compile(r"""description"?:\s*["'](.*?)["'],\s*"?additionalInfo""", re.DOTALL)


def not_registered(
    settings: Settings, subject: str, kind: str, refused: Refused, auto_register: bool
) -> CrossStreamError:
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
    return refuse(errors.REFUSED_SCHEMA, what, next, **where)


def short(text: str) -> str:
    return text if len(text) <= 400 else text[:400] + "…"
