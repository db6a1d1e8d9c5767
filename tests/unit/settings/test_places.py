"""Where the database lies by default."""

from __future__ import annotations

from pathlib import Path

from perdure.settings.places import default_database, user_data_folder


def test_the_container_volume_is_first_when_it_is_there(tmp_path: Path) -> None:
    place = default_database({"HOME": str(tmp_path)}, volume=tmp_path)
    assert place.path == tmp_path / "perdure.db" and place.notice is None


def test_the_user_data_directory_is_next_and_nothing_is_created(tmp_path: Path) -> None:
    place = default_database({"XDG_DATA_HOME": str(tmp_path / "share")}, volume=tmp_path / "absent")
    assert place.path == tmp_path / "share" / "perdure" / "perdure.db"
    assert place.notice is None and not (tmp_path / "share").exists()


def test_a_relative_data_home_is_ignored_as_its_specification_says(tmp_path: Path) -> None:
    assert user_data_folder({"XDG_DATA_HOME": "share", "HOME": str(tmp_path)}) not in (None, Path("share/perdure"))


def test_without_a_home_the_temp_directory_serves_with_a_warning(tmp_path: Path) -> None:
    place = default_database({}, volume=tmp_path / "absent")
    assert place.notice is not None and "PERDURE_DATABASE" in place.notice


def test_a_file_in_the_way_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "share").write_text("")
    place = default_database({"XDG_DATA_HOME": str(tmp_path / "share")}, volume=tmp_path / "absent")
    assert place.notice is not None
