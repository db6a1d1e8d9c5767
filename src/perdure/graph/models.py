"""Models by `init_chat_model` name, created when a node first needs one. Creating one does no network call."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from perdure.graph.demo import DemoModel
from perdure.graph.errors import ModelNotConfigured

DEMO = "demo"
_DEMO_HINT = "The built-in model `demo` needs no key, package or server: set `model` to `demo` to try Perdure."


@dataclass(frozen=True, slots=True)
class _Provider:
    variables: tuple[str, ...]
    """Any one of these holds the key."""

    package: str
    """The module that must be importable."""

    base_url_replaces_key: bool = False
    """Servers that speak this protocol often want no key; with a base URL none is asked for."""


_PROVIDERS: Mapping[str, _Provider] = {
    "openai": _Provider(("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"), "langchain_openai", base_url_replaces_key=True),
    "anthropic": _Provider(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "langchain_anthropic"),
    "ollama": _Provider((), "langchain_ollama"),
    "google_genai": _Provider(("GOOGLE_API_KEY", "GEMINI_API_KEY"), "langchain_google_genai"),
    "mistralai": _Provider(("MISTRAL_API_KEY",), "langchain_mistralai"),
    "groq": _Provider(("GROQ_API_KEY",), "langchain_groq"),
    "deepseek": _Provider(("DEEPSEEK_API_KEY",), "langchain_deepseek"),
    "xai": _Provider(("XAI_API_KEY",), "langchain_xai"),
    "together": _Provider(("TOGETHER_API_KEY",), "langchain_together"),
    "fireworks": _Provider(("FIREWORKS_API_KEY",), "langchain_fireworks"),
    "cohere": _Provider(("COHERE_API_KEY",), "langchain_cohere"),
    "openrouter": _Provider(("OPENROUTER_API_KEY",), "langchain_openrouter"),
}
"""The providers whose needs can be told before anything is imported. Others are judged by their package when created."""

_OWN_RETRIES_UNKNOWN = frozenset({"ollama"})
"""Clients that never retry by themselves and have no such option."""


class ModelSource:
    """The one model of an agent: created lazily, kept, and remembered as failing until a call succeeds again."""

    def __init__(self, name: str, base_url: str | None = None) -> None:
        self.name = name
        self._base_url = base_url
        self._model: BaseChatModel | None = None
        self._creating = asyncio.Lock()
        self._failing: str | None = None

    @property
    def provider(self) -> str:
        return self.name.partition(":")[0].replace("-", "_").lower() if ":" in self.name else self.name

    async def get(self) -> BaseChatModel:
        """Raises ModelNotConfigured, which says what is missing; the next call tries again."""
        async with self._creating:
            if self._model is None:
                missing = self.missing()
                if missing:
                    raise ModelNotConfigured(missing)
                # A provider's package takes a second to import: not on the event loop.
                self._model = await asyncio.to_thread(_create, self.name, self.provider, self._base_url)
            return self._model

    def missing(self) -> str | None:
        """What the configuration lacks, as far as it can be seen without importing the provider's package."""
        known = _PROVIDERS.get(self.provider)
        if known is None:
            return None
        if importlib.util.find_spec(known.package) is None:
            distribution = known.package.replace("_", "-")
            return f"The model `{self.name}` needs the package {distribution}: pip install {distribution}. {_DEMO_HINT}"
        replaced = known.base_url_replaces_key and self._base_url is not None
        if known.variables and not replaced and not any(os.environ.get(name) for name in known.variables):
            return f"The model `{self.name}` needs a key: set the variable {known.variables[0]}. {_DEMO_HINT}"
        return None

    def failed(self, message: str) -> None:
        self._failing = message

    def succeeded(self) -> None:
        self._failing = None

    def problems(self) -> list[str]:
        problem = self.missing() or self._failing
        return [problem] if problem else []


def _create(name: str, provider: str, base_url: str | None) -> BaseChatModel:
    if name == DEMO:
        return DemoModel()
    options: dict[str, Any] = {}
    if provider not in _OWN_RETRIES_UNKNOWN:
        # Retries are ours: they are told to the watcher, bounded by a setting, and end with the attempt.
        options["max_retries"] = 0
    if base_url is not None:
        options["base_url"] = base_url
        if provider == "openai" and not os.environ.get("OPENAI_API_KEY"):
            options["api_key"] = "none-needed"
    try:
        model: BaseChatModel = init_chat_model(name, **options)
    except Exception as error:  # every provider's package has errors of its own
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelNotConfigured(f"The model `{name}` cannot be created: {text} {_DEMO_HINT}") from error
    return model
