"""Decisions on cards: edited arguments are held against the tool's schema before the store's one compare-and-set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from perdure.errors import BadRequest
from perdure.graph.load import HostedGraph
from perdure.graph.tools import BoundTool
from perdure.store.base import Decided, Store
from perdure.turns import Accepted, AskedCall, Card, CardState, Person, RequestKey, Verdict


class Approvals:
    """See `AgentPort.decide` and `AgentPort.answer`."""

    def __init__(self, store: Store, agents: Mapping[str, HostedGraph]) -> None:
        self._store = store
        self._agents = agents

    async def decide(self, person: Person, card: str, verdict: Verdict) -> Decided:
        if verdict.arguments is not None:
            await self._check(await self._store.card(person.scope, person.name, card), verdict.arguments)
        return await self._store.decide(person.scope, card, replace(verdict, by=person.name))

    async def answer(
        self, person: Person, conversation: str, answers: Mapping[str, Verdict], request_key: RequestKey | None
    ) -> Accepted:
        edited = {question for question, verdict in answers.items() if verdict.arguments is not None}
        turn = await self._store.last_turn(person.scope, conversation) if edited else None
        for card in await self._store.cards(person.scope, turn.id) if turn else ():
            if card.interrupt_id in edited:
                await self._check(card, answers[card.interrupt_id].arguments or {})
        said = {question: replace(verdict, by=person.name) for question, verdict in answers.items()}
        return await self._store.answer(person.scope, conversation, said, person.name, request_key)

    async def _check(self, card: Card, arguments: Mapping[str, Any]) -> None:
        """Raises BadRequest with the field. A card that is decided is left to the store, which says who decided it."""
        if card.state is not CardState.OPENED or card.call is None:
            return
        agent = self._agents.get((await self._store.turn(None, card.turn)).agent)
        tool = await _tool(agent, card.call) if agent is not None else None
        problem = _problem(tool, arguments) if tool is not None else None
        if problem is not None:
            raise BadRequest(
                f"`arguments`: {card.call.tool} does not take these: {problem}. Nothing was decided.",
                conversation=card.conversation,
                turn=card.turn,
            )


def _problem(tool: BoundTool, arguments: Mapping[str, Any]) -> str | None:
    """A name that the tool does not know would be dropped without a word: what a person wrote must be what runs."""
    known = set(tool.tool.args)
    unknown = sorted(set(arguments) - known)
    if unknown and not _takes_any(tool.tool):
        names = ", ".join(sorted(known)) or "none"
        return f"{unknown[0]}: there is no such argument; there are: {names}"
    return tool.argument_problem(dict(arguments))


def _takes_any(tool: BaseTool) -> bool:
    schema = tool.tool_call_schema
    return isinstance(schema, type) and getattr(schema, "model_config", {}).get("extra") == "allow"


async def _tool(agent: HostedGraph, call: AskedCall) -> BoundTool | None:
    """The tool that a card asks about. None for one of an MCP server (it checks its own arguments, and need not be there to
    decide), and where the agent does not have it any more, or its node is not known."""
    if call.server is not None:
        return None
    if agent.tools is None:
        tool = next((tools[call.tool] for tools in _nodes(agent.graph) if call.tool in tools), None)
        return BoundTool(tool) if tool is not None else None
    found = await agent.tools.find(call.tool)
    return None if isinstance(found, str) else found


def _nodes(graph: Pregel[Any, Any, Any, Any]) -> Iterator[Mapping[str, BaseTool]]:
    """The tools of each tool node of a user's graph, by name."""
    inner = [each for _, each in graph.get_subgraphs(recurse=True) if isinstance(each, Pregel)]
    for each in (graph, *inner):
        for node in each.nodes.values():
            tools = getattr(node.bound, "tools_by_name", None)
            if isinstance(tools, Mapping):
                yield tools
