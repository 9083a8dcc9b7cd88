"""`crossstream types`: prints the Python types of a schema that a registry has."""

from __future__ import annotations

import json
import keyword
import re
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from crossstream.errors import SerdeError
from crossstream.serdes.registry.client import Registered, RegistrySettings, connection


def main(arguments: Namespace) -> int:
    """Prints a Python module with the dataclasses of a schema."""
    settings = RegistrySettings.of(arguments.registry)
    print(
        module_of(connection(settings).latest(arguments.subject, arguments.version), arguments.subject),
        end="",
    )
    return 0


def module_of(schema: Registered, subject: str) -> str:
    """A Python module with the types of a schema; the last class is that of the records."""
    written = Written()
    if schema.kind == "AVRO":
        named: dict[str, Any] = {}
        for _, text in schema.references:
            AvroTypes(written, named).type_of(json.loads(text), "")
        top = AvroTypes(written, named).type_of(json.loads(schema.text), "")
        serde = "confluent_avro"
    elif schema.kind == "JSON":
        others = {name: json.loads(text) for name, text in schema.references}
        top = JsonTypes(written, json.loads(schema.text), others).top(_camel(subject))
        serde = "confluent_json"
    else:
        raise SerdeError(
            f"subject {subject} is Protobuf, whose classes protoc makes",
            code="CS-404",
            where={"subject": subject},
            next="run protoc --python_out=. on its .proto file, and pass a class to serdes.confluent_protobuf",
        )
    about = (
        f"Subject {subject}, version {schema.version}, id {schema.id}. For serdes.{serde}(registry, {top})."
    )
    return written.module(about)


@dataclass
class Written:
    """Classes that were written so far, and what they import."""

    classes: dict[str, str] = field(default_factory=dict)
    imports: set[tuple[str, str]] = field(default_factory=set)

    def use(self, module: str, name: str) -> str:
        self.imports.add((module, name))
        return name

    def name(self, wanted: str) -> str:
        """A name for a class that no other has."""
        wanted = _camel(wanted) or "Record"
        name, number = wanted, 2
        while name in self.classes:
            name, number = f"{wanted}{number}", number + 1
        self.classes[name] = ""  # so that it stands before those that it contains; moved when it is written
        return name

    def record(self, name: str, doc: str, fields: Iterable[tuple[str, str, str | None]]) -> None:
        """``fields``: name, type and default (text, or None) of each."""
        named = [(_identifier(given), given, kind, default) for given, kind, default in fields]
        if any(safe != given for safe, given, *_ in named):
            self.imports.add(("", "msgspec"))
            field, head = "msgspec.field", f"class {name}(msgspec.Struct, kw_only=True):"
        else:
            self.use("dataclasses", "dataclass")
            field, head = "field", f"@dataclass(kw_only=True)\nclass {name}:"
        lines = []
        for safe, given, kind, default in named:
            settings = [] if safe == given else [f"name={given!r}"]
            if default in FACTORIES:
                settings.append(f"default_factory={FACTORIES[default]}")
                if field == "field":
                    self.use("dataclasses", "field")
            elif settings and default is not None:
                settings.append(f"default={default}")
            value = f"{field}({', '.join(settings)})" if settings else default
            lines.append(f"    {safe}: {kind}" + ("" if value is None else f" = {value}"))
        self._put(name, head, doc, lines or ["    pass"])

    def enum(self, name: str, doc: str, symbols: list[str]) -> None:
        self.use("enum", "Enum")
        lines = [f"    {_identifier(one)} = {one!r}" for one in symbols]
        self._put(name, f"class {name}(Enum):", doc, lines)

    def _put(self, name: str, head: str, doc: str, lines: list[str]) -> None:
        about = [f'    """{_doc(doc)}"""', ""] if doc else []
        del self.classes[name]
        self.classes[name] = "\n".join([head, *about, *lines])

    def module(self, about: str) -> str:
        plain = [f"import {name}" for module, name in sorted(self.imports) if not module]
        by_module: dict[str, list[str]] = {}
        for module, name in sorted(self.imports):
            if module:
                by_module.setdefault(module, []).append(name)
        standard = [f"from {module} import {', '.join(names)}" for module, names in by_module.items()]
        blocks = ["\n".join(standard), "\n".join(plain)]
        head = [f'"""{_doc(about)}"""', "from __future__ import annotations", *(one for one in blocks if one)]
        return "\n\n".join(head) + "".join(f"\n\n\n{text}" for text in self.classes.values()) + "\n"


FACTORIES = {"[]": "list", "{}": "dict"}
"""Defaults that are made for each record."""
_PRIMITIVES = {
    "null": "None",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "string": "str",
}
_LOGICAL = {
    "decimal": ("decimal", "Decimal"),
    "uuid": ("uuid", "UUID"),
    "date": ("datetime", "date"),
    "time-millis": ("datetime", "time"),
    "time-micros": ("datetime", "time"),
    "timestamp-millis": ("datetime", "datetime"),
    "timestamp-micros": ("datetime", "datetime"),
    "timestamp-nanos": ("datetime", "datetime"),
    "local-timestamp-millis": ("datetime", "datetime"),
    "local-timestamp-micros": ("datetime", "datetime"),
    "local-timestamp-nanos": ("datetime", "datetime"),
}


class AvroTypes:
    """Types of Avro schemas. ``named``: the Python types of names that were seen."""

    def __init__(self, written: Written, named: dict[str, str]) -> None:
        self._written = written
        self._named = named

    def type_of(self, schema: Any, namespace: str) -> str:
        if isinstance(schema, list):
            kinds = dict.fromkeys(self.type_of(one, namespace) for one in schema)
            return " | ".join(sorted(kinds, key=lambda kind: kind == "None"))
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._named.get(_full(schema, namespace)) or self._named[schema]
        logical, kind = schema.get("logicalType"), schema["type"]
        if kind == "fixed":
            self._named[_full(schema["name"], schema.get("namespace", namespace))] = found = self._logical(
                logical, "bytes"
            )
            return found
        if logical in _LOGICAL:
            return self._logical(logical, "")
        if kind == "array":
            return f"list[{self.type_of(schema['items'], namespace)}]"
        if kind == "map":
            return f"dict[str, {self.type_of(schema['values'], namespace)}]"
        if kind not in ("record", "error", "enum"):
            return self.type_of(kind, namespace)
        full = _full(schema["name"], schema.get("namespace", namespace))
        within = full.rpartition(".")[0]
        name = self._named[full] = self._written.name(schema["name"].rpartition(".")[2])
        for alias in schema.get("aliases", ()):
            self._named.setdefault(_full(alias, within), name)
        if kind == "enum":
            self._written.enum(name, schema.get("doc", ""), schema["symbols"])
        else:
            fields = [
                (one["name"], kind := self.type_of(one["type"], within), self._default(one, kind))
                for one in schema["fields"]
            ]
            self._written.record(name, schema.get("doc", ""), fields)
        return name

    def _logical(self, logical: Any, other: str) -> str:
        return self._written.use(*_LOGICAL[logical]) if logical in _LOGICAL else other

    def _default(self, field: Any, kind: str) -> str | None:
        if "default" not in field:
            return None
        value = field["default"]
        first = kind.split(" | ")[0]
        if isinstance(value, str) and first in self._written.classes:  # of an enum
            return f"{first}.{_identifier(value)}"
        if isinstance(value, str) and first == "bytes":
            return repr(value.encode("latin-1"))
        plain = value is None or first in ("bool", "int", "float", "str")
        return (
            _default(value) if plain or (value in ([], {}) and first not in self._written.classes) else None
        )


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _default(value: Any) -> str | None:
    return None if value and isinstance(value, list | dict) else repr(value)


_FORMATS = {
    "date-time": ("datetime", "datetime"),
    "date": ("datetime", "date"),
    "time": ("datetime", "time"),
    "uuid": ("uuid", "UUID"),
    "decimal": ("decimal", "Decimal"),
}


class JsonTypes:
    """Types of a JSON Schema. ``others``: schemas that it refers to, by name."""

    def __init__(self, written: Written, schema: Any, others: dict[str, Any]) -> None:
        self._written = written
        self._schema = schema
        self._others = others
        self._named: dict[str, str] = {}

    def top(self, name: str) -> str:
        schema = self._schema
        if isinstance(schema, dict) and "properties" in schema:
            self._named["#"] = self._written.name(schema.get("title") or name)
            self._record(self._named["#"], schema, schema)
            return self._named["#"]
        return self.type_of(schema, name, schema)

    def type_of(self, schema: Any, name: str, root: Any) -> str:
        """``name``: for a class, if it has no title. ``root``: the document that references are about."""
        if not isinstance(schema, dict):
            return self._any()
        if "$ref" in schema:
            return self._referred(schema["$ref"], root)
        for words in ("anyOf", "oneOf"):
            if words in schema:
                return _union(self.type_of(one, name, root) for one in schema[words])
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            if all(isinstance(one, str | int | bool | None) for one in values):
                return f"{self._written.use('typing', 'Literal')}[{', '.join(map(repr, values))}]"
            return self._any()
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            return _union(self.type_of({**schema, "type": one}, name, root) for one in kind)
        if kind == "object":
            return self._object(schema, name, root)
        if kind == "array":
            items = schema.get("prefixItems", schema.get("items"))
            if isinstance(items, list):
                inner = ", ".join(self.type_of(one, name, root) for one in items)
                return f"tuple[{inner}]"
            return f"list[{self.type_of(items, name, root)}]"
        if kind == "string" and schema.get("format") in _FORMATS:
            return self._written.use(*_FORMATS[schema["format"]])
        plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
        return plain.get(str(kind)) or self._any()

    def _any(self) -> str:
        return self._written.use("typing", "Any")

    def _object(self, schema: Any, name: str, root: Any) -> str:
        if "properties" not in schema:
            return f"dict[str, {self.type_of(schema.get('additionalProperties'), name, root)}]"
        made = self._written.name(schema.get("title") or name)
        self._record(made, schema, root)
        return made

    def _record(self, name: str, schema: Any, root: Any) -> None:
        needed = schema.get("required", ())
        fields: list[tuple[str, str, str | None]] = []
        for given, inner in schema["properties"].items():
            kind = self.type_of(inner, f"{name}_{given}", root)
            if given in needed:
                fields.append((given, kind, None))
                continue
            default = _default(inner["default"]) if isinstance(inner, dict) and "default" in inner else "None"
            plain = default == "None" or re.match(r"(bool|int|float|str|list|dict)\b", kind) is not None
            default = default if plain and default is not None else "None"
            optional = default == "None" and "None" not in kind.split(" | ") and kind != "Any"
            fields.append((given, f"{kind} | None" if optional else kind, default))
        self._written.record(name, schema.get("description", ""), fields)

    def _referred(self, reference: str, root: Any) -> str:
        document, _, path = reference.partition("#")
        key = reference if document else f"{id(root)}#{path}"
        if not document and not path.strip("/") and "#" in self._named:
            return self._named["#"]
        if key in self._named:
            return self._named[key]
        names = [name for name in self._others if document and document.endswith(name)]
        if document and not names:
            return self._any()
        target = root = self._others[names[0]] if document else root
        for part in path.strip("/").split("/") if path.strip("/") else ():
            target = (
                target.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(target, dict) else {}
            )
        name = path.rpartition("/")[2] or document
        if isinstance(target, dict) and "properties" in target:
            self._named[key] = made = self._written.name(target.get("title") or name)
            self._record(made, target, root)
            return made
        self._named[key] = self._any()  # for one that refers to itself
        self._named[key] = found = self.type_of(target, name, root)
        return found


def _union(kinds: Iterable[str]) -> str:
    parts = dict.fromkeys(part for kind in kinds for part in ([kind] if "[" in kind else kind.split(" | ")))
    return "Any" if "Any" in parts else " | ".join(sorted(parts, key=lambda part: part == "None"))


def _identifier(name: str) -> str:
    safe = re.sub(r"\W", "_", name, flags=re.ASCII)
    if keyword.iskeyword(safe):
        return f"{safe}_"
    return f"_{safe}" if not safe or safe[0].isdigit() else safe


def _camel(name: str) -> str:
    """A name as one of a class: ``order-value`` → ``OrderValue``."""
    parts = re.split(r"[^0-9A-Za-z]+", name)
    made = "".join(part[:1].upper() + part[1:] for part in parts if part)
    return f"_{made}" if made[:1].isdigit() else made


def _doc(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace('"""', "'''").split()).rstrip('"')
