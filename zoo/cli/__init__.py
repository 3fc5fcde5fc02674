"""The command ``zoo``: a notebook's work from a shell.

It uses the public interface of zoo alone, and imports nothing heavy before a command needs it, so that ``zoo --help``
and completion answer at once. Each command is a file in ``zoo/cli/commands``.
"""

from zoo.cli.entry import main

__all__ = ['main']
