"""What engines of several versions say of a port that is taken becomes one sentence; anything else stays as it is."""

from __future__ import annotations

import pytest

from perdure.deploy.refusals import refusal, unreachable

TAKEN = {
    "driver failed programming external connectivity on endpoint x (85): Error starting userland proxy: listen tcp4 "
    "127.0.0.1:8700: bind: address already in use": "127.0.0.1:8700 is in use",
    "driver failed programming external connectivity on endpoint x (85): Bind for 0.0.0.0:8700 failed: port is already "
    "allocated": "0.0.0.0:8700 is in use",
    "failed to set up container networking: driver failed programming external connectivity on endpoint x (85): failed to bind "
    "host port for [::1]:8700:172.17.0.2:8700/tcp: address already in use": "[::1]:8700 is in use",
    "Ports are not available: ports are not available: exposing port TCP 127.0.0.1:8700 -> 0.0.0.0:0: listen tcp": "127.0.0.1:8700 is in use",
}


@pytest.mark.parametrize("said", TAKEN)
def test_a_port_that_is_taken_says_which_and_what_to_do(said: str) -> None:
    told = refusal(said)
    assert told.startswith(TAKEN[said])
    assert "another `port`" in told


def test_anything_else_is_told_as_it_is() -> None:
    assert refusal("no such image\n") == "Docker refused: no such image"


AWAY = {
    "Cannot connect to Docker Engine via unix:///run/docker.sock [Cannot connect to unix socket /run/docker.sock ssl:default "
    "[No such file or directory]]": "(unix:///run/docker.sock: No such file or directory)",
    "Cannot connect to Docker Engine via tcp://127.0.0.1:1 [Cannot connect to host 127.0.0.1:1 ssl:default [Connect call failed "
    "('127.0.0.1', 1)]]": "(tcp://127.0.0.1:1: nothing listens there)",
    "Server disconnected": "(Server disconnected)",
}


@pytest.mark.parametrize("said", AWAY)
def test_an_engine_that_is_away_is_named_with_what_the_system_said(said: str) -> None:
    told = unreachable(said)
    assert AWAY[said] in told
    assert "DOCKER_HOST" in told
