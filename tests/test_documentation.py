"""What the pages and the examples say is so: their files and names exist, and their programs run."""

from __future__ import annotations

import ast
import multiprocessing
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.cli import main
from zoo.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]
#: Pages that are made when the site is built.
MADE = ('docs/repository/', 'docs/_build/')
DOCS = [
    name
    for name in sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / 'docs').rglob('*.md'))
    if not name.startswith(MADE)
]
PAGES = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'examples/distributed/README.md', *DOCS]
EXAMPLES = sorted(ROOT.glob('examples/**/*.py'))
TEXTS = PAGES + [str(path.relative_to(ROOT)) for path in EXAMPLES]
SOURCES = [path.read_text(encoding='utf-8') for part in ('zoo', 'tests') for path in (ROOT / part).rglob('*.py')]

#: What makes those examples short that train in a loop of their own.
ARGUMENTS = {
    'your_own_ppo.py': ['256'],
    'your_own_reinforce.py': ['256'],
    'self_play.py': ['1000'],
    'distributed/toy_engine.py': ['2', '-c', 'print("a rank")'],
}

#: Makes programs short; and no XLA, which takes seconds to compile each agent's update.
SHORTER = """
from zoo.algorithms.base import Algorithm, updating
from zoo.common.maths import optimizers
updating.prefers_xla = optimizers.prefers_xla = lambda variables: False
learn = Algorithm.learn
def short(self, env, mode='train', **params):
    if mode == 'train':
        params |= {end: min(params[end], 300) for end in ('train_steps', 'train_updates') if end in params}
        params |= {name: least for name, least in (('horizon', 50), ('epochs', 1)) if name in params}
    else:
        params['test_episodes'] = min(params.get('test_episodes', 10), 2)
    return learn(self, env, mode, **params)
Algorithm.learn = short
"""

#: Leaves the interrupted run that the page about training resumes.
INTERRUPTED = """
from zoo import algorithms, build_env, call_default_params
env = build_env('CartPole-v1', 'classic_control')
alg_params, learn_params = call_default_params(env, 'classic_control', 'PPO')
def interrupt(training):
    if training.steps >= 150:
        raise TimeoutError
try:
    few = {'log_every': 50, 'checkpoint_every': 50}
    algorithms.PPO(**alg_params).learn(env, run_dir='runs/my_run', callbacks=[interrupt], **learn_params | few)
except TimeoutError:
    pass
"""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding='utf-8')


def blocks(page: str) -> list[str]:
    """The Python of a page, block by block."""
    return re.findall(r'^```python\n(.*?)^```', text_of(page), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize('page', PAGES)
def test_links_lead_somewhere(page):
    without_code = re.sub(r'^(`{3,}).*?^\1', '', text_of(page), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r'\]\(([^)#\s]+)[^)]*\)', without_code)
    broken = [link for link in links if '://' not in link and not ((ROOT / page).parent / link).exists()]
    assert broken == []


#: Pages that name files and constants of other libraries.
OF_OTHERS = ('docs/moving/cleanrl.md', 'docs/moving/index.md', 'docs/moving/rlzoo.md')


@pytest.mark.parametrize('page', [page for page in TEXTS if page not in OF_OTHERS])
def test_files_that_are_named_exist(page):
    named = re.findall(r'[\w./-]+\.(?:py|md|toml)\b', re.sub(r'\]\([^)]*\)|https?://\S+', '', text_of(page)))
    folders = ('zoo', 'tests', 'docs', 'examples', 'benchmarks')
    there = [str(path) for folder in folders for path in (ROOT / folder).rglob('*')] + [str(p) for p in ROOT.iterdir()]
    of_the_reader = ('grid.py', 'my.py', 'my_module.py', 'program.py', 'train.py')
    missing = [
        name
        for name in named
        if 'NAME' not in name and name not in of_the_reader and not any(path.endswith(f'/{name}') for path in there)
    ]
    assert missing == [], f'{missing} of {named}'


@pytest.mark.parametrize('page', ['CONTRIBUTING.md', *(page for page in DOCS if page not in OF_OTHERS)])
def test_constants_that_are_named_exist(page):
    constants = set(re.findall(r'`(_?[A-Z][A-Z_]{3,})`', text_of(page)))
    assert {name for name in constants if not any(name in source for source in SOURCES)} == set()


#: Forks processes that have TensorFlow already, which takes seconds to import, and has not been used.
FORKS = multiprocessing.get_context('forkserver')
FORKS.set_forkserver_preload(['zoo.algorithms.base.algorithm', 'matplotlib.pyplot'])


def become(folder: Path, arguments: list[str]) -> None:
    """Be the program in a folder, in a process of its own."""
    for name, descriptor in (('stdout', 1), ('stderr', 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(folder)
    os.environ.pop('ZOO_RUNS', None)
    os.environ['PYTHONPATH'] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])
    sys.path.insert(0, str(folder))
    sys.argv = ['program.py', *arguments]
    runpy.run_path('program.py', run_name='__main__')


def run(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run a program, shortened, in a folder."""
    (folder / 'program.py').write_text(program, encoding='utf-8')
    process = FORKS.Process(target=become, args=(folder, list(arguments)))
    process.start()
    process.join(600)
    if process.is_alive():
        process.kill()
        pytest.fail(f'{program} had not ended after 600 s')
    output, errors = ((folder / name).read_text(encoding='utf-8') for name in ('stdout', 'stderr'))
    return subprocess.CompletedProcess('program.py', process.exitcode, output, errors)


def run_alone(program: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a program, as it is, in an interpreter that has imported nothing."""
    command = [sys.executable, '-c', program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_readme_runs_from_its_first_block_to_its_last(tmp_path):
    """One program, as a reader would type it."""
    program = blocks('README.md')
    assert len(program) == 4
    done = run('\n'.join([SHORTER, *program, "print('to the end')"]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith('to the end\n')


#: What a page needs before its first block.
BEFORE = {'docs/howto/save_and_resume.md': INTERRUPTED}
#: Shorter trainings have no tests between, and keep no best agent.
LONGER = ('docs/howto/evaluation.md', 'docs/howto/save_and_resume.md')
#: A page of several programs has a test of its own; of the others these run in plain ``pytest`` too.
OWN_TEST = ('docs/howto/export.md',)
#: Packages without which a page's programs do not run.
NEEDS = {'docs/howto/jax_environments.md': ('jax',)}
QUICK = ('docs/start/first_agent.md', 'docs/howto/replay.md')


@pytest.mark.full(but=QUICK)
@pytest.mark.parametrize('page', [page for page in DOCS if blocks(page) and page not in OWN_TEST])
def test_a_page_runs(page, tmp_path):
    """All blocks of a page, in order, in one process; without what draws pixels, which not every machine can."""
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    program = [block for block in blocks(page) if 'pixels' not in block]
    shorter = SHORTER.replace(', 300)', ', 3000)') if page in LONGER else SHORTER
    done = run('\n'.join([shorter, BEFORE.get(page, ''), *program]), tmp_path)
    assert done.returncode == 0, done.stderr


def commands(page: str) -> list[list[str]]:
    """The ``zoo`` commands in the shell blocks of a page, as words."""
    found = []
    for block in re.findall(r'^```sh\n(.*?)^```', text_of(page), re.DOTALL | re.MULTILINE):
        for line in block.replace('\\\n', ' ').splitlines():
            words = shlex.split(line, comments=True)
            while 'zoo' in words:
                words = words[words.index('zoo') + 1 :]
                end = next((i for i, word in enumerate(words) if word in ('|', '&&', ';', '>', '&')), len(words))
                found.append(words[:end])
    return found


@pytest.mark.parametrize('page', [page for page in PAGES if page != 'CHANGELOG.md' and commands(page)])
def test_a_command_that_a_page_shows_is_one(page, monkeypatch, capsys):
    """The parser of the command takes it; what it would do is left to the tests of the commands."""
    for module in COMMANDS:
        monkeypatch.setattr(module, 'run', lambda args: 0)
    for words in commands(page):
        assert main(words) == 0, f'zoo {shlex.join(words)}: {capsys.readouterr().err}'


@pytest.mark.full
def test_an_exported_agent_acts_in_programs_without_zoo(tmp_path):
    """The page's first program exports it, and each of the others is a whole program by itself."""
    exporting, *programs = blocks('docs/howto/export.md')
    assert len(programs) == 4
    batch = re.search(r'np.array\((\[\[.*\]\])', programs[0]).group(1)
    asked = f'import numpy as np\nprint(agent.predict(np.array({batch}, np.float32)))'
    done = run('\n'.join([SHORTER, exporting, asked]), tmp_path)
    assert done.returncode == 0, done.stderr
    expected = done.stdout.splitlines()[-1]
    for program in programs:
        alone = "import sys\nassert not {'zoo', 'gymnasium'} & sys.modules.keys()"
        done = run_alone('\n'.join([program, alone]), tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == (expected if batch in program else expected.strip('[]').split()[0])


@pytest.mark.full(but='your_own_ppo.py')
@pytest.mark.parametrize(
    'example', [str(path.relative_to(ROOT / 'examples')) for path in EXAMPLES if path.name != 'four_lines.py']
)
def test_an_example_runs(example, tmp_path):
    """All but the one that continuous integration runs in full."""
    future, _, rest = text_of(f'examples/{example}').partition('from __future__ import annotations\n')
    done = run(f'{future}from __future__ import annotations\n{SHORTER}{rest}', tmp_path, *ARGUMENTS.get(example, []))
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.full
def test_the_distributed_example_says_that_a_training_has_ended(tmp_path):
    command = [sys.executable, ROOT / 'examples/distributed/train.py', '--actors', '1', '--steps', '400']
    command += ['--run-dir', 'mine']
    begun, again = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600) for _ in range(2)
    )
    assert begun.returncode == 0 and 'mean return of 10 episodes' in begun.stdout, begun.stderr
    assert again.returncode == 0, again.stderr
    assert re.fullmatch(r'The training in mine has ended, at step \d+\.\n', again.stdout)


def ranks_of(arguments: list[str]) -> int:
    """How many ranks the roles are that are asked for on the command line of examples/distributed/train.py."""
    source = text_of('examples/distributed/train.py')
    defaults = re.search(r"for role, count in (\{'learners'.*?\}).items", source).group(1)
    roles = ast.literal_eval(defaults)
    given = {name.removeprefix('--'): value for name, value in zip(arguments, arguments[1:], strict=False)}
    return sum(int(given.get(role, count)) for role, count in roles.items())


def test_the_commands_of_launchers_start_as_many_ranks_as_there_are_roles():
    commands = re.findall(r'(?:-np?) (\d+) .*?train.py([^`|#\n]*)', text_of('examples/distributed/README.md'))
    assert len(commands) >= 7
    for ranks, arguments in commands:
        assert ranks_of(arguments.split()) == int(ranks), arguments


def test_the_job_of_slurm(tmp_path):
    """Its tasks are its roles; and, run with stand-ins, it saves and is queued again when its time is almost over."""
    source = text_of('examples/distributed/train.slurm')
    directives = dict(re.findall(r'^#SBATCH --([\w-]+)=(\S+)', source, re.MULTILINE))
    (command,) = re.findall(r'train\.py \\\n(.*) &', source)
    assert ranks_of(command.split()) == int(directives['ntasks'])
    assert int(directives['ntasks']) % int(directives['nodes']) == 0
    assert directives['signal'].startswith('B:USR1@')
    folder = tmp_path / '.venv' / 'bin'
    folder.mkdir(parents=True)
    (folder / 'activate').write_text(f'PATH={folder}:$PATH')
    ends = 'trap "echo saved; exit 1" USR1; sleep 0.5; kill -USR1 $PPID; while :; do sleep 0.1; done'
    for name, program in {'mpirun': f'echo mpirun "$@"; {ends}', 'scontrol': 'echo scontrol "$@"'}.items():
        (folder / name).write_text(f'#!/bin/bash\n{program}\n')
        (folder / name).chmod(0o755)
    job = ROOT / 'examples' / 'distributed' / 'train.slurm'
    variables = os.environ | {'SLURM_NTASKS': directives['ntasks'], 'SLURM_JOB_ID': '17'}
    done = subprocess.run(['bash', str(job)], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    begun, *rest = done.stdout.splitlines()
    assert begun.startswith('mpirun -n 32 python examples/distributed/train.py --alg')
    assert rest == ['saved', 'scontrol requeue 17']


def test_the_job_of_kubernetes():
    """By the fields of the MPI Operator's v2beta1: its ranks are its roles, and each has a slot of a worker."""
    job = yaml.safe_load(text_of('examples/distributed/mpijob.yaml'))
    assert (job['apiVersion'], job['kind']) == ('kubeflow.org/v2beta1', 'MPIJob')
    spec = job['spec']
    assert spec.keys() <= {'slotsPerWorker', 'runPolicy', 'mpiReplicaSpecs', 'sshAuthMountPath', 'mpiImplementation'}
    launcher, workers = (spec['mpiReplicaSpecs'][name] for name in ('Launcher', 'Worker'))
    (container,) = launcher['template']['spec']['containers']
    arguments = container['args']
    assert container['command'] == ['mpirun'] and all(isinstance(argument, str) for argument in arguments)
    ranks = int(arguments[arguments.index('-n') + 1])
    assert ranks_of(arguments) == ranks == workers['replicas'] * spec['slotsPerWorker']
    (worker,) = workers['template']['spec']['containers']
    assert worker['resources']['limits']['cpu'] == str(spec['slotsPerWorker'])
    claims = {volume['name'] for volume in workers['template']['spec']['volumes']}
    assert {mount['name'] for mount in worker['volumeMounts']} == claims
