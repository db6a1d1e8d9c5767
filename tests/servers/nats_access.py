"""Who may enter a nats-server of a test: passwords, nkeys, credentials of an operator, certificates."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Permissions:
    publish: Sequence[str] = (">",)
    subscribe: Sequence[str] = (">",)

    @property
    def text(self) -> str:
        return f"permissions: {{ publish: {json.dumps(self.publish)}, subscribe: {json.dumps(self.subscribe)} }}"


def passwords(users: Mapping[str, Permissions], password: str = "secret-of-tests") -> str:
    lines = [f'{{ user: "{user}", password: "{password}", {allowed.text} }}' for user, allowed in users.items()]
    return f"authorization {{ users: [ {', '.join(lines)} ] }}"


def seed(prefix: int = nkeys.PREFIX_BYTE_USER) -> bytes:
    made: bytes = nkeys.encode_seed(os.urandom(32), prefix)
    return made


def public(of: bytes) -> str:
    key: bytes = nkeys.from_seed(bytearray(of)).public_key
    return key.decode()


def nkey_user(of: bytes) -> str:
    return f"authorization {{ users: [ {{ nkey: {public(of)} }} ] }}"


# -- an operator, one account, one user -------------------------------------------------------------------------------


def operator_and_credentials(file: Path) -> str:
    """The configuration of a server that trusts an operator, whose user's credentials are written to `file`."""
    operator, account, user = (
        seed(nkeys.PREFIX_BYTE_OPERATOR),
        seed(nkeys.PREFIX_BYTE_ACCOUNT),
        seed(nkeys.PREFIX_BYTE_USER),
    )
    unlimited = {"subs": -1, "data": -1, "payload": -1}
    store = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    connections = {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    operator_token = _token(operator, operator, {"type": "operator", "version": 2})
    account_token = _token(
        operator, account, {"type": "account", "version": 2, "limits": {**unlimited, **store, **connections}}
    )
    user_token = _token(account, user, {"type": "user", "version": 2, **unlimited, "pub": {}, "sub": {}})
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.decode()}\n------END USER NKEY SEED------\n"
    )
    preload = f"resolver_preload: {{ {public(account)}: {account_token} }}"
    return f"operator: {operator_token}\nresolver: MEMORY\n{preload}"


def _token(issuer: bytes, subject: bytes, nats: Mapping[str, Any]) -> str:
    claims: dict[str, Any] = {
        "iat": 1_700_000_000,
        "iss": public(issuer),
        "name": "t",
        "sub": public(subject),
        "nats": nats,
    }
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
    body = ".".join(_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
    return f"{body}.{_base64(nkeys.from_seed(bytearray(issuer)).sign(body.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# -- certificates -----------------------------------------------------------------------------------------------------


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority of tests")
        certificate = (
            self._builder("authority of tests", self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            self._builder(name, key)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        at, key_at = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        at.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_at.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return at, key_at

    def _builder(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - WEEK)
            .not_valid_after(now + WEEK)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def tls(authority: Authority, *, ask_clients: bool = False) -> str:
    certificate, key = authority.issue("server")
    asked = f'ca_file: "{authority.file}", verify: true' if ask_clients else ""
    return f'tls {{ cert_file: "{certificate}", key_file: "{key}", {asked} }}'
