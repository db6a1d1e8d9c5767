"""Writes `src/api/schema.ts` from the server's own description and its tables of codes, for each of which the page has words:
`python panel/scripts/api_types.py [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from perdure.api import documentation
from perdure.api.app import ROOMS
from perdure.api.errors import STATUS
from perdure.turns import FailureCode

TARGET = Path(__file__).parents[1] / "src" / "api" / "schema.ts"
HEAD = "// Made from the server's OpenAPI description and its tables of codes by scripts/api_types.py. Do not edit.\n"
CODES: Mapping[str, Any] = {"ErrorCode": {"enum": list(STATUS)}, "FailureCode": {"enum": list(FailureCode)}}
"""What `code` is in an answer that is an error, and in the error of a turn. Not in the description: a program must not fall over
one that is new, the page comes with the server whose codes it knows."""

_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def described() -> Mapping[str, Any]:
    app = FastAPI(title="Perdure", routes=[route for room in ROOMS for route in room.router.routes])
    documentation.install(app)
    schemas: Mapping[str, Any] = app.openapi()["components"]["schemas"]
    return {**schemas, **CODES}


def module(schemas: Mapping[str, Any]) -> str:
    return HEAD + "".join(f"\n{declaration(name, schemas[name])}" for name in sorted(schemas))


def declaration(name: str, schema: Mapping[str, Any]) -> str:
    if schema.get("type") == "object" and "properties" in schema:
        required = set(schema.get("required", ()))
        fields = "".join(
            f"  {_key(field)}{'' if field in required else '?'}: {type_of(inner)};\n"
            for field, inner in schema["properties"].items()
        )
        return f"export interface {_name(name)} {{\n{fields}}}\n"
    return f"export type {_name(name)} = {type_of(schema)};\n"


def type_of(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _name(schema["$ref"].rsplit("/", 1)[-1])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        inner = type_of(schema.get("items", {}))
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if schema.get("type") == "object":
        more = schema.get("additionalProperties", True)
        return f"Record<string, {type_of(more) if isinstance(more, Mapping) and more else 'unknown'}>"
    return _PLAIN.get(str(schema.get("type")), "unknown")


def _name(name: str) -> str:
    """`Page_TurnSummary_` → `PageTurnSummary`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _key(field: str) -> str:
    return field if field.isidentifier() else json.dumps(field)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the file is not what the server describes")
    text = module(described())
    if not parser.parse_args().check:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET} is not what the server describes; run: python panel/scripts/api_types.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
