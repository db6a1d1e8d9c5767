"""How a tool learns the idempotency key of its call: `call_key(runtime.config)` in a tool that takes a `ToolRuntime`."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

_KEY = "perdure_idempotency_key"


def call_key(config: RunnableConfig) -> str | None:
    """The key of the running call: the same on every attempt. None outside a tool call."""
    key = config.get("configurable", {}).get(_KEY)
    return key if isinstance(key, str) else None


def with_call_key(config: RunnableConfig, key: str) -> RunnableConfig:
    return {**config, "configurable": {**config.get("configurable", {}), _KEY: key}}
