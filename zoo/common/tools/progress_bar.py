"""tqdm's progress bar, with as many numbers as fit into the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tqdm.auto import tqdm
from tqdm.utils import disp_len

# What a narrow terminal leaves out, in this order. The steps and the first metric, the return, always stay.
_LEFT_OUT = ('metric 3', 'metric 2', 'bar', 'metric 1', 'long name', 'rate', 'left', 'name')
_SHORT_NAME = 12


class Bar(tqdm):
    """A bar on one line: ``PPO LunarLander-v3:  53% 3.17k/6.00k, 732 steps/s, 00:03 left, return=-198.4``.

    In a notebook it is tqdm's own bar, which has the width of the page.
    """

    _metrics: Sequence[str] = ()

    def show(self, metrics: Sequence[str]) -> None:
        """Set the metrics for the next drawing, the most important one first: ``['return=-198.4', …]``."""
        self._metrics = metrics
        self.set_postfix_str(', '.join(metrics), refresh=False)  # for a notebook

    def __str__(self) -> str:
        """Give the fullest line that fits into the terminal."""
        state = self.format_dict
        width = state['ncols'] or 0
        if width < 1:  # a terminal without a size, as in a container
            width = shutil.get_terminal_size().columns - 1
        state['ncols'] = width
        for count in range(len(_LEFT_OUT) + 1):
            state |= self._layout(_LEFT_OUT[:count], over=state['n'] >= state['total'])
            if disp_len(self.format_meter(**state | {'ncols': None})) <= width:
                break
        return self.format_meter(**state)

    def _layout(self, without: Sequence[str], over: bool) -> dict[str, str]:
        """Give the arguments of ``format_meter`` for a line without some of its pieces."""
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
