"""Perdure: a durable runtime for LLM agents. A message that was accepted is answered, whatever dies in between."""

__version__ = "0.1.0"
