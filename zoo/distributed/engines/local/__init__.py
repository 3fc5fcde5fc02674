"""The ``local`` engine: the ranks are processes of one machine that :mod:`zoo.distributed.jobs` starts.

``engine`` is the engine; ``channel`` has its queues, ``doors`` shows which of them have something, ``group`` has its
collectives, ``folder`` the files that all ranks of a job share. They are in shared memory: queues, saved messages, and
the memory of collectives, which every rank of the group has mapped. A rank that waits reads from a named pipe (a
*bell*) that the other side writes to. So there is no lock that a killed process could keep, and no thread that moves
messages. A rank that is started again opens the same files.
"""

from zoo.common.tools.errors import MissingPackage

try:
    import fcntl  # noqa: F401
    import resource  # noqa: F401
except ImportError as error:
    raise MissingPackage(
        'zoo.distributed needs named pipes and file locks of a POSIX system: use Linux, macOS or WSL.'
    ) from error
