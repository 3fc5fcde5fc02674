"""Agents on the Hugging Face hub: pushed, fetched and refused, against a server on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_server
import numpy as np
import pytest
import yaml
from hub_server import READS, WRITES, Hub, Repo

import zoo
from zoo.cli import main
from zoo.common.training import hub
from zoo.common.training.checkpoint import CheckpointError

FEW: dict[str, Any] = {'train_steps': 60, 'net': '8', 'explore_steps': 10_000, 'verbose': 0, 'evaluate': False}


def forget() -> None:
    """Let the client be imported again: it reads the variables when it is imported."""
    for name in [name for name in sys.modules if name.partition('.')[0] == 'huggingface_hub']:
        del sys.modules[name]


@pytest.fixture(scope='module')
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The hub, for whoever imports the client."""
    pytest.importorskip('huggingface_hub', reason='the extra hub')
    with hub_server.hub() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in variables(server.url, tmp_path_factory.mktemp('home')).items():
            patch.setenv(name, value)
        for name in ('HF_TOKEN', 'HF_HUB_CACHE', 'HF_HUB_OFFLINE', 'HUGGING_FACE_HUB_TOKEN', 'HF_TOKEN_PATH'):
            patch.delenv(name, raising=False)
        forget()
        yield server
        forget()


def variables(url: str, home: Path) -> dict[str, str]:
    settings = {'HF_HUB_DISABLE_XET': '1', 'HF_HUB_DISABLE_TELEMETRY': '1', 'HF_HUB_DISABLE_PROGRESS_BARS': '1'}
    return {'HF_ENDPOINT': url, 'HF_HOME': os.fspath(home), **settings}


@pytest.fixture
def server(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub without repositories, and a token that may write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)
    monkeypatch.setenv('HF_TOKEN', WRITES)
    served.repos.clear()
    served.asked.clear()
    served.down = False
    return served


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run."""
    folder = tmp_path_factory.mktemp('runs') / 'mine'
    zoo.train('DQN', 'CartPole-v1', run_dir=folder, env_params={'max_episode_steps': 30}, nenv=2, **FEW)
    return folder


def card_of(repo: Repo, revision: str = 'main') -> tuple[dict[str, Any], str]:
    """The metadata of a model card, and its text."""
    _, head, text = repo.files(revision)['README.md'].decode().split('---\n', 2)
    return yaml.safe_load(head), text


def weights(agent: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in agent.networks['q'].variables]


def test_a_run_is_pushed_and_loaded(server: Hub, trained: Path, tmp_path: Path, capsys):
    (tmp_path / 'seen.gif').write_bytes(b'GIF89a')
    address = zoo.push_to_hub(trained, 'me/whole', test_episodes=2, film='seen.gif', private=True, message='My first')
    assert address == f'{server.url}/me/whole'
    repo = server.repos['me/whole']
    assert repo.private and repo.messages == ['initial commit', 'My first']
    (name,) = (path.name for path in (trained / 'checkpoints').iterdir())
    files = repo.files()
    assert files.keys() == {
        '.gitattributes', 'README.md', 'replay.gif', 'config.json',
        f'checkpoints/{name}/config.json', f'checkpoints/{name}/weights.safetensors',
    }  # fmt: skip
    for file in ('config.json', 'weights.safetensors'):  # as they are
        assert files[f'checkpoints/{name}/{file}'] == (trained / 'checkpoints' / name / file).read_bytes()

    head, text = card_of(repo)
    assert head['library_name'] == 'zoo' and {'CartPole-v1', 'DQN', 'reinforcement-learning'} <= set(head['tags'])
    (result,) = head['model-index'][0]['results']
    assert result['dataset']['name'] == 'CartPole-v1' and result['metrics'][0]['type'] == 'mean_reward'
    mean, _, deviation = result['metrics'][0]['value'].partition(' +/- ')
    assert 8 < float(mean) <= 30 and float(deviation) >= 0
    assert (
        "zoo.load('hf://me/whole')" in text and 'zoo test hf://me/whole' in text and '![The agent](replay.gif)' in text
    )
    assert "env = zoo.build_env('CartPole-v1', 'classic_control', max_episode_steps=30)" in text

    agent = zoo.load('hf://me/whole')
    for one, other in zip(weights(agent), weights(zoo.load(trained)), strict=True):
        np.testing.assert_array_equal(one, other)
    server.asked.clear()  # what is there is not downloaded again
    assert zoo.algorithms.DQN.load('hf://me/whole').steps == agent.steps
    assert [path for _, path in server.asked if '/resolve/' in path] == []

    assert main(['test', 'hf://me/whole', '--episodes', '2']) == 0
    assert 'of 2 episodes after 60 steps' in capsys.readouterr().out
    assert main(['show', 'hf://me/whole']) == 0
    assert 'DQN' in capsys.readouterr().out
    _, result = zoo.train('DQN', 'CartPole-v1', start_from='hf://me/whole', run_dir=False,
                          train_steps=20, explore_steps=100, verbose=0)  # fmt: skip
    assert result.steps == 20
    with pytest.raises(ValueError, match=r"hf://me/whole is on the hub, and a .* start_from='hf://me/whole'"):
        zoo.resume('hf://me/whole')


def test_the_code_of_the_card_runs(server: Hub, trained: Path, capsys):
    zoo.push_to_hub(trained, 'me/code', result=[10.0, 20.0])
    head, text = card_of(server.repos['me/code'])
    assert head['model-index'][0]['results'][0]['metrics'][0]['value'] == '15.00 +/- 5.00'
    assert 'Mean return of 2 test episodes without exploration: **15.00 +/- 5.00**.' in text
    code = text.split('```python\n')[1].split('```')[0]
    names: dict[str, Any] = {}
    exec(code, names)
    assert names['agent'].steps == 60 and names['env'].spec.max_episode_steps == 30


def test_an_agent_of_a_program(server: Hub, trained: Path):
    agent = zoo.load(trained)
    env = zoo.build_env('CartPole-v1', 'classic_control')
    zoo.push_to_hub(agent, 'me/agent', env=env, result=agent.learn(env, 'test', test_episodes=1))
    run = zoo.open_run('hf://me/agent')
    assert (run.algorithm, run.environment, run.name) == ('DQN', 'CartPole-v1', 'hf://me/agent')
    assert run.load().steps == 60 and run.build_env().spec.id == 'CartPole-v1'
    with pytest.raises(ValueError, match='give env, the environment that it was trained in'):
        zoo.push_to_hub(agent, 'me/agent')
    with pytest.raises(ValueError, match='a run knows its own, so leave env out'):
        zoo.push_to_hub(trained, 'me/agent', env=env)


def test_a_new_agent_replaces_the_old_one(server: Hub, trained: Path, tmp_path: Path):
    (tmp_path / 'a.gif').write_bytes(b'1')
    zoo.push_to_hub(trained, 'me/twice', film=tmp_path / 'a.gif')
    first = server.repos['me/twice'].branches['main']
    (tmp_path / 'b.mp4').write_bytes(b'2')
    folder = tmp_path / 'later'
    zoo.train('DQN', 'CartPole-v1', run_dir=folder, checkpoint_buffer=True, **FEW | {'train_steps': 90})
    zoo.push_to_hub(folder, 'me/twice', film=tmp_path / 'b.mp4')
    names = set(server.repos['me/twice'].files())
    assert names >= {'replay.mp4', 'checkpoints/000000090/weights.safetensors'}
    assert not any('000000060' in name or 'gif' in name or 'buffer' in name for name in names)
    assert (folder / 'checkpoints/000000090/buffer.npz').exists()  # which stays here
    assert server.repos['me/twice'].messages[-1] == 'DQN in CartPole-v1, 90 steps'
    assert zoo.load('hf://me/twice').steps == 90
    assert zoo.load(f'hf://me/twice@{first}').steps == zoo.load('hf://me/twice', revision=first).steps == 60


def test_a_branch(server: Hub, trained: Path):
    zoo.push_to_hub(trained, 'me/branches', revision='v1')
    repo = server.repos['me/branches']
    assert 'config.json' in repo.files('v1') and 'config.json' not in repo.files('main')
    assert "zoo.load('hf://me/branches@v1')" in card_of(repo, 'v1')[1]
    zoo.push_to_hub(trained, 'hf://me/branches@v1')  # a branch that is there
    assert zoo.load('hf://me/branches@v1').steps == 60
    with pytest.raises(ValueError, match="'me/branches' holds no agent of zoo"):
        zoo.load('hf://me/branches')
    with pytest.raises(ValueError, match="'me/branches' has no revision v9: give a branch, a tag or a commit"):
        zoo.load('hf://me/branches', revision='v9')
    with pytest.raises(ValueError, match='the revision is given twice, v1 in .* and v2'):
        zoo.load('hf://me/branches@v1', revision='v2')


def test_what_belongs_to_this_machine_stays_here(server: Hub, trained: Path, tmp_path: Path):
    folder = tmp_path / 'next'
    zoo.train('DQN', 'CartPole-v1', run_dir=folder, start_from=trained, train_steps=20, explore_steps=99, verbose=0)
    assert os.fspath(trained) in (folder / 'config.json').read_text()
    zoo.push_to_hub(folder, 'me/clean')
    assert all(os.fspath(trained).encode() not in content for content in server.repos['me/clean'].files().values())


def test_from_the_shell(server: Hub, trained: Path, tmp_path: Path, capsys, monkeypatch):
    assert main(['push', os.fspath(trained), 'me/shell', '--private', '--message', 'hello']) == 0
    assert capsys.readouterr().out.strip() == f'{server.url}/me/shell'
    assert server.repos['me/shell'].private and server.repos['me/shell'].messages[-1] == 'hello'
    exported: list[Any] = []
    monkeypatch.setattr(zoo, 'export', lambda agent, path, to: exported.append(path), raising=False)
    assert main(['export', 'hf://me/shell']) == 0
    assert exported == [Path('DQN_CartPole-v1_exported_savedmodel')]  # not in the cache
    assert main(['push', os.fspath(trained), 'me/shell', '--public']) == 2
    assert "'me/shell' is there and private: change that on its page" in capsys.readouterr().err
    assert main(['push', os.fspath(trained), 'shell']) == 2
    assert "'shell' is no repository of the hub: give 'name/repo'" in capsys.readouterr().err
    assert main(['push', os.fspath(trained), 'me/shell', '--best']) == 2
    assert 'has no best agent' in capsys.readouterr().err


def test_private_and_gated(server: Hub, trained: Path, monkeypatch):
    zoo.push_to_hub(trained, 'me/secret', private=True)
    monkeypatch.delenv('HF_TOKEN')
    with pytest.raises(ValueError, match="'me/secret' is not on the hub, or it is private: check its name, or log in"):
        zoo.load('hf://me/secret')
    assert zoo.load('hf://me/secret', token=READS).steps == 60
    server.repos['me/secret'].gated = True
    server.repos['me/secret'].commit('main', server.repos['me/secret'].files() | {'LICENSE': b'MIT'}, 'new')
    with pytest.raises(ValueError, match="'me/secret' is gated: ask for access on its page"):
        zoo.load('hf://me/secret', token=READS)
    with pytest.raises(ValueError, match="'me/other' cannot be written without a token: log in with hf auth login"):
        zoo.push_to_hub(trained, 'me/other')
    with pytest.raises(ValueError, match="'me/other' may not be read or written with this token"):
        zoo.push_to_hub(trained, 'me/other', token=READS)
    with pytest.raises(ValueError, match="'me/other' needs a valid token: log in"):
        zoo.push_to_hub(trained, 'me/other', token='hf_wrong')
    assert 'me/other' not in server.repos


def planted(server: Hub, name: str, files: dict[str, bytes]) -> None:
    server.repos[name] = Repo()
    server.repos[name].commit('main', files, 'planted')


def agent_files(trained: Path) -> dict[str, bytes]:
    (place,) = (trained / 'checkpoints').iterdir()
    inside = {f'checkpoints/7/{file.name}': file.read_bytes() for file in place.iterdir()}
    return {'config.json': (trained / 'config.json').read_bytes(), **inside}


@pytest.mark.parametrize(
    ('number', 'files', 'message'),
    [
        (0, {'evil.pkl': b''}, "'you/bad0' holds evil.pkl, which is no file of an agent of zoo: it is not used"),
        (1, {'a.py': b'', 'b.bin': b''}, "'you/bad1' holds a.py, b.bin, which are no files of an agent of zoo"),
        (2, {'checkpoints/7/buffer.npz': b''}, 'holds checkpoints/7/buffer.npz, which is no file'),
        (3, {'checkpoints/7/weights.safetensors': b'short'}, "weights.safetensors' is"),
        (4, {'config.json': b'{'}, "'you/bad4' is damaged: its config.json cannot be read"),
        (
            5,
            {'config.json': b'{"architectures": ["Bert"]}'},
            "'you/bad5' holds no agent of zoo: its config.json is not",
        ),
        (6, {'config.json': b'{"algorithm": "DQN", "made_with": [1]}'}, "'you/bad6' holds no agent of zoo"),
    ],
)
def test_a_repository_that_is_no_whole_agent_is_refused(
    number: int, files: dict[str, bytes], message: str, server: Hub, trained: Path
):
    name = f'you/bad{number}'
    planted(server, name, agent_files(trained) | files)
    with pytest.raises(ValueError, match=message) as caught:
        zoo.load(f'hf://{name}')
    assert isinstance(caught.value, CheckpointError) == (number == 3)
    if number < 3:  # nothing of it was downloaded
        assert not any('/resolve/' in path for _, path in server.asked)


def test_a_repository_of_something_else(server: Hub, trained: Path):
    planted(server, 'you/bert', {'config.json': b'{}', 'model.safetensors': b'', 'README.md': b''})
    with pytest.raises(ValueError, match="'you/bert' holds no agent of zoo: it has no config.json with a folder in"):
        zoo.load('hf://you/bert')
    with pytest.raises(ValueError, match="'you/bert' holds model.safetensors, which is no file of an agent of zoo"):
        zoo.push_to_hub(trained, 'you/bert')
    assert len(server.repos['you/bert'].commits) == 1


def test_no_package_is_imported_for_an_environment(server: Hub, trained: Path, tmp_path: Path, monkeypatch):
    (tmp_path / 'evil.py').write_text('raise SystemExit("imported")')
    monkeypatch.syspath_prepend(tmp_path)
    files = agent_files(trained)
    config = json.loads(files['config.json'])
    config['made_with'] |= {'env_id': 'evil:Env-v0', 'env_type': 'gymnasium'}
    planted(server, 'you/import', files | {'config.json': json.dumps(config).encode()})
    with pytest.raises(ValueError, match='names the environment evil:Env-v0, for which a package would be imported'):
        zoo.open_run('hf://you/import').build_env()
    assert zoo.load('hf://you/import').steps == 60


def test_the_last_download_serves_while_the_hub_is_down(server: Hub, trained: Path, monkeypatch):
    zoo.push_to_hub(trained, 'me/down')
    hub.fetch('hf://me/down')
    server.down = True
    assert zoo.load('hf://me/down').steps == 60
    with pytest.raises(RuntimeError, match='the hub does not answer for me/never: check the connection'):
        zoo.load('hf://me/never')


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'repo': 'a'}, "'a' is no repository of the hub: give 'name/repo'"),
        ({'repo': 3}, 'a repository is 3'),
        ({'film': 'x.txt'}, "the film 'x.txt' is no file that ends in .gif"),
        ({'film': 'missing.gif'}, "the film 'missing.gif' is no file"),
        ({'result': [1.0], 'test_episodes': 3}, 'both say how the agent does'),
        ({'result': ['x']}, "result is .'x'.: give the result of a test"),
        ({'result': []}, 'give the result of a test, or a list of returns'),
        ({'test_episodes': 0}, 'test_episodes is 0'),
        ({'agent': 3}, 'agent is 3: give a trained agent, or a run'),
        ({'agent': 'nowhere'}, "there is no run 'nowhere'"),
    ],
)
def test_what_is_refused_before_anything_is_sent(given: dict[str, Any], message: str, server: Hub, trained: Path):
    with pytest.raises((ValueError, TypeError), match=message):
        zoo.push_to_hub(**{'agent': trained, 'repo': 'me/x', **given})
    assert [path for method, path in server.asked if method == 'POST'] == []


def test_revision_and_token_are_for_the_hub(trained: Path):
    with pytest.raises(ValueError, match="revision is for agents on the hub, 'hf://name/repo', and .* is none"):
        zoo.load(trained, revision='v1')
    with pytest.raises(ValueError, match='token is for agents on the hub'):
        zoo.load(trained, token='x')


def test_without_the_package(monkeypatch, trained: Path):
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
    for call in (lambda: zoo.load('hf://me/x'), lambda: zoo.push_to_hub(trained, 'me/x')):
        with pytest.raises(ImportError, match=r"the hub needs huggingface_hub: pip install 'zoo-rl\[hub\]'"):
            call()


@pytest.mark.parametrize('more', [{}, {'HF_HUB_OFFLINE': '1'}])
def test_without_a_network(more: dict[str, str], tmp_path: Path):
    pytest.importorskip('huggingface_hub', reason='the extra hub')
    env = {**os.environ, **variables('http://127.0.0.1:9', tmp_path), **more}
    done = subprocess.run(
        [sys.executable, '-m', 'zoo', 'test', 'hf://me/agent'], capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith('zoo test: the hub does not answer for me/agent: check the connection (')
    assert len(done.stderr.splitlines()) == 1
