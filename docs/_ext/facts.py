"""Directives that write what the code and the results of the benchmarks say about an algorithm.

    ```{facts} TD3
    ```

``facts`` is what it acts in, its networks and how it learns; ``parameters`` the tables of ``zoo.describe``;
``defaults`` where its default hyper-parameters come from, and what they are; ``departures`` how it differs from the
paper; ``scores`` and ``speed`` its rows in ``benchmarks/results``; ``algorithms`` is the table of all algorithms,
without an argument.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from default_settings import notes_of, settings_of
from docutils import nodes
from repository import ROOT
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# In front: MuJoCo Playground installs a package `learning`, too.
sys.path[:0] = [str(ROOT / 'benchmarks' / part) for part in ('', 'scores', 'speed')]

RESULTS = ROOT / 'benchmarks' / 'results'
CURVES = '/repository/benchmarks/results/curves'

#: The title of a column, and where its scores are from.
PUBLISHED = 'published'
PUBLISHED_AT = 'https://github.com/DLR-RM/rl-baselines3-zoo/blob/22e3ff2/benchmark.md'

#: The words for the loops of zoo/common/training/loops.py.
LOOPS = {
    'on_policy': 'rollouts of the current policy',
    'off_policy': 'a replay buffer',
    'streamed': 'rollouts of actors that nobody waits for',
    'asynchronous': 'gradients that actors compute',
    'offline_to_online': 'recorded episodes, and from there a replay buffer',
    'offline': 'recorded episodes',
    'dagger': 'its own steps, labeled by an expert',
    'evolution': 'whole episodes of perturbed policies',
}

#: All algorithms in the order of the table, and of the list of pages in docs/algorithms/index.md.
FAMILIES = {
    'On policy': ('VPG', 'AC', 'A2C', 'PPO', 'TRPO', 'DPPO', 'A3C', 'IMPALA'),
    'Value-based': ('DQN', 'C51', 'QRDQN', 'Rainbow', 'ApexDQN', 'R2D2', 'PQN'),
    'Continuous control from replay': ('DDPG', 'TD3', 'SAC', 'TQC', 'CrossQ', 'ApexDDPG', 'OffPAC'),
    'From data': ('TD3BC', 'IQL', 'CQL', 'AWAC', 'FQL'),
    'Imitation': ('BC', 'MARWIL', 'DAgger', 'GAIL', 'GAILTRPO'),
    'Without gradients': ('ES', 'ARS'),
}


def table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ('---',) * len(columns), *rows]
    cells = [[str(cell).replace('\n', ' ').replace('|', '\\|') for cell in line] for line in lines]
    return '\n'.join(f'| {" | ".join(line)} |' for line in cells)


@cache
def find(name: str) -> Any:
    """Return the class of an algorithm."""
    from zoo import algorithms

    return getattr(algorithms, name)


def results_of(name: str) -> dict[str, Any]:
    """Return what a benchmark has written."""
    return json.loads((RESULTS / f'{name}.json').read_text(encoding='utf-8'))


def code(text: Any) -> str:
    """Return a text in the type of code, or nothing."""
    return f'`{text}`' if str(text) else ''


def module_of(name: str) -> str:
    """Return the docstring of an algorithm's file."""
    return inspect.getdoc(sys.modules[find(name).__module__]) or ''


def spaces_of(cls: Any) -> str:
    """Return the kinds of action spaces that an algorithm acts in."""
    kinds = cls.acts_in or ()
    return 'every space' if len(kinds) in (0, 6) else ', '.join(f'`{kind}`' for kind in kinds)


def facts(name: str) -> str:
    from zoo.common.training import loops

    cls = find(name)
    file = inspect.getfile(cls)[len(str(ROOT)) + 1 :]
    roles, processes = cls.declared_for_learn()['roles'].default, 'one; more with `roles`'
    if cls.loop.alone or cls.loop.needs_data:
        processes = 'one'
    rows: list[tuple[Any, ...]] = [
        ('Acts in', spaces_of(cls)),
        ('Learns from', next(words for name, words in LOOPS.items() if getattr(loops, name) is cls.loop)),
        ('Recurrent networks', '[yes](/howto/recurrent.md)' if cls.recurrent else 'no'),
        (
            'Processes',
            f'`roles={roles}`; `roles=None` is one' if roles else processes,
        ),
        ('Entries of `net_list`', ', '.join(f'`{entry}`' for entry in cls.network_names)),
        ('Entries of `optimizers_list`', ', '.join(f'`{entry}`' for entry in cls.optimizer_names)),
        ('Metrics', ', '.join(f'`loss/{entry}`' for entry in cls.metric_names)),
        ('File', f'[{file}](source:{file}), {len((ROOT / file).read_text().splitlines())} lines'),
    ]
    return table(('', ''), rows)


def parameters(name: str) -> str:
    from zoo.algorithms.base.learning import Settings

    cls = find(name)
    usual = vars(Settings)
    own, shared = [], []
    for key, param in cls.declared_for_learn().items():
        is_shared = key in usual and usual[key] == param.default and key != 'train_steps'
        (shared if is_shared else own).append(param)
    summary = 'Parameters of <code>learn</code> that all algorithms share'
    notes = [
        'The tables show the defaults of the class.',
        '[An environment has other defaults](../howto/training.md#defaults).',
    ]
    if 'optimizers_list' in cls.declared():
        notes.append('`zoo.train` also takes `learning_rate`, for every optimizer.')
        notes.append("In the four lines it is `alg_params['optimizers_list'][0]['learning_rate']`.")
    return '\n\n'.join(
        (
            ' '.join(notes),
            f'**`alg_params`: the algorithm**\n\n{parameter_table(cls.declared().values())}',
            f'**`learn_params`: how it trains**\n\n{parameter_table(own)}',
            f'<details><summary>{summary}</summary>\n\n{parameter_table(shared)}\n\n</details>',
        )
    )


def parameter_table(params: Iterable[Any]) -> str:
    """Return a table of parameters."""
    rows = [(code(p.name), code(p.default_text), p.type_name, p.meaning) for p in params]
    return table(('parameter', 'default', 'values', 'meaning'), rows)


def defaults(name: str) -> str:
    module = importlib.import_module(f'zoo.default_params.{name.lower()}')
    file = f'zoo/default_params/{name.lower()}.py'
    text = inspect.cleandoc(module.__doc__ or '')
    # The first words say whose defaults these are, which the page has said.
    text = re.sub(r"^[\w -]+'s? defaults(?:\.\n\n|: )", '', text)
    text = text[:1].upper() + text[1:]
    notes = notes_of((ROOT / file).read_text(encoding='utf-8'))
    unused = () if find(name).recurrent else ('recurrent',)
    common = {key: value for key, value in module.COMMON.items() if key not in unused}
    levels = [('every environment', common, notes.get('COMMON', ''))]
    for block, word in (('TYPES', 'type '), ('TUNED', '')):
        found = getattr(module, block)
        for key, level in found.items():
            alike = [other for other in found if found[other] == level]
            if key == alike[0]:
                told = ' '.join(filter(None, (notes.get(f'{block} {other}', '') for other in alike)))
                levels.append((word + ', '.join(map(code, alike)), level, told))
    has_notes = any(note for *_, note in levels)
    rows = [(label, settings_of(level), *([markdown(note)] if has_notes else [])) for label, level, note in levels]
    columns = ('for', 'settings', *(['notes'] if has_notes else []))
    told = 'Of two rows that fit, the lower one counts.'
    if 'COMMON' in text or 'TUNED' in text:
        told = f'`COMMON` is the first row; `TUNED` are the rows of single environments. {told}'
    if any('rollout_size' in level for _, level, _ in levels):
        told += ' `rollout_size` is `horizon` times the number of copies.'
    return f'{markdown(text)}\n\n{table(columns, rows)}\n\n{told} The file: [{file}](source:{file}).'


def markdown(text: str) -> str:
    """Return the Markdown of a docstring: its code and its roles in one pair of backticks."""
    text = re.sub(r':\w+:`[~.]*([^`<]*?)`', lambda found: f'`{found[1]}`', text)
    return re.sub(r'``([^`]+)``', r'`\1`', text)


def departures(name: str) -> str:
    paragraphs = module_of(name).split('\n\n')
    first = next((i for i, text in enumerate(paragraphs) if text.startswith('Departures')), None)
    if first is None:
        return 'None is known.'
    before, _, text = paragraphs[first].partition(':')
    before = before.removeprefix('Departures').lstrip(', ')
    text = f'{before}: {text.strip()}' if before else text.strip()
    found = [text] if text else []
    for text in paragraphs[first + 1 :]:
        if not text.startswith('* '):
            break
        found.append(text)
    text = '\n\n'.join(found)
    return linked(markdown(text[:1].upper() + text[1:]), name)


def linked(text: str, page: str) -> str:
    """Return a text in which the departures of other algorithms lead to their pages."""
    from zoo import algorithms

    def link(found: re.Match[str]) -> str:
        other = found[2]
        return found[0] if other == page else f'{found[1]} [{other}](/algorithms/{other.lower()}.md)'

    return re.sub(rf'(departures of|depart as in)\s+({"|".join(algorithms.NAMES)})\b', link, text, flags=re.IGNORECASE)


def scores(name: str) -> str:
    import learning
    import stability
    from published import SOURCE

    parts = []
    kept = results_of('learning')
    rows: list[tuple[Any, ...]] = []
    for key, asked in learning.ROWS.items():
        if asked.alg == name and not asked.below and kept.get(key):
            entries = list(kept[key].values())
            means = [entry['mean'] for entry in entries]
            digits = learning.digits_of(asked)
            options = learning.options_of(asked).removeprefix(', ')
            rows.append(
                (
                    f'[`{asked.env_id}`]({CURVES}/{key}.md)',
                    options or '–',
                    f'{max(entry["train_steps"] for entry in entries):,}',
                    len(means),
                    f'{statistics.median(means):.{digits}f}',
                    f'{min(means):.{digits}f}',
                    '–' if options or asked.score != 'return' else published_beside(name, asked.env_id),
                    f'{statistics.median(entry["minutes"] for entry in entries):.1f}',
                )
            )
    if rows:
        columns = ('environment', 'settings', 'steps', 'seeds', 'median', 'worst', PUBLISHED, 'minutes a seed')
        parts.append(scores_table(columns, rows))
    kept = results_of('stability')
    rows = []
    for key, held in stability.ROWS.items():
        entries = [entry for entry in kept.get(key, {}).values() if 'mean' in entry]
        if held.alg == name and held.library == 'zoo' and entries:
            means = [entry['mean'] for entry in entries]
            switches = [f'`{switch}={value}`' for switch, value in held.changes.items()]
            switches += ['both cores busy'] if held.busy else []
            rows.append(
                (
                    f'`{held.env_id}`',
                    ', '.join(switches) or '–',
                    f'{held.steps:,}',
                    f'{held.aim:g}',
                    f'{sum(mean >= held.aim for mean in means)} of {len(means)}',
                    f'{statistics.median(means):.0f}',
                    f'{min(means):.0f}',
                    '–' if switches else published_beside(name, held.env_id),
                )
            )
    if rows:
        columns = ('environment', 'switches', 'steps', 'aim', 'reach it', 'median', 'worst', PUBLISHED)
        told = 'On seeds that [nothing was tuned on](/repository/benchmarks/results/stability.md):'
        parts.append(f'{told}\n\n{scores_table(columns, rows)}')
    if any('±' in part for part in parts):
        parts.append(
            f'Published: one agent of [{SOURCE}]({PUBLISHED_AT}), the mean and deviation of the returns of its test '
            'episodes; its steps, and its environment if that was another version.'
        )
    curves = [key for key in learning.ROWS if curve_of(key) == name and (RESULTS / f'curves/{key}-0.png').exists()]
    if curves:
        pictures = [f'[![{key}]({CURVES}/{key}-0.png)]({CURVES}/{key}.md)' for key in curves[:2]]
        parts.append('Learning curves of the first seed:\n\n' + '\n\n'.join(pictures))
    return '\n\n'.join(parts) or 'No score has been measured yet.'


def published_beside(name: str, env_id: str) -> str:
    """Return the published score with its steps and, where it was another version, its environment; or a dash."""
    from published import published

    found = published(name, env_id)
    if found is None:
        return '–'
    then = '' if found['environment'] == env_id else f', {code(found["environment"])}'
    return f'{found["mean"]:.1f} ± {found["std"]:.1f} ({found["steps"]}{then})'


def scores_table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a table of scores, with the column of published ones only if there is one."""
    place = columns.index(PUBLISHED)
    if all(row[place] == '–' for row in rows):
        columns, *rows = [row[:place] + row[place + 1 :] for row in (columns, *rows)]
    return table(columns, rows)


def curve_of(key: str) -> str | None:
    """Return whose default settings the learning curve of a row shows."""
    import learning

    asked = learning.ROWS[key]
    return asked.alg if not asked.below and not learning.options_of(asked) else None


def speed(name: str) -> str:
    word = {'QRDQN': 'QR-DQN'}.get(name, name)
    labels = {'sb3': 'Stable-Baselines3', 'contrib': 'sb3-contrib', 'sbx': 'SBX'}
    rows = []
    for entry in results_of('throughput').values():
        rates = {library: statistics.median(found) for library, found in entry['rates'].items() if found}
        if not re.match(rf'(?:collecting with )?{word}\b', entry['title']) or 'zoo' not in rates:
            continue
        pairs = [
            statistics.median(a / b for a, b in zip(entry['rates']['zoo'], entry['rates'][peer], strict=False))
            if peer in rates
            else None
            for peer in labels
        ]
        rows.append((entry['title'], f'{rates["zoo"]:,.0f}', *(f'{pair:.2f}' if pair else '–' for pair in pairs)))
    if not rows:
        return 'No speed has been measured beside a peer.'
    columns = ('work', 'steps per second', *(f'zoo / {label}' for label in labels.values()))
    note = (
        'Ratios of one alternating run on two cores; [the whole table](/repository/benchmarks/results/throughput.md).'
    )
    return table(columns, rows) + f'\n\n{note}'


#: A paper in a docstring: authors and year, the title, and its number or address.
PAPER = re.compile(
    r'([^\W\d_][^()*:;`]*? \d{4}),\s+\*([^*]+)\*\s*\((?:arXiv\s+([\d.]+)|doi\s+(\S+?)|(https?://\S+?))\)'
)


def papers_of(name: str) -> list[str]:
    """Return links to the papers that an algorithm is from, as its file says before its departures."""
    text = re.split(r'^Departures', module_of(name), maxsplit=1, flags=re.MULTILINE)[0].partition('\n\n')[2]
    links = []
    for who, title, number, doi, address in PAPER.findall(text):
        url = address or (f'https://arxiv.org/abs/{number}' if number else f'https://doi.org/{doi}')
        who, title = ' '.join(who.split()), ' '.join(title.split())
        label = f'arXiv {number}' if number else f'doi {doi}' if doi else title
        links.append(f'{who}, [{label}]({url})')
    return links


def every_algorithm(_: str = '') -> str:
    from zoo import algorithms

    missing = set(algorithms.NAMES).symmetric_difference(name for names in FAMILIES.values() for name in names)
    if missing:
        raise ValueError(f'the families of algorithms and the algorithms differ in {sorted(missing)}.')
    columns = ('name', 'what it is', 'acts in', 'papers')
    return '\n\n'.join(
        f'**{family}**\n\n{table(columns, [row_of(name) for name in names])}' for family, names in FAMILIES.items()
    )


def row_of(name: str) -> tuple[str, ...]:
    """Return the row of an algorithm in the table of all."""
    summary = module_of(name).partition('\n')[0].partition(': ')[2].rstrip('.')
    link = f'[{name}](/algorithms/{name.lower()}.md)'
    return link, markdown(summary), spaces_of(find(name)), '; '.join(papers_of(name))


DIRECTIVES: dict[str, Callable[[str], str]] = {
    'facts': facts,
    'parameters': parameters,
    'defaults': defaults,
    'departures': departures,
    'scores': scores,
    'speed': speed,
    'algorithms': every_algorithm,
}


class Generated(SphinxDirective):
    """One of :data:`DIRECTIVES`; its argument is the name of an algorithm."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = DIRECTIVES[self.name](self.arguments[0] if self.arguments else '')
        known = '*' if not self.arguments else self.arguments[0].lower()
        for pattern in (f'zoo/*/{known}.py', 'benchmarks/results/*.json', 'benchmarks/published.py'):
            for file in ROOT.glob(pattern):
                self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    for name in DIRECTIVES:
        app.add_directive(name, Generated)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
