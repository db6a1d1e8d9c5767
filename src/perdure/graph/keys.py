"""How a tool learns the idempotency key of its call: `perdure.call_key()`, in any tool, synchronous or not."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

from perdure import ledger

_KEY = "perdure_idempotency_key"


def call_key(config: RunnableConfig | None = None) -> str | None:
    """The key of the running call: the same on every attempt, another one for every other call. None outside a tool call.

    It is found in the context of the call; code that left it (a thread or a process of its own) gives `runtime.config`.
    """
    found = ledger.current_key.get()
    if found is not None or config is None:
        return found
    key = config.get("configurable", {}).get(_KEY)
    return key if isinstance(key, str) else None


def with_call_key(config: RunnableConfig, key: str) -> RunnableConfig:
    return {**config, "configurable": {**config.get("configurable", {}), _KEY: key}}
