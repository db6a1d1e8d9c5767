"""Prometheus numbers in a registry of our own. Labels are bounded: routes as declared, never ids, never owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perdure.api.stream import Streams

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
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
        """The text of one scrape. `statistics` are the store's numbers: `name` or `name.label`, see `_Numbers`."""
        self._numbers.statistics = statistics
        return generate_latest(self._registry)


class _Numbers(Collector):
    """Numbers that are read rather than counted here. The statistic `turns.running` is `perdure_turns{kind="running"}`."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.statistics: Mapping[str, float] = {}

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("perdure_streams_open", "Event streams open now.", value=len(self._streams))
        cut = CounterMetricFamily("perdure_streams_cut", "Streams ended early, by cause.", labels=["cause"])
        for cause, count in self._streams.cut.items():
            cut.add_metric([cause], count)
        yield cut
        yield from self._families()

    def _families(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for key, value in self.statistics.items():
            name, _, kind = key.partition(".")
            labels = ["kind"] if kind else []
            family = families.setdefault(
                name, GaugeMetricFamily(f"perdure_{name}", f"{name} of the journal.", labels=labels)
            )
            family.add_metric([kind] if kind else [], value)
        yield from families.values()
