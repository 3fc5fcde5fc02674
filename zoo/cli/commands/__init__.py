"""The commands of ``zoo``, one module each; the module's name is the command's.

A module has ``HELP``, its line in ``zoo --help``; ``add_arguments(parser)``; and ``run(args)``, which returns the exit
status or None for 0. A new command is such a module and an entry in :data:`COMMANDS`.
"""

from types import ModuleType

from zoo.cli.commands import (
    check,
    compare,
    completion,
    describe,
    enjoy,
    export,
    film,
    list,
    plot,
    show,
    test,
    train,
    tune,
)

#: In the order in which ``zoo --help`` lists them.
COMMANDS: tuple[ModuleType, ...] = (
    train, test, enjoy, film, list, describe, show, plot, check, compare, tune, export, completion,
)  # fmt: skip
