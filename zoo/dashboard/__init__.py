"""The dashboard: choose, edit, train, watch and compare agents in a notebook.

>>> from zoo.dashboard import Dashboard
>>> Dashboard()

It needs ipywidgets, which ``zoo-rl[notebook]`` brings with JupyterLab.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.dashboard.page import Dashboard as Dashboard

__all__ = ['Dashboard']


if not TYPE_CHECKING:  # where it is seen, any name seems to exist

    def __getattr__(name: str) -> Any:
        """Import the page when it is asked for: the process that trains for it needs no widgets."""
        if name != 'Dashboard':
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        from zoo.common.tools.errors import MissingPackage

        try:
            import ipywidgets  # noqa: F401
        except ImportError as error:
            told = "the dashboard needs Jupyter's widgets: pip install 'zoo-rl[notebook]'"
            raise MissingPackage(f'{told} ({error}).') from error
        from zoo.dashboard.page import Dashboard

        return Dashboard
