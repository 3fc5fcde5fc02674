"""What Tab shows of an agent: what a user calls, the hyper-parameters, and what a user's own class adds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from gymnasium.spaces import Box

from zoo import algorithms
from zoo.algorithms.base.parameters import FOR_USERS
from zoo.common.tools.params import at_least

ROOT = Path(__file__).parents[3]
SPACES = Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (1,))


def shown(agent: Any) -> set[str]:
    return {name for name in dir(agent) if not name.startswith('_')}


def small(cls: Any, **params: Any) -> Any:
    return cls(*SPACES, net_list=[{'hidden': [4]}] * len(cls.network_names), **params)


class Loud:
    """A mixin of a user's."""

    def shout(self) -> str:
        return 'loud'


class Bonus(Loud, algorithms.PPO):
    """A variant with a field, an attribute and a method of its own."""

    bonus: Annotated[float, at_least(0), 'added to every advantage'] = 0.1
    times = 3
    gamma = 0.9

    def build(self) -> None:
        super().build()
        self.doubled = 2 * self.bonus

    def improve(self, *args: Any, **params: Any) -> Any:
        return super().improve(*args, **params)

    def report(self) -> float:
        return self.doubled + self._half()

    def _half(self) -> float:
        return self.bonus / 2


class Louder(Bonus):
    """A variant of the variant."""

    volume: float = 1.0


@pytest.mark.parametrize('name', ['PPO', 'ES', pytest.param('SAC', marks=pytest.mark.full)])
def test_tab_shows_what_users_call_and_the_hyper_parameters(name: str):
    agent = small(getattr(algorithms, name))
    assert shown(agent) == {*FOR_USERS, *type(agent).params()}
    assert all(hasattr(agent, each) for each in dir(agent))
    assert {'__class__', '__repr__', '__deepcopy__'} <= set(dir(agent))
    assert agent.network_weights() and callable(agent.update)  # what is not shown works


def test_a_class_of_ones_own_adds_its_methods_and_fields():
    agent = small(Bonus)
    assert shown(agent) - shown(small(algorithms.PPO)) == {'bonus', 'times', 'report', 'shout'}
    assert shown(small(Louder)) - shown(agent) == {'volume'}
    assert {'_half', 'build', 'improve', 'doubled'} & set(dir(agent)) == {'_half'}


def test_a_parameter_that_a_variant_does_not_take_is_not_shown():
    variants = [getattr(algorithms, name) for name in algorithms.NAMES]
    (cls, *_) = (cls for cls in variants if cls.unused and 'Box' in cls.acts_in)
    assert not set(cls.unused) & shown(small(cls))


def test_a_notebooks_tab_shows_no_more():
    completer = pytest.importorskip('IPython.core.completer')
    shell = pytest.importorskip('IPython.core.interactiveshell').InteractiveShell()
    agent = shell.user_ns['agent'] = small(Bonus)
    if not shell.Completer.use_jedi:
        pytest.skip('without jedi IPython adds every name of the class')
    with completer.provisionalcompleter():
        found = {completion.text for completion in shell.Completer.completions('agent.', len('agent.'))}
    assert found == shown(agent)


def texts_for_users() -> str:
    """Return the pages, examples and notebooks, without the pages for authors of algorithms."""
    paths = [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md'), *(ROOT / 'examples').rglob('*.py')]
    apart = {'development', 'repository', 'own_algorithm.md'}
    pages = [path.read_text(encoding='utf-8') for path in paths if apart.isdisjoint(path.parts)]
    for path in (ROOT / 'notebooks').glob('*.ipynb'):
        pages += [''.join(cell['source']) for cell in json.loads(path.read_text(encoding='utf-8'))['cells']]
    # Pseudocode names lines of the code.
    return re.sub(r'^```{pseudocode}.*?^```', '', '\n'.join(pages), flags=re.DOTALL | re.MULTILINE)


def test_every_name_that_the_documentation_uses_is_shown():
    agent = small(algorithms.PPO)
    used = {name for name in re.findall(r'\bagent\.(\w+)', texts_for_users()) if hasattr(agent, name)}
    assert {'learn', 'rollout', 'apply_gradients'} <= used
    assert used - shown(agent) == {'act'}  # of the exported agent, in docs/howto/export.md


def test_the_documentation_explains_every_name():
    page = (ROOT / 'docs' / 'howto' / 'training.md').read_text(encoding='utf-8')
    table = page.partition('## What an agent has')[2].partition('\n## ')[0]
    assert set(FOR_USERS) <= set(re.findall(r'`(\w+)`', table))
