"""The listening socket, and what a person is told when the port is taken."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from perdure.errors import ConfigurationError
from perdure.runtime.ports import address_of, free, listen, owner_of


def test_a_taken_port_is_refused_with_the_pid_and_the_flag() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert not free("127.0.0.1", port)
        with pytest.raises(ConfigurationError) as caught:
            listen("127.0.0.1", port)
        assert f"Port {port}" in caught.value.message and "--port" in caught.value.message
        if Path("/proc/net/tcp").exists():
            assert f"process {os.getpid()}" in caught.value.message


def test_a_free_port_has_no_owner() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert owner_of(held.getsockname()[1]) is None


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not an address"):
        listen("no such host", 0)
    with pytest.raises(ConfigurationError, match="Cannot listen"):
        listen("192.0.2.1", 0)


def test_a_wildcard_address_is_reached_on_loopback() -> None:
    with listen("0.0.0.0", 0) as bound:
        assert address_of(bound, "0.0.0.0") == f"http://127.0.0.1:{bound.getsockname()[1]}"
    with listen("127.0.0.1", 0) as bound:
        assert address_of(bound, "::1").startswith("http://[::1]:")
