"""What the page shows of a training, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zoo.common.training.display import Lines
from zoo.dashboard.watch import Watch


@pytest.mark.parametrize('tables', [False, True])
def test_what_the_page_draws_is_not_said_again(tables: bool, capsys):
    """A training prints its progress into a file, where it would hide its warnings."""
    shown = Lines(100, 'PPO CartPole-v1', tables=tables)
    shown.begin()
    for steps in (10, 20, 100):
        shown.show(steps, {'episode/return': 12.5, 'loss/policy': -1e-5, 'roles/staleness': 2.0}, over=steps == 100)
    output = f'{capsys.readouterr().err}a warning\nTest at step 1: 2 ± 3\n'
    training = SimpleNamespace(
        steps=20, train_steps=100, run_dir=None, alive=True, state='training', result=None, error='', output=output
    )
    watch = Watch()
    watch.show(training)
    assert watch.said.value == '<p>a warning</p><p>Test at step 1: 2 ± 3</p>'
