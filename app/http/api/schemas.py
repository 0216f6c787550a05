"""Schemas of the OpenAPI document as generators of clients take them: named, and one type for each value."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

JsonSchema = dict[str, Any]

REF = "#/components/schemas/"
_FORMATS = {"integer": "int64", "number": "double"}
"""Times and sizes exceed 32 bits, which generators give a number without a format."""

NAMED: dict[str, JsonSchema] = {}
"""The schemas that no class describes, by name."""


def named(name: str, schema: Mapping[str, Any]) -> JsonSchema:
    """A reference to the schema, which the document holds once under this name."""
    NAMED[name] = dict(schema)
    return {"$ref": REF + name}


def settle(document: JsonSchema) -> None:
    """Rewrites the schemas of the document in place. They accept what they accepted."""
    for node in _nodes(document):
        _settle(node)
    for parameter in parameters_of(document):
        parameter["schema"] = _not_null(parameter["schema"])
    sent = _sent(document)
    for name, schema in document["components"]["schemas"].items():
        if "enum" in schema:
            # In Go all constants share one scope.
            schema["x-enum-varnames"] = [f"{_upper(name)}_{_upper(value)}" for value in schema["enum"]]
        for rule in schema.get("properties", {}).values() if name in sent else ():
            if default := rule.pop("default", None):
                # A client that sent it would stay with the default of its day.
                rule["description"] = f"{rule.get('description', '')} Default: `{default}`.".strip()


def in_query(schema: JsonSchema) -> JsonSchema:
    """The schema of a body's field where it is a parameter: text that is JSON, if it is no single value."""
    schema = _not_null(schema)
    if schema.get("type") not in ("string", "integer", "number", "boolean"):
        return {"type": "string"}
    return {name: value for name, value in schema.items() if name != "description"}


def parameters_of(document: JsonSchema) -> Iterator[JsonSchema]:
    for operation in _operations_of(document):
        yield from operation.get("parameters", ())


def _operations_of(document: JsonSchema) -> Iterator[JsonSchema]:
    for operations in document["paths"].values():
        yield from operations.values()


def _nodes(node: Any) -> Iterator[JsonSchema]:
    """All objects of a document but its examples, the inner ones first."""
    if isinstance(node, list):
        for below in node:
            yield from _nodes(below)
    elif isinstance(node, dict):
        for name, below in node.items():
            if name not in ("example", "examples"):
                yield from _nodes(below)
        yield node


def _settle(node: JsonSchema) -> None:
    if isinstance(node.get("title"), str) and "version" not in node:
        # Pydantic's, from the name of the field: generators would name a type by it.
        del node["title"]
    for media in node.keys() & {"text/plain", "text/event-stream"}:
        node[media]["schema"] = node[media].get("schema") or {"type": "string"}
    if "enum" in node:
        node.setdefault("type", "string")
    chosen = _chosen(node)
    if chosen is not None and "type" in chosen:
        # One type that may be null, which generators know, where a choice would become a class.
        del node["anyOf"]
        node |= chosen | node | {"type": [chosen["type"], "null"]}
        if "enum" in node:
            node["enum"] = [*node["enum"], None]
    kinds = node.get("type", ())
    for kind, width in _FORMATS.items():
        if kind == kinds or (isinstance(kinds, list) and kind in kinds):
            node.setdefault("format", width)
            if kind == "integer":
                node |= {bound: int(node[bound]) for bound in ("minimum", "maximum") if bound in node}


def _chosen(schema: JsonSchema) -> JsonSchema | None:
    """The other choice of two, of which one is null."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return choices[0] if len(choices) == 1 else None


def _not_null(schema: JsonSchema) -> JsonSchema:
    """The schema of a parameter, which is absent instead of null."""
    if (chosen := _chosen(schema)) is not None:
        return {name: value for name, value in schema.items() if name != "anyOf"} | chosen
    if isinstance(schema.get("type"), list):
        (kind,) = (one for one in schema["type"] if one != "null")
        schema = {**schema, "type": kind}
        if "enum" in schema:
            schema["enum"] = [value for value in schema["enum"] if value is not None]
    return schema


def _sent(document: JsonSchema) -> set[str]:
    """The names of the schemas of which requests consist."""
    schemas, found = document["components"]["schemas"], set[str]()
    left = set(_references([operation.get("requestBody") for operation in _operations_of(document)]))
    while left:
        found |= left
        left = {name for each in left for name in _references(schemas[each])} - found
    return found


def _references(node: Any) -> Iterator[str]:
    for below in _nodes(node):
        if isinstance(reference := below.get("$ref"), str):
            yield reference.removeprefix(REF)


def _upper(name: str) -> str:
    """ReadGrep and read-grep as READ_GREP."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\W", "_", name).upper()
