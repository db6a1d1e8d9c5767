"""Prometheus numbers in a registry of our own. Labels are bounded: routes as declared, never ids, never owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perdure.api.stream import Streams
from perdure.turns import TurnStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATUSES = frozenset(TurnStatus)
_COUNTED = {
    "transactions": "Transactions written by this process.",
    "commits": "Synced commits of this process; one carries many transactions.",
    "failed_commits": "Commits of this process that failed.",
}
_MEASURED = {
    "oldest_queued_seconds": "Age of the turn that has been queued longest.",
    "database_bytes": "Size of the database file.",
    "wal_bytes": "Size of the write-ahead log.",
    "nats_connected": "1 while NATS is there, over which agents are reached.",
    "agents": "Agents that were met over NATS.",
    "agents_reachable": "Agents that can be asked now.",
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    def __init__(self, streams: Streams) -> None:
        self._registry = CollectorRegistry()
        self._numbers = _Numbers(streams)
        self._registry.register(self._numbers)
        self._requests = Counter(
            "perdure_http_requests", "Answered requests.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "perdure_http_request_seconds",
            "Time to the whole answer; streams are not in it.",
            ("route",),
            registry=self._registry,
            buckets=_SECONDS,
        )

    def request(self, method: str, route: str, status: int, seconds: float, *, stream: bool) -> None:
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        if not stream:
            self._seconds.labels(route).observe(seconds)

    def render(self, statistics: Mapping[str, float]) -> bytes:
        """The text of one scrape. `statistics` are the store's numbers."""
        self._numbers.statistics = statistics
        return generate_latest(self._registry)


class _Numbers(Collector):
    """Numbers that are read at each scrape rather than counted here."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.statistics: Mapping[str, float] = {}

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("perdure_streams_open", "Event streams open now.", value=len(self._streams))
        cut = CounterMetricFamily("perdure_streams_cut", "Streams that did not end by themselves.", labels=["cause"])
        for cause, count in self._streams.cut.items():
            cut.add_metric([cause], count)
        yield cut
        yield from self._journal()

    def _journal(self) -> Iterator[Metric]:
        turns = GaugeMetricFamily("perdure_turns", "Turns that have not ended.", labels=["status"])
        for name, value in self.statistics.items():
            status = name.removeprefix("turns_")
            if status in _STATUSES:
                turns.add_metric([status], value)
            elif name in _COUNTED:
                yield CounterMetricFamily(f"perdure_{name}", _COUNTED[name], value=value)
            else:
                yield GaugeMetricFamily(f"perdure_{name}", _MEASURED.get(name, name), value=value)
        yield turns
