"""New ids: random, 128 bits, hexadecimal."""

from __future__ import annotations

import secrets


def new_id() -> str:
    return secrets.token_hex(16)
