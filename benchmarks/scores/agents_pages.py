"""Films, learning curves and pages of the trained agents, for ``agents.py``."""

from __future__ import annotations

import io
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, header, listed, read_results, row, write_page
from published import SOURCE, published

GALLERY = ROOT / 'docs' / 'gallery'
#: Episodes of each test.
EPISODES = 100
#: The seed of a film.
FILM_SEED = 3
#: A film: seconds, frames a second, size in pixels, bytes at most.
SECONDS, FPS, SIZE, FILM_BYTES = 6, 12, (200, 150), 100_000


#: The environments over which algorithms are compared, by the actions that they need.
COMPARED = {
    'discrete': ('CartPole-v1', 'Acrobot-v1', 'MountainCar-v0', 'LunarLander-v3'),
    'continuous': ('Pendulum-v1', 'LunarLanderContinuous-v3', 'HalfCheetah-v5'),
}


def picture(name: str, ending: str) -> Path:
    """Return the file of an agent's film or curve in the gallery."""
    return GALLERY / f'{name.replace("/", "_")}{ending}'


def draw_curve(run: Any, path: Path) -> None:
    """Draw a small learning curve."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    steps, returns = run.curve
    figure, axes = pyplot.subplots(figsize=(2.5, 1.875), dpi=80, layout='constrained')
    axes.plot(steps, returns, linewidth=1.2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=''))
    axes.tick_params(labelsize=7)
    axes.xaxis.get_offset_text().set_fontsize(7)
    axes.set_xlabel('steps', fontsize=7)
    axes.set_ylabel('return', fontsize=7)
    axes.spines[['top', 'right']].set_visible(False)
    figure.savefig(path)
    pyplot.close(figure)


def draw_film(agent: Any, env: Any, path: Path) -> None:
    """Film the first seconds of an episode as a small animated WebP."""
    from PIL import Image

    from zoo.common.plots.playing import moments

    fps = float(env.metadata.get('render_fps') or 30)
    stride = max(1, round(fps / FPS))
    frames = []
    for moment in moments(agent, env, FILM_SEED, int(SECONDS * fps)):
        if moment.step % stride == 0:
            frame = Image.fromarray(moment.frame)
            frame.thumbnail(SIZE, Image.Resampling.LANCZOS)
            frames.append(frame)
    for quality in (70, 50, 30, 15, 5):
        file, options = (
            io.BytesIO(),
            {'duration': round(1000 * stride / fps), 'loop': 0, 'quality': quality, 'method': 6},
        )
        frames[0].save(file, 'WEBP', save_all=True, append_images=frames[1:], **options)
        if file.tell() <= FILM_BYTES:
            break
    else:
        raise RuntimeError(f'{path.name} has {file.tell()} bytes at the lowest quality')
    path.write_bytes(file.getvalue())


def cards(rows: Mapping[str, Any]) -> list[Any]:
    """Return the cards of all agents as they are now, in the order of the rows."""
    from zoo.agents import card
    from zoo.agents.finding import TRAINED

    found = [card.read(file.parent) for file in TRAINED.glob(f'*/*/{card.FILE}')]
    order = list(rows)
    return sorted(found, key=lambda one: (order.index(one.name) if one.name in order else len(order), one.name))


def write_pages(rows: Mapping[str, Any]) -> None:
    """Write the table of scores, the gallery, and the page of each agent."""
    from zoo.agents.finding import TRAINED

    write_page('agents', report(rows, read_results('agents')))
    found = cards(rows)
    (ROOT / 'docs' / 'gallery.md').write_text('\n'.join(gallery(found)).rstrip() + '\n', encoding='utf-8')
    for card in found:
        up = '../../../../../docs/gallery/'
        film, curve = (picture(card.name, ending) for ending in ('.webp', '.png'))
        shown = [f'{up}{file.name}' if file.exists() else None for file in (film, curve)]
        (TRAINED / card.name / 'README.md').write_text(card.markdown(*shown), encoding='utf-8')


def environments(names: list[str]) -> list[str]:
    """Return the environments of some rows, in their order."""
    return list(dict.fromkeys(name.partition('/')[2] for name in names))


def report(rows: Mapping[str, Any], results: dict[str, Any]) -> list[str]:
    """Return the lines of the table of scores."""
    lines = [
        '# Scores',
        '',
        '`python benchmarks/scores/agents.py`: `zoo.train` with default settings. The score of a seed is the mean',
        f'return of {EPISODES} episodes with the deterministic policy and the best agent of its run. "Shown" is the',
        'best seed, tested again in other episodes, with its standard error. It is the agent of '
        '[the gallery](../../docs/gallery.md).',
        f'"Published" is from {SOURCE}: one agent, with the',
        'standard deviation of its episodes, and its training steps.',
    ]
    known = [name for name in rows if results.get(name)]
    shown = {card.name: card.shown_score for card in cards(rows)}
    for env_id in environments(known):
        lines += ['', f'## `{env_id}`', '']
        lines += header('algorithm', 'steps', 'seeds', 'min', 'median', 'mean', 'shown', 'published', 'minutes a seed')
        for name in known:
            asked, found = rows[name], results[name]
            if asked.env_id != env_id:
                continue
            means = [entry['score']['mean'] for entry in found.values()]
            other = published(asked.alg, env_id)
            lines.append(
                row(
                    asked.alg + options_of(asked),
                    f'{max(entry["train_steps"] for entry in found.values()):,}',
                    len(means),
                    f'{min(means):.1f}',
                    f'**{statistics.median(means):.1f}**',
                    f'{statistics.mean(means):.1f}',
                    shown.get(name, '–'),
                    '–' if other is None else f'{other["mean"]:.1f} ± {other["std"]:.1f} ({other["steps"]})',
                    f'{statistics.median(entry["seconds"] for entry in found.values()) / 60:.1f}',
                )
            )
    for actions, env_ids in COMPARED.items():
        lines += compared(actions, env_ids, results)
    entries = (entry for found in results.values() for entry in found.values())
    return [*lines, '', *sorted({f'{entry["date"]}: {listed(entry["versions"])}' for entry in entries})]


def compared(actions: str, env_ids: tuple[str, ...], results: dict[str, Any]) -> list[str]:
    """Return the lines that compare the algorithms with scores in all of some environments, if there are two."""
    import zoo

    scores: dict[str, dict[str, list[float]]] = {}
    for name, found in results.items():
        alg, _, env_id = name.partition('/')
        if env_id in env_ids and found:
            scores.setdefault(alg, {})[env_id] = [entry['score']['mean'] for entry in found.values()]
    scores = {alg: own for alg, own in scores.items() if len(own) == len(env_ids)}
    if len(scores) < 2:
        return []
    summary = zoo.compare_scores(scores)
    summary.plot(RESULTS / f'agents_{actions}.png')
    lines = ['', f'## Over environments with {actions} actions', '']
    lines += [f'`zoo.compare_scores` of the seeds above in {", ".join(f"`{env_id}`" for env_id in env_ids)}. 0 is a']
    lines += ['random policy, 1 is the published score of PPO. IQM is the interquartile mean, with 95 % intervals.', '']
    _, _, sums, pairs = summary.tables
    for table in (sums, pairs):
        lines += [*header(*table.columns), *(row(*cells) for cells in table.rows), '']
    return [*lines, *summary.notes, '', f'![Aggregates and performance profiles](agents_{actions}.png)']


def options_of(asked: Any) -> str:
    """Return what of a row is not a default, as text that follows the algorithm's name."""
    return ''.join(f', `{name}={value}`' for name, value in asked.settings.items() if name != 'train_steps')


def gallery(found: list[Any]) -> list[str]:
    """Return the lines of the gallery."""
    lines = [
        '# Gallery',
        '',
        'Trained agents that come with zoo. [Trained agents](howto/trained_agents.md) says how to load, watch and',
        'train them further. A',
        f'score is the mean return of {EPISODES} episodes of the deterministic policy, with its standard error. Each',
        'agent is the best of the seeds in its row; their median is beside it. "One" means that one seed was trained.',
        'Published scores are from RL Baselines3 Zoo, with the standard deviation of the episodes.',
        '[All scores](../benchmarks/results/agents.md).',
    ]
    for env_id in environments([card.name for card in found]):
        lines += ['', f'## `{env_id}`', '', *header('', 'agent', 'score', 'seeds', 'published', 'learning curve')]
        for card in found:
            if card.environment != env_id:
                continue
            film, curve = picture(card.name, '.webp'), picture(card.name, '.png')
            seeds = list(card.seeds.values())
            success = card.score.get('success')
            page = f'../zoo/agents/trained/{card.name}/README.md'
            lines.append(
                row(
                    f'![An episode of {card.name}](gallery/{film.name})' if film.exists() else '',
                    f'[{card.name}]({page})<br>`zoo enjoy {card.name}`',
                    f'**{card.shown_score}**' + ('' if success is None else f'<br>{success:.0%} succeed'),
                    f'best of {len(seeds)},<br>median {statistics.median(seeds):.1f}' if seeds[1:] else 'one',
                    card.shown_published or '–',
                    f'![The learning curve of {card.name}](gallery/{curve.name})' if curve.exists() else '',
                )
            )
    return lines
