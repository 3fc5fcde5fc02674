"""Files and folders are whole, the old or the new one, whatever fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from zoo.common.tools.files import beside, put_in_place, replacing, write_text


def test_a_file_is_replaced_when_the_block_has_ended(tmp_path):
    path = write_text(tmp_path / 'a.txt', 'old\n')
    with replacing(path, '.mp4') as new:
        assert new.parent == tmp_path and new.name.startswith('.a.txt.new-') and new.suffix == '.mp4'
        new.write_text('new')
        assert path.read_bytes() == b'old\n'
    assert path.read_text() == 'new' and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize('fails', ['the block', 'the disk', 'the rename'])
def test_a_failure_leaves_the_old_file_alone(tmp_path, monkeypatch, fails):
    path = write_text(tmp_path / 'a.txt', 'old')

    def fail(*_: object) -> None:
        raise OSError('no room')

    if fails != 'the block':
        monkeypatch.setattr(os, 'fsync' if fails == 'the disk' else 'replace', fail)
    with pytest.raises(OSError, match='no room'), replacing(path) as new:
        new.write_text('new')
        if fails == 'the block':
            fail()
    assert path.read_text() == 'old' and list(tmp_path.iterdir()) == [path]


def folder(path: Path, content: str) -> Path:
    path.mkdir()
    (path / 'file').write_text(content)
    return path


def delete(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize('there', [True, False], ids=['replaced', 'new'])
def test_a_folder_is_put_in_place(tmp_path, there):
    path = tmp_path / 'saved'
    if there:
        folder(path, 'old')
    aside = folder(beside(path), 'left by a crash')
    put_in_place(folder(tmp_path / 'made', 'new'), path, aside, delete)
    assert (path / 'file').read_text() == 'new' and list(tmp_path.iterdir()) == [path]


def test_a_failure_brings_the_old_folder_back(tmp_path, monkeypatch):
    path, new = folder(tmp_path / 'saved', 'old'), folder(tmp_path / 'made', 'new')
    known = os.rename

    def rename(one: Path, other: Path) -> None:
        if one == new:
            raise OSError('no')
        known(one, other)

    monkeypatch.setattr(os, 'rename', rename)
    with pytest.raises(OSError, match='no'):
        put_in_place(new, path, beside(path), delete)
    assert (path / 'file').read_text() == 'old' and sorted(tmp_path.iterdir()) == [new, path]
