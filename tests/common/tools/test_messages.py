"""Messages: the nearest name, articles, and what the shell says."""

from __future__ import annotations

import pickle

import pytest

from zoo.common.tools.errors import InvalidValue, NotAFolder, a_type, article, nearest


@pytest.mark.parametrize(
    ('name', 'known', 'found'),
    [
        ('gama', ['gamma', 'tau'], 'gamma'),
        ('clasic', ['classic_control', 'box2d'], 'classic_control'),
        ('rgb', ['human', 'rgb_array'], 'rgb_array'),
        ('HalfCheetah', ['HalfCheetah-v4', 'HalfCheetah-v5', 'Hopper-v5'], 'HalfCheetah-v5'),
        ('halfcheetha-v4', ['HalfCheetah-v4', 'HalfCheetah-v5'], 'HalfCheetah-v4'),
        ('CartPole', ['CartPole-v0', 'CartPole-v1'], 'CartPole-v1'),
        ('--algo', ['--help', '--best'], None),
        ('ent_coef', ['recorded', 'epochs'], None),
        ('Corridor-v0', ['AirRaid-v0', 'Carnival-v0'], None),
        ('x', ['xyz'], None),
    ],
)
def test_the_nearest_name_is_offered_only_if_it_is_near(name, known, found):
    assert nearest(name, known) == found


def test_articles():
    assert [article('int'), article('list'), a_type(3), a_type({}), a_type(object())] == [
        'an int', 'a list', 'an int', 'a dict', 'an object',
    ]  # fmt: skip


@pytest.mark.parametrize('kind', [InvalidValue, NotAFolder])
def test_what_the_shell_says_travels_with_an_error(kind):
    found = pickle.loads(pickle.dumps(kind('zoo.train(…)', shell='zoo train')))
    assert (str(found), found.shell) == ('zoo.train(…)', 'zoo train')
    assert pickle.loads(pickle.dumps(kind('why'))).shell is None
