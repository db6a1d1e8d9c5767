from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.deploy.turnstile import DeploymentBusy, alone


def test_the_second_is_told_who_is_at_work(tmp_path: Path) -> None:
    with (
        alone("shop", "engine", tmp_path),
        pytest.raises(DeploymentBusy, match=rf"project shop .*process {os.getpid()}"),
        alone("shop", "engine", tmp_path),
    ):
        raise AssertionError("two at once")
    with alone("shop", "engine", tmp_path):
        pass


def test_another_project_or_engine_is_no_business_of_it(tmp_path: Path) -> None:
    with alone("shop", "engine", tmp_path), alone("other", "engine", tmp_path), alone("shop", "elsewhere", tmp_path):
        pass


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    with alone("shop", "engine", tmp_path):
        (lock,) = tmp_path.iterdir()
    (tmp_path / "target").write_text("mine")
    lock.unlink()
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(DeploymentBusy, match="Remove it"), alone("shop", "engine", tmp_path):
        pass
    assert (tmp_path / "target").read_text() == "mine"
