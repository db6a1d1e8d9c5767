"""Addresses and files: what cannot work is said before the first connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
import pytest

from perdure.config import Settings
from perdure.errors import ConfigurationError
from perdure.transport.nats.access import access_of
from tests.servers.nats_access import Authority, operator_and_credentials, seed


def access(**settings: Any) -> Any:
    return access_of(Settings(**{"nats_url": "nats://localhost", **settings}))


@pytest.mark.parametrize("url", [None, "", ",", "localhost", "http://h", "nats://", "nats://h:x", "nats://a,ws://b"])
def test_what_is_no_address_is_refused(url: str | None) -> None:
    with pytest.raises(ConfigurationError, match="nats_url"):
        access(nats_url=url)


def test_addresses_are_told_without_what_is_secret() -> None:
    made = access(nats_url="nats://al%20ice:p%40ss@one:1, tls://two,nats://[::1]:3")
    assert made.servers == ("nats://one:1", "tls://two:4222", "nats://[::1]:3")
    assert made.options() == {"user": "al ice", "password": "p@ss"}
    assert made.encrypted
    assert "p@ss" not in repr(made) and "ice" not in repr(made)


def test_a_user_alone_is_a_token() -> None:
    assert access(nats_url="nats://s3cret@host").options() == {"token": "s3cret"}


def test_without_tls_files_a_nats_address_may_be_plain() -> None:
    assert not access().encrypted
    assert access().options() == {}


@pytest.mark.parametrize("content", ["", "hello", "SUAAAA", "-----BEGIN USER NKEY SEED-----\n"])
def test_a_file_without_a_seed_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "user.nk"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="seed"):
        access(nats_nkey_file=file)
    with pytest.raises(ConfigurationError, match="credentials file"):
        access(nats_credentials_file=file)


def test_the_seed_of_an_account_is_no_users(tmp_path: Path) -> None:
    file = tmp_path / "account.nk"
    file.write_bytes(seed(nkeys.PREFIX_BYTE_ACCOUNT))
    with pytest.raises(ConfigurationError, match="SU"):
        access(nats_nkey_file=file)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.nk cannot be read"):
        access(nats_nkey_file=tmp_path / "gone.nk")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not text"):
        access(nats_credentials_file=binary)


def test_credentials_are_read_anew_at_every_connect(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    operator_and_credentials(file)
    made = access(nats_credentials_file=file)
    first = made.options()["user_jwt_cb"]()
    operator_and_credentials(file)
    assert made.options()["user_jwt_cb"]() != first


def test_tls_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("one")
    _, other_key = authority.issue("two")
    assert access(nats_ca_file=authority.file, nats_certificate_file=certificate, nats_key_file=key).encrypted
    with pytest.raises(ConfigurationError, match=r"one\.pem"):
        access(nats_certificate_file=certificate, nats_key_file=other_key)
    with pytest.raises(ConfigurationError, match=r"one\.key"):
        access(nats_ca_file=key)
