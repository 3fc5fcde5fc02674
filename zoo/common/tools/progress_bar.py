"""The progress bar: tqdm's, with as many figures as the terminal has room for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tqdm.auto import tqdm
from tqdm.utils import disp_len

# What is left out first where the terminal is narrow: the later metrics, the drawing, the end of a long name, what can
# be told from the rest, and the name. The steps and the first metric, the return, stay.
_LEFT_OUT = ('metric 3', 'metric 2', 'bar', 'metric 1', 'long name', 'rate', 'left', 'name')
_SHORT_NAME = 12


class Bar(tqdm):
    """``PPO LunarLander-v3:  53% 3.17k/6.00k, 732 steps/s, 00:03 left, return=-198.4``: all of it on one line.

    In a notebook it is tqdm's own, which has the width of the page.
    """

    _metrics: Sequence[str] = ()

    def show(self, metrics: Sequence[str]) -> None:
        """Have metrics beside the bar when it is drawn next, the most important one first: ``['return=-198.4', …]``."""
        self._metrics = metrics
        self.set_postfix_str(', '.join(metrics), refresh=False)  # for a notebook

    def __str__(self) -> str:
        """What is drawn in a terminal: the fullest line that fits."""
        state = self.format_dict
        state['ncols'] = width = state['ncols'] or shutil.get_terminal_size().columns - 1
        for count in range(len(_LEFT_OUT) + 1):
            state |= self._layout(_LEFT_OUT[:count], over=state['n'] >= state['total'])
            if disp_len(self.format_meter(**state | {'ncols': None})) <= width:
                break
        return self.format_meter(**state)

    def _layout(self, without: Sequence[str], over: bool) -> dict[str, str]:
        """The arguments of ``format_meter`` for a line without some of its pieces."""
        pieces = {
            'name': '{desc}: ',
            'percentage': '{percentage:3.0f}%',
            'bar': '|{bar}|',
            'steps': ' {n_fmt}/{total_fmt}',
            'rate': ', {rate_fmt}',
            'left': ', {elapsed}' if over else ', {remaining} left',
            'metrics': '{postfix}',
        }
        name = self.desc
        if 'long name' in without and len(name) > _SHORT_NAME:
            name = f'{name[: _SHORT_NAME - 3]}...'
        return {
            'prefix': name,
            'bar_format': ''.join(piece for name, piece in pieces.items() if name not in without),
            'postfix': ', '.join(text for i, text in enumerate(self._metrics) if f'metric {i}' not in without),
        }
