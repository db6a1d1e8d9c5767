"""LangChain's `create_agent`. One middleware covers every tool of it."""

from langchain.agents import create_agent
from shop import tools

from perdure import DurableToolsMiddleware

agent = create_agent("openai:gpt-5-mini", tools, middleware=[DurableToolsMiddleware()])
