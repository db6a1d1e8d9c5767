"""Every subject that Perdure uses, built and read here alone.

A name from outside becomes one word of a subject: it can be neither a wildcard nor reach into another's subject.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from perdure.errors import BadRequest, ConfigurationError

QUEUE_GROUP = "agents"
"""Of the requests: several processes of one agent share them."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TURN = re.compile(r"[0-9a-f]{32}")
_WORD_IS = "1 to 64 letters, digits, `_` and `-`, the first a letter or a digit"


@dataclass(frozen=True, slots=True)
class Address:
    """What a subject of an agent names. `kind`: `turns`, `tokens`, `news` or `agents`; `turn` of the first two."""

    kind: str
    agent: str
    turn: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """The subjects of one prefix and namespace. Raises ConfigurationError for words that are none, BadRequest for names of
    agents and turns that are none."""

    prefix: str
    namespace: str

    def __post_init__(self) -> None:
        words = (("nats_prefix", self.prefix), ("namespace", self.namespace))
        problems = [
            f"`{setting}` must be {_WORD_IS}, not {given!r}." for setting, given in words if not _WORD.fullmatch(given)
        ]
        if problems:
            raise ConfigurationError(problems)

    # -- requests -----------------------------------------------------------------------------------------------------

    def requests(self, agent: str) -> str:
        return f"{self.prefix}.agents.{self.namespace}.{_agent(agent)}"

    @property
    def discover(self) -> str:
        """Every agent of the namespace answers here."""
        return f"{self.prefix}.discover.{self.namespace}"

    def inbox(self, role: str, agent: str | None = None) -> str:
        """A new place for replies of one process; a reply's subject is this, a dot and a word. `role`: `gateway`, `agent`
        (then with its name). A credential may be limited to the inboxes of its role: `PREFIX.inbox.NAMESPACE.ROLE.>`."""
        owner = role if agent is None else f"{role}.{_agent(agent)}"
        return f"{self.prefix}.inbox.{self.namespace}.{owner}.{secrets.token_hex(8)}"

    def presence(self, agent: str) -> str:
        """Where each process that serves this agent listens, and nobody else: whether there is one is known at once. Below the
        inboxes of the agent, which its credentials may use as they are."""
        return f"{self.prefix}.inbox.{self.namespace}.agent.{_agent(agent)}.presence"

    # -- events -------------------------------------------------------------------------------------------------------

    @property
    def stream(self) -> str:
        """The JetStream stream of committed events, one for all namespaces of the prefix."""
        return f"{self.prefix}-turns"

    @property
    def stream_subjects(self) -> str:
        return f"{self.prefix}.turns.>"

    def turns(self, agent: str, turn: str) -> str:
        """Committed events."""
        return f"{self.prefix}.turns.{self.namespace}.{_agent(agent)}.{_turn(turn)}"

    def tokens(self, agent: str, turn: str) -> str:
        """Never stored."""
        return f"{self.prefix}.tokens.{self.namespace}.{_agent(agent)}.{_turn(turn)}"

    def news(self, agent: str) -> str:
        return f"{self.prefix}.news.{self.namespace}.{_agent(agent)}"

    # -- what a gateway listens to ------------------------------------------------------------------------------------

    @property
    def live(self) -> str:
        """Events and tokens of all agents in one subscription, because only then their order is kept."""
        return f"{self.prefix}.*.{self.namespace}.*.*"

    @property
    def all_turns(self) -> str:
        return f"{self.prefix}.turns.{self.namespace}.*.*"

    @property
    def all_news(self) -> str:
        return f"{self.prefix}.news.{self.namespace}.*"

    # -- reading ------------------------------------------------------------------------------------------------------

    def parse(self, subject: str) -> Address | None:
        """What a subject names; None when it is none of this namespace."""
        match subject.split("."):
            case [self.prefix, "turns" | "tokens" as kind, self.namespace, agent, turn] if _WORD.fullmatch(
                agent
            ) and _TURN.fullmatch(turn):
                return Address(kind, agent, turn)
            case [self.prefix, "news" | "agents" as kind, self.namespace, agent] if _WORD.fullmatch(agent):
                return Address(kind, agent)
        return None


def is_agent_name(name: str) -> bool:
    """Whether an agent of this name can be reached over NATS."""
    return _WORD.fullmatch(name) is not None


def _agent(name: str) -> str:
    if not _WORD.fullmatch(name):
        raise BadRequest(f"No agent is called {name!r}: a name is {_WORD_IS}.")
    return name


def _turn(turn: str) -> str:
    if not _TURN.fullmatch(turn):
        raise BadRequest(f"{turn!r} is no turn: its id is 32 lower-case hexadecimal digits.")
    return turn
