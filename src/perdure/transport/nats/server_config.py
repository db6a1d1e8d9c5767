"""A configuration for nats-server that fits Perdure: what is durable, what is bounded, and who may do what. Pure text.

`sync_interval: always`: JetStream acknowledges before it syncs otherwise, and a power cut takes acknowledged messages, or the
whole stream. Perdure loses nothing with any setting (the journal refills the stream); with this one it need not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.errors import ConfigurationError
from perdure.transport.nats.names import QUEUE_GROUP, Names, is_agent_name

MAX_PAYLOAD = "8MB"
MAX_FILE_STORE = "10GB"
ANY_TURN = "*"

_HEAD = """\
# NATS for Perdure: nats-server -c THIS_FILE
host: "{host}"
port: 4222
max_payload: {payload}          # larger events go by reference, larger answers in parts

jetstream {{
  store_dir: "{store}"
  sync_interval: always     # acknowledged is on the disk, as in the agents' own files
  max_memory_store: 64MB
  max_file_store: {file_store}
}}
"""

_USERS = """
# One user for each role; passwords come from the environment of nats-server, in double quotes where they are no plain words (nats-server
# reads 12345 and true as no texts). Off one machine add tls {{}} and credentials or nkeys.
authorization {{
  users: [
{users}
  ]
}}
"""

_USER = """\
    {{
      user: "{user}", password: ${variable}
      permissions: {{
        publish: {{ allow: [{publish}] }}
        subscribe: {{ allow: [{subscribe}] }}
      }}
    }}"""


def server_config(prefix: str, namespace: str, agents: Sequence[str], *, store_folder: str) -> str:
    """Without agents: for everybody on the loopback. With them: one user for gateways and one for each agent, on all
    addresses. Raises ConfigurationError for words that are none."""
    names = Names(prefix, namespace)
    problems = [f"{agent!r} cannot be a word of a NATS subject." for agent in agents if not is_agent_name(agent)]
    if problems:
        raise ConfigurationError(problems)
    host = "0.0.0.0" if agents else "127.0.0.1"  # noqa: S104 -- with users and permissions alone
    head = _HEAD.format(host=host, payload=MAX_PAYLOAD, store=_quoted(store_folder), file_store=MAX_FILE_STORE)
    if not agents:
        return head
    return head + _USERS.format(users="\n".join(_users(names, agents)))


def _users(names: Names, agents: Sequence[str]) -> Iterator[str]:
    yield _user("gateway", gateway_publishes(names), gateway_subscribes(names))
    for agent in agents:
        yield _user(f"agent-{agent}", agent_publishes(names, agent), agent_subscribes(names, agent))


def _user(user: str, publish: Sequence[str], subscribe: Sequence[str]) -> str:
    return _USER.format(user=user, variable=password_variable(user), publish=_list(publish), subscribe=_list(subscribe))


def password_variable(user: str) -> str:
    """The variable of nats-server's environment with the password of `gateway` or `agent-NAME`."""
    return f"PERDURE_NATS_{user.upper().replace('-', '_')}_PASSWORD"


# -- who may do what --------------------------------------------------------------------------------------------------


def gateway_publishes(names: Names) -> Sequence[str]:
    stream = names.stream
    return [
        f"{names.prefix}.agents.{names.namespace}.*",
        names.discover,
        "$JS.API.INFO",
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.API.CONSUMER.DELETE.{stream}.*",
        f"$JS.ACK.{stream}.>",
    ]


def gateway_subscribes(names: Names) -> Sequence[str]:
    return [names.live, names.all_news, f"{names.prefix}.inbox.{names.namespace}.gateway.>"]


def agent_publishes(names: Names, agent: str) -> Sequence[str]:
    own = f"{names.namespace}.{agent}"
    stream = names.stream
    return [
        f"{names.prefix}.turns.{own}.{ANY_TURN}",
        f"{names.prefix}.tokens.{own}.{ANY_TURN}",
        names.news(agent),
        f"{names.prefix}.inbox.{names.namespace}.>",
        "$JS.API.INFO",
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.STREAM.CREATE.{stream}",
        f"$JS.API.STREAM.UPDATE.{stream}",
    ]


def agent_subscribes(names: Names, agent: str) -> Sequence[str]:
    own_inbox = f"{names.prefix}.inbox.{names.namespace}.agent.{agent}.>"
    return [f"{names.requests(agent)} {QUEUE_GROUP}", names.discover, names.news(agent), own_inbox]


def _list(subjects: Sequence[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
