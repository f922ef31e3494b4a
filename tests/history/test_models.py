"""Models are loaded from a place only we can write, after their hash was checked, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from advisor.history.models import ModelStore
from advisor.model.errors import BadInput, TellAdmin, UseFallback

ARRAYS = {
    "points": np.arange(12.0).reshape(3, 4),
    "ids": np.array([1, 2, 3]),
    "names": np.array(["a", "é"]),
    "file": np.array(True),
    "empty": np.empty((0, 2)),
}
META = {"schema": ["user", "queue"], "divider": float("nan"), "k": 16}


@pytest.fixture
def models(tmp_path: Path) -> ModelStore:
    folder = tmp_path / "models"
    folder.mkdir(mode=0o700)
    return ModelStore(folder=folder)


def test_what_is_saved_is_loaded(models: ModelStore) -> None:
    version = models.save("predictor", ARRAYS, META)
    arrays, meta = models.load("predictor")
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert meta["k"] == 16
    assert np.isnan(meta["divider"])
    assert models.current("predictor") == version == "00000001"


def test_the_manifest_says_what_made_it(models: ModelStore) -> None:
    version = models.save("size", ARRAYS, META)
    manifest = json.loads((models.folder / "size" / version / "manifest.json").read_text())
    assert manifest["libraries"]["numpy"] == np.__version__
    assert len(manifest["sha256"]) == 64
    assert manifest["meta"]["schema"] == ["user", "queue"]


def test_previous_versions_are_kept_and_can_come_back(models: ModelStore) -> None:
    for number in range(8):
        models.save("size", {"n": np.array(number)}, {})
    assert models.versions("size") == [f"{number:08d}" for number in range(4, 9)]
    assert models.load("size")[0]["n"] == 7
    assert models.load("size", "00000007")[0]["n"] == 6
    current = models.folder / "size" / "current"
    current.unlink()
    current.symlink_to("00000006")
    assert models.load("size")[0]["n"] == 5


def test_the_version_in_force_is_never_removed(models: ModelStore) -> None:
    keep_one = ModelStore(folder=models.folder, keep=1)
    for number in range(3):
        keep_one.save("size", {"n": np.array(number)}, {})
        assert keep_one.load("size")[0]["n"] == number
    assert keep_one.versions("size") == ["00000003"]


def test_folders_that_it_makes_are_ours_alone_whatever_the_umask(tmp_path: Path) -> None:
    models = ModelStore(folder=tmp_path / "state" / "models")
    usual = os.umask(0o002)  # a user's on Red Hat
    try:
        models.save("size", {"n": np.array(1)}, {})
    finally:
        os.umask(usual)
    assert models.load("size")[0]["n"] == 1


def test_kinds_do_not_mix(models: ModelStore) -> None:
    models.save("size", {"n": np.array(1)}, {})
    models.save("predictor", {"n": np.array(2)}, {})
    assert models.load("size")[0]["n"] == 1
    (models.folder / "size" / "00000001").rename(models.folder / "size" / "00000002")
    with pytest.raises(TellAdmin, match="not the manifest of size 00000002"):
        models.load("size", "00000002")


def test_no_model_yet(models: ModelStore) -> None:
    with pytest.raises(UseFallback) as caught:
        models.load("size")
    assert caught.value.code == "models.none"
    models.save("size", {}, {})
    with pytest.raises(UseFallback):
        models.load("size", "00000099")
    with pytest.raises(UseFallback):
        models.load("size", "../size")


def test_kinds_are_plain_names(models: ModelStore) -> None:
    with pytest.raises(ValueError, match="not a kind"):
        models.load("../../etc")


def test_objects_are_refused_before_anything_is_written(models: ModelStore) -> None:
    with pytest.raises(TypeError, match="objects"):
        models.save("size", {"bad": np.array([{}], dtype=object)}, {})
    assert models.versions("size") == []


def _change_arrays(home: Path) -> None:
    content = bytearray((home / "00000001" / "arrays.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (home / "00000001" / "arrays.npz").write_bytes(content)


def _mutant_swapped_model(home: Path) -> None:
    """A whole, readable model of somebody else's: only the manifest's hash tells."""
    np.savez(home / "00000001" / "arrays.npz", ids=np.array([9, 9, 9]))


def _cut_arrays(home: Path) -> None:
    (home / "00000001" / "arrays.npz").write_bytes(b"")


def _remove_arrays(home: Path) -> None:
    (home / "00000001" / "arrays.npz").unlink()


def _remove_manifest(home: Path) -> None:
    (home / "00000001" / "manifest.json").unlink()


def _break_manifest(home: Path) -> None:
    (home / "00000001" / "manifest.json").write_text("{}")


def _nest_manifest(home: Path) -> None:
    (home / "00000001" / "manifest.json").write_text("[" * 100_000)


def _list_as_meta(home: Path) -> None:
    manifest = json.loads((home / "00000001" / "manifest.json").read_text())
    (home / "00000001" / "manifest.json").write_text(json.dumps(manifest | {"meta": []}))


def _link_out(home: Path) -> None:
    (home / "current").unlink()
    (home / "current").symlink_to("../../elsewhere")


def _plain_current(home: Path) -> None:
    (home / "current").unlink()
    (home / "current").write_text("00000001")


@pytest.mark.parametrize(
    "harm",
    [
        _change_arrays,
        _mutant_swapped_model,
        _cut_arrays,
        _remove_arrays,
        _remove_manifest,
        _break_manifest,
        _nest_manifest,
        _list_as_meta,
        _link_out,
        _plain_current,
    ],
)
def test_a_damaged_model_is_not_loaded(models: ModelStore, harm: Callable[[Path], None]) -> None:
    models.save("size", ARRAYS, META)
    harm(models.folder / "size")
    with pytest.raises(TellAdmin) as caught:
        models.load("size")
    assert caught.value.code == "models.damaged"


@pytest.mark.parametrize(
    ("kind", "maker"),
    [("size", "advisor retrain"), ("parameters", "advisor tune"), ("predictor", "restart advisor-control")],
)
def test_a_model_that_cannot_be_loaded_says_what_makes_a_new_one(
    models: ModelStore, kind: str, maker: str
) -> None:
    with pytest.raises(UseFallback, match=maker):
        models.load(kind)
    models.save(kind, ARRAYS, META)
    _cut_arrays(models.folder / kind)
    with pytest.raises(TellAdmin, match=maker):
        models.load(kind)


def test_an_array_with_a_pickle_inside_is_not_loaded(models: ModelStore) -> None:
    """Even with the right hash: nothing is ever unpickled."""
    models.save("size", ARRAYS, META)
    home = models.folder / "size" / "00000001"
    np.savez(home / "arrays.npz", bad=np.array([{}], dtype=object))
    manifest = json.loads((home / "manifest.json").read_text())
    manifest["sha256"] = hashlib.sha256((home / "arrays.npz").read_bytes()).hexdigest()
    (home / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TellAdmin):
        models.load("size")


@pytest.mark.parametrize(
    "place", [".", "size", "size/00000001", "size/00000001/arrays.npz", "size/00000001/manifest.json"]
)
@pytest.mark.parametrize("right", [0o020, 0o002])
def test_nobody_else_may_write_anywhere(models: ModelStore, place: str, right: int) -> None:
    models.save("size", ARRAYS, META)
    path = models.folder / place
    path.chmod(path.stat().st_mode | right)
    with pytest.raises(TellAdmin) as caught:
        models.load("size")
    assert caught.value.code == "models.mode"
    assert "chmod" in str(caught.value)
    if path.is_dir() and place != "size/00000001":
        with pytest.raises(TellAdmin):
            models.save("size", ARRAYS, META)


def test_links_are_not_followed(models: ModelStore, tmp_path: Path) -> None:
    models.save("size", ARRAYS, META)
    arrays = models.folder / "size" / "00000001" / "arrays.npz"
    arrays.rename(tmp_path / "elsewhere.npz")
    arrays.symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(BadInput, match="symbolic link"):
        models.load("size")


def test_another_users_folder_is_refused(models: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    models.save("size", ARRAYS, META)
    if os.geteuid() == 0:
        os.chown(models.folder / "size", 65534, 65534)
    else:  # only root can give a file away: be somebody else instead
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    for act in (lambda: models.load("size"), lambda: models.save("size", ARRAYS, META)):
        with pytest.raises(TellAdmin) as caught:
            act()
        assert caught.value.code == "models.owner"


def test_a_folder_that_may_not_be_written(open_folder: Path, without_rights) -> None:
    open_folder.chmod(0o555)
    with without_rights(), pytest.raises(BadInput, match="Permission denied"):
        ModelStore(folder=open_folder / "models").save("size", ARRAYS, META)


def test_a_reader_finds_a_whole_model_while_others_are_written(models: ModelStore) -> None:
    models.save("size", {"n": np.array(0)}, {"n": 0})
    stop = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            try:
                arrays, meta = models.load("size")
                assert int(arrays["n"]) == meta["n"]
            except BaseException as error:  # noqa: BLE001 - looked at below
                problems.append(error)

    def write(first: int) -> None:
        for number in range(first, first + 15):
            models.save("size", {"n": np.array(number)}, {"n": number})

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(first,)) for first in (100, 200)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert problems == []
    assert models.current("size") == "00000031"


def test_leftovers_of_a_killed_writer_are_cleared(models: ModelStore) -> None:
    models.save("size", ARRAYS, META)
    (models.folder / "size" / ".partial-abc").mkdir()
    (models.folder / "size" / ".current.new").symlink_to("nowhere")
    models.save("size", ARRAYS, META)
    names = {entry.name for entry in (models.folder / "size").iterdir()}
    assert names == {"00000001", "00000002", "current", ".lock"}
