"""The commands of ``zoo``, one module each; the module's name is the command's.

A module has ``HELP``, its line in ``zoo --help``; ``add_arguments(parser)``; and ``run(args)``, which returns the exit
status or None for 0. A new command is such a module and its name here.
"""

from importlib import import_module

_NAMES = (
    'train test estimate enjoy film record list describe show plot check compare tune export push dashboard completion'
)

#: In the order in which ``zoo --help`` lists them.
COMMANDS = tuple(import_module(f'{__name__}.{name}') for name in _NAMES.split())
