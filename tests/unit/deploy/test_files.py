"""Which files of a project go into an image."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from perdure.deploy.files import read_files, without_deploy
from perdure.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "perdure.toml",
        "tools.py",
        "data/rates.csv",
        "notebooks/a.ipynb",
        ".env",
        ".git/config",
        "__pycache__/tools.pyc",
        "perdure.db",
        "perdure.db-wal",
        "apply.log",
        "perdure.token",
        "tls/server.key",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_neither_secrets_nor_data_nor_what_is_made_again_goes_along(folder: Path) -> None:
    assert read_files(folder).paths == ("data/rates.csv", "notebooks/a.ipynb", "perdure.toml", "tools.py")


@pytest.mark.parametrize(
    "name",
    [
        *("perdure.db.schema-2.bak", "perdure.db.replaced-1", "perdure.db-journal", "perdure.db.undoing"),
        *("data.sqlite", "data.sqlite-wal", "data.sqlite3", "data.sqlite3-shm", "data.sqlite.bak"),
        *("secrets.env", "secrets.env.local", "id_rsa", "id_rsa.bak", "id_ed25519", "id_ecdsa_sk"),
        *("tls.p12", "tls.pfx", "tls.jks"),
    ],
)
def test_copies_of_a_database_and_keys_stay(folder: Path, name: str) -> None:
    before = read_files(folder)
    (folder / "data" / name).write_text("not for an image")
    (folder / name).write_text("not for an image")
    assert read_files(folder) == before


@pytest.mark.parametrize("name", ["id_map.py", "id_rsa_loader.py", "environment.py", "db.py", "sqlite.sql"])
def test_what_is_only_named_like_them_goes_along(folder: Path, name: str) -> None:
    (folder / name).write_text("part of the project")
    assert name in read_files(folder).paths


@pytest.mark.parametrize("glob", ["notebooks", "notebooks/", "notebooks/*", "*.ipynb"])
def test_what_is_excluded_stays(folder: Path, glob: str) -> None:
    assert "notebooks/a.ipynb" not in read_files(folder, [glob]).paths


def test_a_token_file_stays_wherever_it_lies(folder: Path) -> None:
    assert "tools.py" not in read_files(folder, without=[folder / "data" / ".." / "tools.py"]).paths


def test_a_folder_that_must_not_go_along_stays_with_all_that_is_in_it(folder: Path) -> None:
    assert read_files(folder, without=[folder / "data"]).paths == ("notebooks/a.ipynb", "perdure.toml", "tools.py")


def test_content_and_mode_are_in_the_digests(folder: Path) -> None:
    before = read_files(folder)
    assert read_files(folder) == before
    (folder / "tools.py").chmod(0o755)
    executable = read_files(folder)
    assert executable != before
    (folder / "tools.py").write_text("other")
    assert read_files(folder) != executable


def test_another_deployment_of_the_same_project_has_the_same_files(folder: Path) -> None:
    def files(text: str) -> object:
        (folder / "perdure.toml").write_text(text)
        return read_files(folder, project=folder / "perdure.toml")

    before = files('port = 1\n[deploy.gateway]\nport = 8700\n[agents.shop]\nmodel = "demo"\n')
    assert files('port = 1\n[deploy]\nname = "other"\n[agents.shop]\nmodel = "demo"  # as before\n') == before
    assert files('port = 2\n[agents.shop]\nmodel = "demo"\n') != before
    assert files('port = 1\n[agents.shop]\nmodel = "other"\n') != before
    assert files("port = = 1") != before


def test_another_file_with_such_a_table_is_a_file_like_any(folder: Path) -> None:
    """It goes into the image as it is."""

    def files(text: str) -> object:
        (folder / "tool.toml").write_text(text)
        return read_files(folder, project=folder / "perdure.toml")

    assert files("[deploy]\nregion = 1\n") != files("[deploy]\nregion = 2\n")


def test_of_a_project_file_all_but_the_table_deploy_is_left_to_the_letter() -> None:
    text = (
        """port = 1 # here
words = '''
[deploy]
'''

[deploy] # to be left out
environment = { KEY = "old-value" }
# KEY = "older-value"
texts = [
  "[agents.none]",
  """
        + '"""\n[agents.none]\n"""'
        + """,
]
[ agents . shop ]   # stays
model = "demo"\r
limit = nan
[ "deploy" . gateway ]
port = 9000
[[deploy.more]]
x = 1
[agents.shop.deploy]
stays = true
[other]
deploy = "stays"
"""
    )
    assert without_deploy(text) == (
        "port = 1 # here\nwords = '''\n[deploy]\n'''\n\n[ agents . shop ]   # stays\nmodel = \"demo\"\r\nlimit = nan\n"
        '[agents.shop.deploy]\nstays = true\n[other]\ndeploy = "stays"\n'
    )
    assert without_deploy("a = 1") == "a = 1"
    assert without_deploy('a = 1\ndeploy.name = "x"\ndeploy.gateway = { port = 1 }\nb = 2\n') == "a = 1\nb = 2\n"
    assert without_deploy('deploy = { name = "x" }\n') == ""


def test_a_long_text_is_not_read_anew_for_each_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = '[agents.shop]\nprompt = """\n' + "word\n" * 1_000 + '"""\n'
    read, loads = list[str](), tomllib.loads

    def counted(text: str) -> dict[str, Any]:
        read.append(text)
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", counted)
    assert without_deploy(f"{prompt}[deploy]\nname = 'x'\n") == prompt
    assert len(read) < 10


def test_it_knows_what_it_holds(folder: Path) -> None:
    files = read_files(folder)
    assert files.holds(folder / "tools.py") and files.holds(folder / "data" / ".." / "tools.py")
    assert files.holds(folder / "data")
    assert not files.holds(folder / ".env") and not files.holds(folder.parent / "tools.py")


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_followed(folder: Path) -> None:
    (folder / "inside.py").symlink_to("tools.py")
    assert "inside.py" in read_files(folder).paths
    (folder / "outside").symlink_to("/etc/passwd")
    with pytest.raises(ConfigurationError, match="leads out of the project's folder"):
        read_files(folder)
    assert "outside" not in read_files(folder, ["outside"]).paths


def test_links_to_folders_and_to_nothing_are_refused(folder: Path) -> None:
    (folder / "linked").symlink_to("data")
    with pytest.raises(ConfigurationError, match="link to a folder"):
        read_files(folder)
    (folder / "linked").unlink()
    (folder / "broken").symlink_to("nothing")
    with pytest.raises(ConfigurationError, match="not a file that can be copied"):
        read_files(folder)


def test_links_in_a_circle_are_refused_and_can_be_left_out(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "there").symlink_to("back")
    (folder / "back").symlink_to("there")
    with pytest.raises(ConfigurationError, match="back is not a file that can be copied: name it in `exclude`"):
        read_files(folder, without=[folder / "loop" / "x"])
    with pytest.raises(ConfigurationError, match="loop is not a file that can be copied"):
        read_files(folder, ["back", "there"])
    assert "tools.py" in read_files(folder, ["back", "there", "loop"]).paths
