"""Names that cannot leave their folder, and what a folder refuses; test_power_failure.py has what reaches the disk."""

from pathlib import Path

import pytest

from suite.errors import StoreError
from suite.files import ROOM, file_name, flush_folder, probe, write_whole


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("pytorch", "ddp"), "pytorch-ddp"),
        (("../../etc/passwd",), "_.._etc_passwd"),
        (("a", ".hidden"), "a-hidden"),
        (("-rf", "x"), "rf-x"),
        (("ends.", "Xa"), "ends.-Xa"),  # only what is in front is taken away
        (("X-Z",), "X-Z"),
        (("a b\n\x1b[2J",), "a_b_2J"),
        (("...", ""), "unnamed"),
        (("a" * 201,), "a" * 200),
    ],
)
def test_a_name_of_foreign_words_stays_in_its_folder(words: tuple[str, ...], name: str) -> None:
    assert file_name(*words) == name


def test_what_a_folder_refuses_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "record.json"
    with pytest.raises(StoreError) as caught:
        write_whole(path, "{}")
    assert str(caught.value) == f"cannot write {path}: No such file or directory; {ROOM}"
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        flush_folder(tmp_path / "file")


def test_room_is_looked_for_in_the_folder_itself(tmp_path: Path) -> None:
    probe(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "gone")
