"""Builds that are kept on disk: who writes them, what they serve, and that they are the same."""

import os
from dataclasses import replace

import pytest

from relascope.engine import kept_builds
from relascope.engine.client import EngineClient
from relascope.engine.process import Wants
from relascope.engine.protocol.source import ModelSource

KEY = "0" * 64
SHELF = kept_builds.shelf(())


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(kept_builds.VARIABLE, str(tmp_path / "builds"))
    return tmp_path / "builds"


@pytest.mark.parametrize("ir", ["relay", pytest.param("relax", marks=pytest.mark.exhaustive)])
def test_another_process_takes_what_was_built(ir, place):
    with EngineClient(ir, "kept_session:KeptSession") as client:
        usual, _ = client.call("run", keep=False)
        assert not list(place.glob("*/*"))
        assert client.call("run") == (usual, 0)
        (first,) = place.glob("*/*")
        assert first.parent.name == SHELF
        other, _ = client.call("run", 2.0)
        assert other != usual
        (second,) = set(place.glob("*/*")) - {first}
        assert not client.call("writes", str(place)) and not client.call("writes", first.parent)
    second.write_bytes(second.read_bytes()[:-4096])
    os.utime(first, (0, 0))
    with EngineClient(ir, "kept_session:KeptSession") as client:
        assert client.call("run") == (usual, 1)
        assert "define" in client.call("source"), "there is a source none the less"
        assert first.stat().st_mtime > 0, "it was used"
        assert client.call("run", 2.0) == (other, 1), "half a file is built anew"
        assert client.call("run", 3.0)[1] == 1, "another weight"
        for other in ({"opt_level": 2}, {"threads": 1}, {"plain": True}):  # another target
            assert client.call("run", **other)[1] == 1


@pytest.mark.parametrize("ir", ["relax", pytest.param("relay", marks=pytest.mark.exhaustive)])
def test_a_process_beside_builds_the_second_of_two(ir, place):
    results, kept = [], []
    for processors, dies, here in ((1, False, 2), (2, False, 1), (2, True, 2)):
        with EngineClient(ir, "kept_session:KeptSession") as client:
            found, made, words = client.call("pair", processors, dies)
            assert made == [2] * here
            assert sum(": machine code of " in w for w in words) == 2, "each names both builds"
            results.append(found)
            files = list(place.glob("*/*"))
            kept.append({f.name for f in files})
        for file in files:
            file.unlink()
    assert results == results[:1] * 3 and kept == kept[:1] * 3 and len(kept[0]) == 2


def test_what_a_strangers_file_was_read_by_is_kept_apart(tmp_path):
    file = ModelSource(str(tmp_path / "a.pt"), digest="1" * 32)
    wants = Wants().with_("time", [ModelSource(name) for name in ("mlp", "timm:a", "python:a:b")])
    assert kept_builds.shelf(wants.opened) == SHELF
    apart = kept_builds.shelf(wants.with_("time", [file]).opened)
    assert apart not in ("", SHELF)
    other = replace(file, digest="2" * 32)
    names = {apart, kept_builds.shelf(Wants().with_("time", [other]).opened)}
    values = replace(file, tensors=((str(tmp_path / "x.npy"), "3" * 32),))
    names.add(kept_builds.shelf(Wants().with_("time", [values]).opened))
    names.add(kept_builds.shelf(Wants().with_("time", [file]).with_("time", [other]).opened))
    assert len(names) == 4 and wants == wants.with_("time", []), "no process is started anew for it"
    after = Wants().with_("time", [file]).with_("time", [ModelSource("mlp")])
    assert kept_builds.shelf(after.opened) == apart
    for source in (f"hf:{tmp_path}", "hf:someone/model"):
        assert not kept_builds.shelf(kept_builds.strangers(ModelSource(source)))


def test_what_is_written(place):
    assert kept_builds.root() == place and place.stat().st_mode & 0o777 == 0o700
    large = bytes(kept_builds.LARGEST + 1)
    for name, key in ((SHELF, "../a"), (SHELF, 7), ("", KEY)):
        kept_builds.keep(name, key, b"1")
    for data in ("1", large):
        kept_builds.keep(SHELF, KEY, data)
    assert not list(place.iterdir())
    kept_builds.keep(SHELF, KEY, b"code")
    shelf = kept_builds.Shelf(SHELF)
    assert shelf.find(KEY).read_bytes().startswith(b"code")
    assert shelf.find("1" * 64) is None and kept_builds.Shelf("other").find(KEY) is None


def test_what_was_used_longest_ago_goes(place, monkeypatch):
    monkeypatch.setattr(kept_builds, "_MOST", 250)
    for age, digit in ((300, "1"), (200, "2")):
        kept_builds.keep(SHELF, digit * 64, bytes(68))
        os.utime(place / SHELF / f"{digit * 64}.so", (1e9 - age, 1e9 - age))
    kept_builds.keep(SHELF, "1" * 64, b"")
    kept_builds.keep(SHELF, "3" * 64, bytes(68))
    assert sorted(p.name[0] for p in (place / SHELF).iterdir()) == ["1", "3"]


def test_a_folder_that_others_may_write_to_is_none(place, monkeypatch):
    place.mkdir()
    place.chmod(0o770)
    assert kept_builds.root() is None and kept_builds.Shelf(SHELF).find(KEY) is None
    place.chmod(0o700)
    link = place.with_name("link")
    link.symlink_to(place)
    monkeypatch.setenv(kept_builds.VARIABLE, str(link))
    assert kept_builds.root() is None
    monkeypatch.setenv(kept_builds.VARIABLE, "off")
    assert kept_builds.root() is None
