"""The token of a deployment: made once, for nobody else's eyes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from perdure.config import DeploySettings, GatewayDeploySettings
from perdure.deploy.token import keep_token, new_token, others_can_read, password_of, read_token, token_file
from perdure.errors import ConfigurationError


def test_it_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = token_file(DeploySettings(name="shop"), tmp_path)
    assert path == tmp_path / ".perdure" / "shop.token"
    assert read_token(path) is None
    token = new_token()
    assert keep_token(path, token) == token
    assert keep_token(path, new_token()) == token == read_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(each.name for each in path.parent.iterdir()) == [".gitignore", "shop.token"]
    assert (path.parent / ".gitignore").read_text() == "*\n"


def test_a_file_of_ones_own_is_used(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("my-token\n")
    path = token_file(DeploySettings(gateway=GatewayDeploySettings(token_file=own)), tmp_path)
    assert keep_token(path, new_token()) == "my-token"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["own.txt"]


def test_one_that_others_can_read_is_made_its_owners_alone(tmp_path: Path) -> None:
    path = token_file(DeploySettings(name="shop"), tmp_path)
    keep_token(path, "my-token")
    path.chmod(0o644)
    assert read_token(path) == "my-token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_ones_own_keeps_its_mode(tmp_path: Path) -> None:
    """Whoever named it may have given it to a group."""
    own = tmp_path / "own.txt"
    own.write_text("my-token\n")
    own.chmod(0o640)
    assert read_token(own) == "my-token"
    assert stat.S_IMODE(own.stat().st_mode) == 0o640
    assert others_can_read(own) and not others_can_read(tmp_path / "none.txt")


def test_what_somebody_wrote_into_gitignore_stays(tmp_path: Path) -> None:
    path = token_file(DeploySettings(name="shop"), tmp_path)
    path.parent.mkdir()
    (path.parent / ".gitignore").write_text("*.token\n")
    keep_token(path, "my-token")
    assert (path.parent / ".gitignore").read_text() == "*.token\n"


@pytest.mark.parametrize("content", ["", "two words", "\N{SNOWMAN}"])
def test_one_that_no_header_can_carry_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t"
    path.write_text(content)
    with pytest.raises(ConfigurationError):
        read_token(path)


def test_passwords_follow_from_the_token_and_differ_by_project_and_user() -> None:
    made = {password_of(token, project, user) for token in "ab" for project in "pq" for user in "uv"}
    assert len(made) == 8
    assert password_of("a", "p", "u") == password_of("a", "p", "u")
    assert all(each.isalnum() and each[0].isalpha() and len(each) == 65 for each in made)
