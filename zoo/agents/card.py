"""The card of a trained agent: how it was made, and how well it does."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import from_jsonable, write_json

#: The file of a card.
FILE = 'card.json'

#: What a trained agent can do and what it lacks, for its page.
CONTENT = (
    'It holds the networks, running statistics and counters. It can test, act, be filmed and be exported. It can also '
    'train on: optimizers and the replay buffer then begin anew, and targets begin as copies of their networks.'
)


@dataclass(frozen=True)
class Card:
    """What is known of a trained agent.

    Attributes:
        algorithm, environment, env_type: what was trained where.
        policy: ``'best'``, the agent of the best test while it trained; or ``'last'``, the agent at the end.
        steps: environment steps that this agent has taken.
        train_steps: environment steps of the whole training.
        seconds: wall time of the training.
        seed: of the training.
        seeds: the score of every seed that was trained, by seed. The agent is the best of them.
        score: ``mean``, ``std_error``, ``min`` and ``max`` of the returns of ``episodes`` test episodes with the
            deterministic policy, on other seeds than the choice among ``seeds``; and ``success``, the part of them that
            succeeded, or None.
        published: a published score: ``mean``, ``std``, ``environment``, ``steps`` and ``source``; None: there is none.
        command: what trains it again.
        date: of the training.
        versions: of the libraries, by name.
        place: ``'package'``, or ``'repository'`` for an agent that is too large for the package.
    """

    algorithm: str
    environment: str
    env_type: str
    policy: str
    steps: int
    train_steps: int
    seconds: float
    seed: int
    seeds: Mapping[str, float]
    score: Mapping[str, Any]
    published: Mapping[str, Any] | None
    command: str
    date: str
    versions: Mapping[str, str]
    place: str

    @property
    def name(self) -> str:
        """The name that ``zoo.load`` takes, such as ``'TD3/Pendulum-v1'``."""
        return f'{self.algorithm}/{self.environment}'

    @property
    def shown_score(self) -> str:
        """The mean score with its standard error, such as ``'-132.5 ± 7.1'``."""
        return f'{self.score["mean"]:.1f} ± {self.score["std_error"]:.1f}'

    @property
    def shown_published(self) -> str:
        """The published score with its standard deviation; empty if there is none."""
        if self.published is None:
            return ''
        return f'{self.published["mean"]:.1f} ± {self.published["std"]:.1f}'

    def rows(self) -> list[tuple[str, str]]:
        """Return its facts as names and text."""
        score, found = self.score, list(self.seeds.values())
        among = f'best of {len(found)} seeds, whose median is {statistics.median(found):.1f}'
        scored = f'{self.shown_score} (standard error), from {score["min"]:.1f} to {score["max"]:.1f}'
        rows = [('score', f'{scored}, in {score["episodes"]} episodes of the deterministic policy')]
        if score.get('success') is not None:
            rows.append(('success', f'{score["success"]:.0%} of the episodes'))
        if self.published is not None:
            of = f'{self.published["environment"]}, {self.published["steps"]} steps'
            told = f'{self.shown_published} (standard deviation of episodes), {of}'
            rows.append(('published', f'{told}: {self.published["source"]}'))
        which = 'the best agent of the tests while it trained' if self.policy == 'best' else 'the last agent'
        scores = ', '.join(f'{seed}: {mean:.1f}' for seed, mean in self.seeds.items())
        minutes = f'{self.seconds / 60:.1f} min' if self.seconds >= 90 else f'{self.seconds:.0f} s'
        return [
            *rows,
            ('seed', str(self.seed) if len(found) == 1 else f'{self.seed}, {among} ({scores})'),
            ('agent', f'{which}, after {self.steps:,} steps'),
            ('training', f'{self.train_steps:,} steps in {minutes}, {self.date}'),
            ('again', self.command),
            ('versions', ', '.join(f'{name} {version}' for name, version in self.versions.items())),
        ]

    def markdown(self, film: str | None = None, curve: str | None = None) -> str:
        """Return its page.

        Args:
            film, curve: where its film and its learning curve are, as seen from the page; None: without.
        """
        pictures = [('An episode', film), ('The learning curve', curve)]
        shown = ' '.join(f'![{told} of {self.name}]({path})' for told, path in pictures if path is not None)
        code = [f"zoo.load('{self.name}')", f'zoo enjoy {self.name}', f'zoo film {self.name}']
        table = [f'| {name} | {f"`{text}`" if name == "again" else text} |' for name, text in self.rows()]
        parts = [
            f'# {self.name}',
            f'{self.algorithm} in `{self.environment}`: {", ".join(f"`{line}`" for line in code)}.',
            shown,
            '\n'.join(['| | |', '|---|---|', *table]),
            CONTENT,
        ]
        return '\n\n'.join(part for part in parts if part) + '\n'

    def write(self, folder: Path) -> Path:
        """Write it into a folder as JSON."""
        return write_json(folder / FILE, asdict(self))


def read(folder: Path) -> Card:
    """Read the card in a folder.

    Raises:
        ValueError: there is none, or it is not complete.
    """
    file = folder / FILE
    names = {field.name for field in fields(Card)}
    try:
        found = from_jsonable(json.loads(file.read_text(encoding='utf-8')))
    except (OSError, ValueError) as error:
        raise InvalidValue(f"'{file}' is no card of a trained agent: {error}.") from error
    if not isinstance(found, dict) or found.keys() != names:
        raise InvalidValue(f"'{file}' is no card of a trained agent: its entries must be {', '.join(sorted(names))}.")
    return Card(**found)
