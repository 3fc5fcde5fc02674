"""What the dashboard costs: how soon a cell answers while it trains, and its steps per second beside a script's.

    python benchmarks/speed/dashboard.py         # some five minutes; prints two tables
    python benchmarks/speed/dashboard.py --steps 30000 --rounds 1 --only PPO

A Jupyter kernel runs the dashboard; meanwhile cells are sent to it, as the page of a notebook sends them. The
dashboard and the script train in processes with the same settings, in turn, round by round. Steps per second are those
of the whole run, by the clock of ``learn``. The dashboard reads the run and draws its curves meanwhile. There is no
browser, which would draw on the processor of whoever looks.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where common.py is
from common import answer_of, environment, parser_of

#: By algorithm: environment and steps, some twenty seconds each.
CASES = {'PPO': ('CartPole-v1', 150_000), 'DQN': ('CartPole-v1', 60_000), 'SAC': ('Pendulum-v1', 5_000)}

SCRIPT = """
import sys, json, zoo
alg, env_id, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
_, result = zoo.train(alg, env_id, train_steps=steps)
print(json.dumps([result.steps, result.wall_time]))
"""

PAGE = """
from zoo.dashboard import Dashboard
page = Dashboard(env_id={env_id!r}, alg={alg!r})
page.form.row('train_steps').input.value = str({steps})
page.start()
print(page.message.said)
"""


class Notebook:
    """A kernel, and cells that are sent to it."""

    def __init__(self, folder: Path) -> None:
        self.manager, self.client = start_new_kernel(env=environment(ZOO_RUNS=str(folder)), cwd=str(folder))

    def cell(self, code: str) -> tuple[str, float]:
        """Return what a cell prints, and the seconds until it has answered."""
        printed: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            if message['msg_type'] == 'stream' and message['content']['name'] == 'stdout':
                printed.append(message['content']['text'])
            elif message['msg_type'] == 'error':
                raise RuntimeError('\n'.join(message['content']['traceback']))

        began = time.perf_counter()
        self.client.execute_interactive(code, output_hook=hear, timeout=300)
        return ''.join(printed).strip(), time.perf_counter() - began

    def close(self) -> None:
        """End it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel()


def from_script(alg: str, env_id: str, steps: int, folder: Path) -> float:
    """Return the steps per second of a script."""
    command = [sys.executable, '-c', SCRIPT, alg, env_id, str(steps)]
    taken, seconds = answer_of(command, environment(ZOO_RUNS=str(folder)))
    return float(taken / seconds)


def from_dashboard(alg: str, env_id: str, steps: int, folder: Path) -> tuple[float, list[float]]:
    """Return steps per second from the dashboard and, of a second run, the seconds in which each cell answered."""
    notebook = Notebook(folder)
    answers: list[float] = []
    try:
        for measured in (False, True):
            said, _ = notebook.cell(PAGE.format(alg=alg, env_id=env_id, steps=steps))
            if said:
                raise RuntimeError(said)
            while notebook.cell('print(page.training.state)')[0] == 'starting':
                time.sleep(0.5)
            while True:
                if measured:
                    time.sleep(0.25)
                    answers.append(notebook.cell('sum(range(1000))')[1])
                else:
                    time.sleep(2.0)
                if notebook.cell('print(page.training.alive)')[0] != 'True':
                    break
            state, _ = notebook.cell('print(page.training.state, page.training.error)')
            if not state.startswith('ended'):
                raise RuntimeError(state)
            if not measured:
                taken, seconds = json.loads(notebook.cell('print(list(page.training.result))')[0])
            notebook.cell('import time\nwhile page.watch.film.filming: time.sleep(0.1)')
        return float(taken / seconds), answers
    finally:
        notebook.close()


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, help='of each run; by default as the table of cases has them')
    parser.add_argument('--only', choices=CASES, help='one algorithm')
    args = parser.parse_args()
    print('algorithm  environment    script  dashboard  ratio  a cell answers in: median   longest (of)')
    for alg, (env_id, steps) in CASES.items():
        if args.only not in (None, alg):
            continue
        steps = args.steps or steps
        scripts, pages, answers = [], [], []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as name:
                scripts.append(from_script(alg, env_id, steps, Path(name)))
                rate, found = from_dashboard(alg, env_id, steps, Path(name))
            pages.append(rate)
            answers += found
        script, page = statistics.median(scripts), statistics.median(pages)
        print(
            f'{alg:9}  {env_id:12}  {script:7,.0f}  {page:9,.0f}  {page / script:5.2f}  '
            f'{1000 * statistics.median(answers):22.0f} ms  {1000 * max(answers):5.0f} ms ({len(answers)})',
            flush=True,
        )


if __name__ == '__main__':
    main()
