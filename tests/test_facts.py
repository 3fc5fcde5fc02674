"""The generated parts of the algorithms' pages, docs/_ext/facts.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip('sphinx')
ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / 'docs' / '_ext'))

import default_settings  # noqa: E402
import facts  # noqa: E402

from zoo.algorithms import NAMES  # noqa: E402


def test_lists_of_departures_are_shown_whole():
    assert facts.departures('SAC').count('\n* ') == 3 and 'dm_control' not in facts.departures('SAC')
    assert facts.departures('Rainbow').startswith('The departures of [C51](/algorithms/c51.md).')
    assert facts.departures('PPO').startswith('As in OpenAI Baselines and most later code: ')
    assert [name for name in NAMES if facts.departures(name) == 'None is known.'] == ['TD3']


def test_defaults_have_their_values_and_the_comments_of_the_file():
    text = facts.defaults('DDPG')
    assert text.startswith("The same as TD3's.")
    assert '| `MountainCarContinuous-v0` | `train_steps=300_000`' in text and "`noise='ornstein_uhlenbeck'`" in text
    assert '| RL Baselines3 Zoo has this kind of noise for both DDPG and TD3. |' in text
    assert 'type `mujoco`, `dm_control`, `robotics`, `rlbench`, `brax`, `mjx`' in facts.defaults('VPG')
    assert "`recurrent='lstm'`" in facts.defaults('R2D2')


def test_comments_belong_to_the_entry_below_them_or_around_them():
    source = """
COMMON = {
    # of all
    'gamma': 0.9,
}
# dropped
_OTHER = {}
TUNED = {
    # before
    'A-v1': {
        # inside
        'tau': 1.0,
    },
    'B-v1': {},
}
# after
TUNED['C-v1'] = TUNED['B-v1']
"""
    found = {'COMMON': 'of all', 'TUNED A-v1': 'before inside', 'TUNED C-v1': 'after'}
    assert default_settings.notes_of(source) == found


def test_every_algorithm_has_papers_scores_or_a_word_and_all_parameters():
    for name in NAMES:
        assert facts.papers_of(name), name
        length = 'train_updates' if facts.find(name).loop.needs_data else 'train_steps'
        assert f'| `{length}` |' in facts.parameters(name).partition('<details>')[0]
        assert '| `verbose` |' in facts.parameters(name).partition('<details>')[2]
        assert facts.scores(name)
    assert facts.papers_of('OffPAC') == [
        'Degris, White and Sutton 2012, [arXiv 1205.4839](https://arxiv.org/abs/1205.4839)'
    ]


def test_published_scores_stand_beside_scores_of_default_settings_alone():
    rows = [line for line in facts.scores('DQN').splitlines() if line.startswith('|') and '±' in line]
    assert len(rows) >= 2 and not any('double_q' in row or 'frame_size' in row for row in rows)
    assert '| 500.0 ± 0.0 (50k) |' in rows[0]
    assert facts.published_beside('DQN', 'LunarLander-v3') == '154.4 ± 79.2 (100k, `LunarLander-v2`)'
    assert 'published' not in facts.scores('Rainbow')


def test_the_families_are_the_pages():
    index = (ROOT / 'docs' / 'algorithms' / 'index.md').read_text(encoding='utf-8')
    pages = [
        line for block in index.split(':hidden:')[1:] for line in block.partition('```')[0].split('\n')[2:] if line
    ]
    assert pages == [name.lower() for names in facts.FAMILIES.values() for name in names]
    assert {f'[{name}](/algorithms/{name.lower()}.md)' for name in NAMES} <= set(facts.every_algorithm().split(' '))
