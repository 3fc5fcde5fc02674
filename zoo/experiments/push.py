"""``zoo.push_to_hub``: a trained agent as a repository of the Hugging Face hub, with its model card.

:mod:`zoo.common.training.hub` says what a repository holds, and fetches it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common.envs.about import about
from zoo.common.records import TestResult
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import InvalidType, InvalidValue
from zoo.common.tools.files import as_path, jsonable, write_json, write_text
from zoo.common.training import checkpoint, hub
from zoo.experiments.runs import Run, open_run

if TYPE_CHECKING:
    from zoo.algorithms.base.algorithm import Algorithm

#: The forms of a film that a repository may have.
FILMS = ('.gif', '.webp', '.png', '.mp4')

#: Parts of a run's configuration with paths of this machine.
_OF_THIS_MACHINE = ('start_from', 'own_defaults')

#: Arguments of ``build_env`` that a card gives apart, or leaves out.
_OF_TRAINING = ('env_id', 'env_type', 'nenv', 'vectorized')


def push_to_hub(
    agent: Algorithm | Run | str | os.PathLike[str],
    repo: str,
    *,
    env: Env | VectorEnv | None = None,
    best: bool = False,
    result: TestResult | Sequence[float] | None = None,
    test_episodes: int | None = None,
    film: str | os.PathLike[str] | None = None,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    message: str | None = None,
) -> str:
    """Upload a trained agent to the Hugging Face hub, with a model card; return the address of its page.

    The repository is made if need be. It has ``config.json``, one checkpoint (weights and plain data, nothing that is
    executed), the card ``README.md``, and the film. An agent, a film and a card that it has already are replaced.
    ``zoo.load('hf://name/repo')`` loads the agent.

    >>> zoo.push_to_hub('last', 'name/ppo-cartpole', test_episodes=20)
    >>> zoo.push_to_hub(agent, 'name/ppo-cartpole', env=env, result=agent.learn(env, 'test'))

    Args:
        agent: a run, as :func:`zoo.open_run` takes it, or an agent.
        repo: ``'name/repo'``: the name of a user or an organization, and the name of the repository.
        env: the environment that an agent was trained in, from ``build_env``; a run knows its own.
        best: the best agent of a run instead of the last.
        result: how the agent does: the result of a test, or the returns of its episodes. None: what a run has noted at
            its end, if it has.
        test_episodes: test the agent in so many episodes first, without exploration.
        film: a film of the agent, a GIF, WebP, PNG or MP4 file, as :func:`zoo.film` writes it.
        private: make the repository private, or public; None: as your account has it. A repository that is there must
            be so already.
        revision: the branch, which is made if need be; None: ``main``.
        token: with permission to write; None: the variable ``HF_TOKEN``, or the token of ``hf auth login``.
        message: of the commit; None: algorithm, environment and steps.

    Raises:
        ImportError: the extra ``hub`` is not installed.
        ValueError: an argument is refused, there is no agent, or the hub refuses the repository or the token.
        RuntimeError: the hub does not answer.
    """
    if isinstance(agent, str | os.PathLike | Run):
        if env is not None:
            raise InvalidValue('env is for an agent of a program: a run knows its own, so leave env out.')
        run = open_run(agent)
    elif hasattr(agent, 'blueprint'):
        if not isinstance(env, Env | VectorEnv):
            raise InvalidValue(
                'an agent does not know where it acts: give env, the environment that it was trained in.'
            )
        if best:
            raise InvalidValue('best is for a run, which may have kept its best agent: leave best out.')
        run = None
    else:
        raise InvalidType(f'agent is {agent!r}: give a trained agent, or a run.')
    name, own_revision = hub.parse(repo, revision)
    if result is not None and test_episodes is not None:
        raise InvalidValue('result and test_episodes both say how the agent does: give one of them.')
    film = None if film is None else as_path(film, 'film')
    if film is not None and (film.suffix not in FILMS or not film.is_file()):
        raise InvalidValue(f"the film '{film}' is no file that ends in {', '.join(FILMS)}: zoo.film makes one.")
    client = hub.package()
    if not hub.token_given(token):
        told = f"'{name}' cannot be written without a token: log in with hf auth login, or set HF_TOKEN"
        raise InvalidValue(f'{told}, or give token=….', shell=f'{told}.')
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if run is None:
            config = _of_agent(agent, env, folder)
        else:
            config = _of_run(run, best, folder)
        if test_episodes is not None:
            result = _tested(agent, env, run, best, whole('test_episodes', test_episodes))
        score = _score(result) if result is not None or run is None else _noted(run, best)
        if film is not None:
            shutil.copyfile(film, folder / f'replay{film.suffix}')
        steps = checkpoint.steps_of(next((folder / 'checkpoints').iterdir()))
        write_text(folder / 'README.md', model_card(name, own_revision, config, steps, score, film))
        message = message or f'{config["algorithm"]} in {config["environment"]}, {steps:,} steps'
        return _upload(client, folder, name, private, own_revision, token, message)


def _upload(
    client: Any, folder: Path, repo: str, private: bool | None, revision: str | None, token: str | None, message: str
) -> str:
    """Upload the files of a folder in one commit, which removes the files of an earlier agent."""
    api = client.HfApi(token=token)
    with hub.told(repo, revision):
        address = str(api.create_repo(repo, private=private, exist_ok=True))
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        info = api.model_info(repo, revision=revision)
        if private is not None and info.private is not None and info.private != private:
            now = 'private' if info.private else 'public'
            raise InvalidValue(f"'{repo}' is there and {now}: change that on its page, or leave private out.")
        hub.check_files(repo, [sibling.rfilename for sibling in info.siblings or ()], loaded=False)
        api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            revision=revision,
            commit_message=message,
            delete_patterns=['checkpoints/*', 'replay.*'],
        )
    return address


def _of_run(run: Run, best: bool, folder: Path) -> dict[str, Any]:
    """Write the agent of a run to a folder; return its configuration."""
    source = run.best if best else checkpoint.newest_in(run.path)
    if source is None:
        what = 'best agent: tests keep one while it trains' if best else 'checkpoint yet'
        raise InvalidValue(f'{run.name} has no {what}; there is no agent to push.')
    saved = checkpoint.read(source)  # which finds damage
    target = folder / 'checkpoints' / f'{checkpoint.steps_of(source):09d}'
    if saved.buffer is None:
        shutil.copytree(source, target)
    else:  # a replay buffer may have gigabytes, and nobody plays with it
        checkpoint.write(target, saved.config, saved.arrays)
    config = {name: value for name, value in run.config.items() if name not in _OF_THIS_MACHINE}
    write_json(folder / 'config.json', config)
    return config


def _of_agent(agent: Any, env: Any, folder: Path) -> dict[str, Any]:
    """Write an agent to a folder; return a configuration like the one of a run."""
    agent.save(folder / 'checkpoints' / f'{agent.steps:09d}')
    known = about(env)
    try:
        made_with = jsonable(known.arguments)
    except TypeError:
        made_with = None
    of_env = {'environment': known.name, 'env_type': known.type, 'copies': known.copies, 'made_with': made_with}
    config = {**agent.config(), **of_env}
    write_json(folder / 'config.json', config)
    return config


def _tested(agent: Any, env: Any, run: Run | None, best: bool, episodes: int) -> TestResult:
    if run is None:
        found: TestResult = agent.learn(env, 'test', test_episodes=episodes)
        return found
    own = run.build_env(nenv=1)
    try:
        found = run.load(best=best).learn(own, 'test', test_episodes=episodes)
        return found
    finally:
        own.close()


def _score(result: Any) -> dict[str, float] | None:
    """Return mean, standard deviation and number of episodes."""
    if result is None:
        return None
    returns = result.returns if isinstance(result, TestResult) else result
    try:
        values = np.asarray(returns, np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InvalidValue(f'result is {result!r}: give the result of a test, or a list of returns.')
    return {'mean': float(values.mean()), 'std': float(values.std()), 'episodes': values.size}


def _noted(run: Run, best: bool) -> dict[str, float] | None:
    """Return how the agent did in the test at the end of its run; None if there was none."""
    return run.retested.get('best' if best else 'last')


def model_card(
    repo: str,
    revision: str | None,
    config: Mapping[str, Any],
    steps: int,
    score: Mapping[str, float] | None,
    film: Path | None,
) -> str:
    """Return the text of a model card: metadata that the hub shows, what the agent is, and how to use it."""
    alg, environment = config['algorithm'], config['environment']
    head: dict[str, Any] = {
        'library_name': 'zoo',
        'tags': [environment, alg, 'reinforcement-learning', 'deep-reinforcement-learning', 'zoo'],
        'pipeline_tag': 'reinforcement-learning',
    }
    lines = [f'# {alg} in {environment}', '']
    lines += [f'An agent of {alg} after {steps:,} environment steps in {environment}, trained with zoo.', '']
    if score is not None:
        number = f'{score["mean"]:.2f} +/- {score["std"]:.2f}'
        task = {'type': 'reinforcement-learning', 'name': 'reinforcement-learning'}
        metric = {'type': 'mean_reward', 'value': number, 'name': 'mean_reward', 'verified': False}
        one = {'task': task, 'dataset': {'name': environment, 'type': environment}, 'metrics': [metric]}
        head['model-index'] = [{'name': alg, 'results': [one]}]
        lines += [f'Mean return of {score["episodes"]:.0f} test episodes without exploration: **{number}**.', '']
    if film is not None:
        shown = f'replay{film.suffix}'
        lines += [f'[A film]({shown})' if film.suffix == '.mp4' else f'![The agent]({shown})', '']
    source = f'{hub.PREFIX}{repo}' + (f'@{revision}' if revision else '')
    custom = any(isinstance(entry, Mapping) and 'custom' in entry for entry in config.get('net_list') or ())
    nets = ', net_list=[…]' if custom else ''
    made = config.get('made_with') or {}
    lines += ['```python', 'import zoo', '', f"agent = zoo.load('{source}'{nets})"]
    if made:
        given = [f'{value!r}' for value in (made.get('env_id'), made.get('env_type'))]
        given += [f'{name}={value!r}' for name, value in made.items() if name not in _OF_TRAINING]
        lines += [f'env = zoo.build_env({", ".join(given)})', "agent.learn(env, 'test')"]
    lines += ['```', '']
    if custom:
        lines += ['Its networks were defined in Python: hand networks of the same shapes to `zoo.load`.', '']
    elif made:
        lines += ['```sh', f'zoo test {source}', '```', '']
    params = json.dumps(jsonable(config.get('params', {})), indent=2)
    lines += ['## Parameters', '', '```json', params, '```', '']
    return f'---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n' + '\n'.join(lines)
