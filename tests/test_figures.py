"""The pictures of the documentation are what ``docs/figures.py`` draws, and no words stand on others."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / 'docs'


@pytest.fixture(scope='module')
def figures():
    before = list(sys.path)
    yield runpy.run_path(str(DOCS / 'figures.py'))['FIGURES']
    sys.path[:] = before


@pytest.fixture
def picture(figures):
    return sys.modules['svg'].Picture(200, 60, 'a picture')


# The curves of `seeds` depend on the machine.
@pytest.mark.parametrize(
    'name',
    ['choose', 'loops', 'replay', 'roles']
    + [pytest.param(name, marks=pytest.mark.full) for name in ('adaptors', 'rollout', 'run_directory')],
)
def test_a_picture_is_up_to_date(name, figures, tmp_path):
    figures[name]().save(tmp_path / 'drawn.svg')
    kept = (DOCS / 'images' / f'{name}.svg').read_text(encoding='utf-8')
    assert (tmp_path / 'drawn.svg').read_text(encoding='utf-8') == kept, 'run: python docs/figures.py'


def test_every_picture_is_shown_on_a_page(figures):
    pages = '\n'.join(path.read_text(encoding='utf-8') for path in DOCS.rglob('*.md'))
    assert [name for name in figures if f'images/{name}.svg)' not in pages] == []


def test_words_on_other_words_are_refused(picture):
    picture.text(100, 20, 'first')
    picture.text(100, 40, 'below it')
    with pytest.raises(ValueError, match="'second' stands on 'first'"):
        picture.text(110, 24, 'second')


def test_words_outside_the_page_or_their_box_are_refused(picture):
    with pytest.raises(ValueError, match='leaves the page'):
        picture.text(190, 20, 'too far to the right')
    with pytest.raises(ValueError, match='too wide'):
        picture.box(10, 10, 40, 20, 'wider than its box')
    with pytest.raises(ValueError, match='too high'):
        picture.box(10, 10, 100, 20, ['one', 'two', 'three'])
