from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.deploy import turnstile
from perdure.deploy.turnstile import DeploymentBusy, alone


def test_the_second_is_told_who_is_at_work(tmp_path: Path) -> None:
    with (
        alone("shop", "engine", tmp_path),
        pytest.raises(DeploymentBusy, match=rf"project shop .*process {os.getpid()}"),
        alone("shop", "engine", tmp_path),
    ):
        raise AssertionError("two at once")
    assert list(tmp_path.iterdir()) == []
    with alone("shop", "engine", tmp_path):
        pass


def test_a_lock_that_its_holder_has_removed_meanwhile_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def removed_before_it_is_taken(descriptor: int, project: str) -> None:
        if not taken:
            (lock,) = tmp_path.iterdir()
            lock.unlink()
        taken.append(descriptor)
        take(descriptor, project)

    take = turnstile._take
    monkeypatch.setattr(turnstile, "_take", removed_before_it_is_taken)
    with alone("shop", "engine", tmp_path), pytest.raises(DeploymentBusy), alone("shop", "engine", tmp_path):
        raise AssertionError("two at once")
    assert len(taken) == 3


def test_another_project_or_engine_is_no_business_of_it(tmp_path: Path) -> None:
    with alone("shop", "engine", tmp_path), alone("other", "engine", tmp_path), alone("shop", "elsewhere", tmp_path):
        pass


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    with alone("shop", "engine", tmp_path):
        (lock,) = tmp_path.iterdir()
    assert not lock.exists()
    (tmp_path / "target").write_text("mine")
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(DeploymentBusy, match="Remove it"), alone("shop", "engine", tmp_path):
        pass
    assert (tmp_path / "target").read_text() == "mine"
