"""Whether what a model gives fits the tool it calls. Only what the model is shown is looked at, never what is injected."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError


def argument_problem(tool: BaseTool, arguments: Any) -> str | None:
    """Why these arguments cannot be given to the tool, None when they can (a server checks its own)."""
    schema = tool.tool_call_schema
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return None
    try:
        schema.model_validate(arguments)
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors())
    return None
