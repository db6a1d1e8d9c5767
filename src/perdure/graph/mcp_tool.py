"""A tool of an MCP server as the agent sees it: its name, its arguments, what it says of its effect, its answer as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

from langchain_core.tools import BaseTool, ToolException
from mcp import types
from pydantic import PrivateAttr

from perdure import ledger
from perdure.effects import EffectClass
from perdure.graph.mcp_options import ServerOptions

KEY_META = "perdure/idempotency-key"
"""The key of `_meta` in `tools/call` that carries the call's idempotency key: the same in every attempt."""

_LONGEST_NAME = 64
"""What model providers accept."""


class Caller(Protocol):
    async def call(self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> str: ...


class McpTool(BaseTool):
    """One tool of a server. Its arguments are checked by the server, against the schema the model is shown."""

    server_name: str
    remote_name: str
    effect: EffectClass | None = None
    """What the server, or its entry in `mcp.json`, declares. A server's word is a hint: an agent's `effects` come first."""

    polls: bool = False
    """The protocol has no word for it: see an agent's `poll`."""

    key_argument: str | None = None
    """The argument that takes the idempotency key; absent from the schema, from approvals and from digests."""

    _server: Caller = PrivateAttr()

    def _run(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError("MCP tools are asynchronous")

    async def _arun(self, /, **arguments: Any) -> str:
        key = ledger.current_key.get()
        if self.key_argument is not None:
            # Whatever a model made up for an argument that it was not shown does not reach the server.
            arguments.pop(self.key_argument, None)
            arguments |= {self.key_argument: key} if key else {}
        return await self._server.call(self.remote_name, arguments, {KEY_META: key} if key else {})


def bound_tool(server: str, caller: Caller, described: types.Tool, options: ServerOptions) -> McpTool:
    schema = {"properties": {}, **described.inputSchema}
    argument = options.key_argument.of(described.name)
    if argument is not None and argument in schema["properties"]:
        schema = _without(schema, argument)
    else:
        argument = None
    tool = McpTool(
        name=tool_name(server, described.name),
        description=described.description or described.title or described.name,
        args_schema=schema,
        server_name=server,
        remote_name=described.name,
        effect=declared_effect(described.annotations, keyed=argument is not None),
        key_argument=argument,
    )
    tool._server = caller
    return tool


def declared_effect(annotations: types.ToolAnnotations | None, *, keyed: bool) -> EffectClass | None:
    """`readOnlyHint` → read; `idempotentHint`, or an argument that takes the key → keyed; else nothing is declared.

    `idempotentHint` says that the same arguments a second time change nothing more. That is what a repeated call of a `keyed`
    tool needs, whether or not the server looks at the key.
    """
    if annotations is not None and annotations.readOnlyHint:
        return EffectClass.READ
    if keyed or (annotations is not None and annotations.idempotentHint):
        return EffectClass.KEYED
    return None


def _without(schema: Mapping[str, Any], argument: str) -> dict[str, Any]:
    properties = {name: each for name, each in schema["properties"].items() if name != argument}
    required = [name for name in schema.get("required", []) if name != argument]
    return {**schema, "properties": properties, "required": required}


def tool_name(server: str, tool: str) -> str:
    """`server__tool`, in the letters and the length that model providers accept."""
    name = f"{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def result_text(result: types.CallToolResult) -> str:
    """Text only: other content is named in brackets. Raises ToolException for a result that is an error."""
    parts = [_content_text(each) for each in result.content]
    if not parts and result.structuredContent is not None:
        parts = [str(result.structuredContent)]
    text = "\n".join(parts)
    if result.isError:
        raise ToolException(text or "the server gave no reason")
    return text


def _content_text(content: types.ContentBlock) -> str:
    if isinstance(content, types.TextContent):
        return content.text
    if isinstance(content, types.EmbeddedResource) and isinstance(content.resource, types.TextResourceContents):
        return content.resource.text
    if isinstance(content, types.ResourceLink):
        return f"[link {content.uri}]"
    return f"[{content.type}]"
