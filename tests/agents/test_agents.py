"""Trained agents by name: their cards, where they are found, and how well they do."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import zoo
from zoo import algorithms
from zoo.agents import Card, card, finding
from zoo.cli import main

CARDS = {one.name: one for one in zoo.list_agents()}
#: Small, fast in tests, of a discrete and of a continuous environment.
PPO, TD3 = 'PPO/CartPole-v1', 'TD3/Pendulum-v1'


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('ZOO_RUNS', raising=False)
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')


def here(name: str) -> bool:
    """Whether an agent is on this machine: large ones are in a clone of the repository alone."""
    return CARDS[name].place == 'package' or (finding.BESIDE / name).is_dir()


class TestCards:
    @pytest.mark.parametrize('name', CARDS)
    def test_a_card_is_complete(self, name):
        one = CARDS[name]
        assert one.algorithm in algorithms.NAMES
        assert one.score['episodes'] == 100
        assert one.score['min'] <= one.score['mean'] <= one.score['max']
        assert one.score['std_error'] >= 0
        assert one.policy in ('best', 'last') and one.place in ('package', 'repository')
        assert 0 < one.steps <= one.train_steps and one.seconds > 0
        # The agent is the best of the seeds.
        assert one.seeds[str(one.seed)] == max(one.seeds.values())
        assert one.command.startswith(f'zoo train {one.algorithm} {one.environment} --seed {one.seed}')
        assert one.versions.keys() >= {'zoo', 'tensorflow', 'keras', 'gymnasium', 'numpy'}
        assert one.published is None or one.published['source']

    @pytest.mark.parametrize('name', CARDS)
    def test_its_page_is_the_page_of_the_card(self, name):
        page = (finding.TRAINED / name / 'README.md').read_text(encoding='utf-8')
        plain = CARDS[name].markdown().split('\n\n')
        assert [part for part in page.split('\n\n') if not part.startswith('![')] == plain
        assert CARDS[name].shown_score in page and CARDS[name].command in page

    def test_a_page_has_pictures_where_they_are_given(self):
        page = CARDS[PPO].markdown('film.webp', 'curve.png')
        assert '](film.webp)' in page and '](curve.png)' in page
        assert 'median is' in dataclasses.replace(CARDS[PPO], seed=1, seeds={'0': 400.0, '1': 500.0}).markdown()

    @pytest.mark.parametrize('name', CARDS)
    def test_its_folder_holds_what_the_card_says(self, name):
        if not here(name):
            pytest.skip('in the repository alone')
        run = zoo.open_run(name)
        assert run.card == CARDS[name] and run.name == name
        assert (run.algorithm, run.environment, run.seed) == (*name.split('/'), CARDS[name].seed)
        assert [int(path.name) for path in run.checkpoints] == [CARDS[name].steps]
        assert len(run.curve[0]) > 1
        # Nothing in it is of the machine that trained it.
        assert str(Path.home()) not in json.dumps(run.config)

    def test_an_incomplete_card_is_refused(self, tmp_path):
        file = CARDS[PPO].write(tmp_path)
        known = json.loads(file.read_text(encoding='utf-8'))
        assert card.read(tmp_path) == CARDS[PPO]
        del known['seeds']
        file.write_text(json.dumps(known), encoding='utf-8')
        with pytest.raises(ValueError, match='is no card of a trained agent'):
            card.read(tmp_path)

    def test_the_sizes(self):
        sizes = {name: folder_size(finding.TRAINED / name) for name in CARDS}
        assert sum(sizes.values()) < 10e6
        assert max(sizes.values()) < 1.2e6, max(sizes, key=sizes.get)
        assert folder_size(finding.BESIDE) < 30e6
        gallery = Path(zoo.__file__).parents[1] / 'docs' / 'gallery'
        assert all(file.stat().st_size <= 100_000 for file in gallery.glob('*.webp'))


class TestBenchmark:
    """Every agent is a row of ``benchmarks/scores/agents.py``, and its card has the results of that row."""

    ROOT = Path(__file__).parents[2]

    def test_every_agent_is_in_a_row(self):
        command = [sys.executable, self.ROOT / 'benchmarks' / 'scores' / 'agents.py', '--list']
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert CARDS.keys() <= {line.split()[0] for line in listed}

    def test_cards_have_the_scores_of_all_seeds(self):
        file = self.ROOT / 'benchmarks' / 'results' / 'agents.json'
        results = json.loads(file.read_text(encoding='utf-8'))
        assert results.keys() == CARDS.keys()
        for name, found in results.items():
            assert CARDS[name].seeds == {seed: entry['score']['mean'] for seed, entry in found.items()}


def folder_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())


class TestNames:
    def test_the_list(self):
        assert [one.name for one in zoo.list_agents('CartPole-v1', 'ppo')] == [PPO]
        assert {one.environment for one in zoo.list_agents(env_id='Pendulum-v1')} == {'Pendulum-v1'}
        assert {one.algorithm for one in zoo.list_agents(alg='PPO')} == {'PPO'}
        assert list(CARDS) == sorted(CARDS, key=str.lower)
        with pytest.raises(
            ValueError, match="unknown environment of a trained agent 'CartPole': did you mean 'CartPole-v1'"
        ):
            zoo.list_agents('CartPole')
        with pytest.raises(ValueError, match="unknown algorithm of a trained agent 'PPPO': did you mean 'PPO'"):
            zoo.list_agents(alg='PPPO')

    def test_it_reads_cards_alone(self):
        code = "import sys, zoo; print(len(zoo.list_agents()), 'tensorflow' in sys.modules)"
        done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(len(CARDS)), 'False']

    def test_a_name_is_taken_in_any_case(self):
        assert finding.find('ppo/cartpole-V1') == finding.TRAINED / PPO

    def test_a_path_that_exists_wins(self, tmp_path):
        (tmp_path / 'PPO' / 'CartPole-v1').mkdir(parents=True)
        assert finding.find(PPO) == Path(PPO)
        with pytest.raises(ValueError, match='is no run'):
            zoo.open_run(PPO)
        with pytest.raises(ValueError, match='is missing'):
            zoo.load(PPO)

    def test_a_saved_agent_is_no_run(self, tmp_path):
        shutil.copytree(next((finding.TRAINED / PPO / 'checkpoints').iterdir()), tmp_path / 'mine')
        with pytest.raises(ValueError, match="'mine' is a saved agent, and a run is asked for: zoo.load"):
            zoo.open_run('mine')
        shutil.copytree(tmp_path / 'mine', tmp_path / 'run' / 'best')
        with pytest.raises(ValueError, match=r"open_run\('run'\).load\(best=True\)"):
            zoo.open_run('run/best')

    @pytest.mark.parametrize('use', [zoo.load, zoo.open_run, lambda name: zoo.train(*PPO.split('/'), start_from=name)])
    @pytest.mark.parametrize('name', ['PPO/CartPole-v0', 'PPPO/CartPole-v1', 'ppo/cartpol'])
    def test_an_unknown_name_is_refused_with_the_nearest(self, use, name):
        with pytest.raises(ValueError, match=f'nor a trained agent {name!r}, but there .*{PPO}.*: zoo.list_agents'):
            use(name)

    @pytest.mark.parametrize('name', ['last', 'somewhere', '/nowhere/CartPole-v1', './PPO', 'a/b/c', '~/PPO'])
    def test_what_cannot_be_a_name_is_a_path(self, name):
        assert finding.named(name) is None

    @pytest.mark.parametrize('use', [zoo.load, zoo.open_run])
    def test_an_algorithm_alone_is_no_name(self, use):
        with pytest.raises(ValueError, match="^'ppo' is an algorithm: a trained agent .*, such as PPO/"):
            use('ppo')

    def test_a_wrong_path_in_a_folder_that_exists_is_no_name(self, tmp_path):
        (tmp_path / 'runs').mkdir()
        with pytest.raises(ValueError, match='there is no checkpoint at'):
            zoo.load('runs/PPO_CartPole-v1')

    def test_an_agent_that_is_not_in_the_package(self, monkeypatch, tmp_path):
        shutil.copytree(finding.TRAINED / PPO, tmp_path / 'trained' / PPO)
        shutil.move(tmp_path / 'trained' / PPO / 'checkpoints', tmp_path / 'checkpoints')
        monkeypatch.setattr(finding, 'TRAINED', tmp_path / 'trained')
        monkeypatch.setattr(finding, 'BESIDE', tmp_path / 'agents')
        told = f'{PPO} is too large for the package: it is in the repository of zoo, in agents/{PPO}'
        with pytest.raises(ValueError, match=told):
            zoo.load(PPO)
        shutil.copytree(tmp_path / 'trained' / PPO, tmp_path / 'agents' / PPO)
        shutil.move(tmp_path / 'checkpoints', tmp_path / 'agents' / PPO)
        assert zoo.open_run(PPO).card.name == PPO
        assert zoo.load(PPO).steps == CARDS[PPO].steps


def score(name: str, episodes: int) -> tuple[float, float]:
    """The mean return of an agent by its name, and its standard error."""
    run = zoo.open_run(name)
    env = run.build_env(seed=77, nenv=1)
    returns = run.load().learn(env, 'test', test_episodes=episodes, seed=77).returns
    env.close()
    return statistics.mean(returns), statistics.stdev(returns) / math.sqrt(episodes)


@pytest.mark.parametrize(('name', 'episodes'), [(PPO, 20), ('A2C/CartPole-v1', 20), (TD3, 30)])
def test_an_agent_is_as_good_as_its_card(name, episodes):
    mean, error = score(name, episodes)
    expected = CARDS[name].score
    assert abs(mean - expected['mean']) <= 3 * math.hypot(error, expected['std_error']) + 1e-6


class TestUse:
    @pytest.mark.full(but=PPO)
    @pytest.mark.parametrize('name', CARDS)
    def test_it_loads_and_acts(self, name):
        if not here(name):
            pytest.skip('in the repository alone')
        agent = zoo.load(name)
        assert type(agent).__name__ == CARDS[name].algorithm and agent.steps == CARDS[name].steps
        observation = agent.observation_space.sample()
        assert agent.action_space.contains(agent.predict(observation))

    def test_it_is_the_best_of_its_run(self):
        observation = np.array([0.1, 0.2, -0.1, 0.05], np.float32)
        expected = zoo.load(PPO).predict(observation)
        assert zoo.load(PPO, best=True).predict(observation) == expected
        assert zoo.open_run(PPO).load(best=True).predict(observation) == expected
        assert algorithms.PPO.load(PPO).predict(observation) == expected
        with pytest.raises(ValueError, match='PPO'):
            algorithms.DQN.load(PPO)

    def test_a_run_begins_with_it(self):
        agent, result = zoo.train('TD3', 'Pendulum-v1', start_from=TD3, train_steps=300, explore_steps=200, verbose=0)
        # It goes on from what was learned: a new agent gets about -1,200.
        assert (
            statistics.mean(agent.learn(zoo.build_env('Pendulum-v1'), 'test', test_episodes=5, seed=0).returns) > -500
        )
        run = zoo.open_run(result.run_dir)
        assert run.config['start_from'] == TD3
        assert f'start_from: {TD3}' in zoo.as_config(run)

    def test_it_trains_on(self):
        agent = zoo.load(TD3)
        with zoo.build_env('Pendulum-v1') as env:
            agent.learn(env, train_steps=300, explore_steps=200, batch_size=32, verbose=0, run_dir=False)
        assert agent.steps == CARDS[TD3].steps + 300

    def test_it_cannot_be_resumed(self):
        with pytest.raises(ValueError, match=r"without the state of its training.*start_from='PPO/CartPole-v1'"):
            zoo.resume(PPO, train_steps=10**7)


class TestCommands:
    def said(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
        return main(words), *capsys.readouterr()

    def test_list(self, capsys):
        code, out, _ = self.said(capsys, 'list', 'agents')
        lines = out.splitlines()
        assert code == 0 and [line.split()[0] for line in lines[1:]] == list(CARDS)
        assert CARDS[PPO].shown_score in out

    def test_show(self, capsys):
        code, out, _ = self.said(capsys, 'show', TD3)
        assert code == 0 and CARDS[TD3].command in out and CARDS[TD3].shown_score in out
        assert 'Settings that differ' in out or 'All settings are the defaults' in out

    def test_test(self, capsys):
        code, out, _ = self.said(capsys, 'test', PPO, '--episodes', '1', '--best')
        assert code == 0 and f'after {CARDS[PPO].steps:,} steps' in out

    def test_film_writes_to_the_working_directory(self, capsys, tmp_path):
        code, out, _ = self.said(capsys, 'film', PPO, '--max-steps', '3')
        assert code == 0 and out.strip() == 'PPO_CartPole-v1_film.gif'
        assert (tmp_path / out.strip()).is_file()

    def test_enjoy_says_what_works_without_a_display(self, capsys, monkeypatch):
        monkeypatch.delenv('DISPLAY', raising=False)
        monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
        monkeypatch.delenv('SDL_VIDEODRIVER')
        code, _, err = self.said(capsys, 'enjoy', PPO)
        assert code == 2 and err.strip() == (
            f'zoo enjoy: there is no display to open a window on: write zoo film {PPO}.'
        )

    def test_plot(self, capsys, tmp_path):
        assert self.said(capsys, 'plot', PPO, TD3, '--out', 'both.png')[0] == 0
        assert (tmp_path / 'both.png').stat().st_size > 1000

    def test_export_writes_to_the_working_directory(self, capsys, tmp_path):
        code, out, _ = self.said(capsys, 'export', PPO)
        assert code == 0 and out.strip() == 'PPO_CartPole-v1_exported_savedmodel'
        assert (tmp_path / out.strip()).is_dir()

    def test_resume_is_refused_with_what_to_write(self, capsys):
        code, out, err = self.said(capsys, 'train', '--resume', PPO)
        assert code == 2 and out == '' and err.count('\n') == 1
        assert f'zoo train PPO CartPole-v1 --from {PPO}' in err

    def test_an_unknown_name(self, capsys):
        code, _, err = self.said(capsys, 'test', 'PPO/CartPole')
        assert code == 2 and PPO in err and 'zoo list agents' in err

    def test_completion(self):
        from zoo.cli.values import agent_names

        assert agent_names('PPO/Cart') == [PPO]


def test_the_name_is_made_of_its_parts():
    assert Card(**{**dataclasses.asdict(CARDS[PPO]), 'algorithm': 'X', 'environment': 'Y-v0'}).name == 'X/Y-v0'
