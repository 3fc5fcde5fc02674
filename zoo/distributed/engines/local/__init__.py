"""The ``local`` engine: the ranks are processes of one machine that :mod:`zoo.distributed.jobs` starts.

``engine`` is the engine; ``channel`` has its queues, ``group`` its collectives, ``folder`` the files that all ranks of
a job share, ``bell`` the named pipe at which a rank waits.

The folder of a job is in shared memory. Queues and saved messages are files in it. A collective uses a file that every
rank of the group has mapped. A rank that waits reads from a named pipe that the other side writes to. So there is no
lock that a killed process could keep, no thread that moves messages, and a rank that is started again opens the same
files.
"""

from zoo.common.tools.errors import MissingPackage

try:
    import fcntl  # noqa: F401
    import resource  # noqa: F401
except ImportError as error:
    raise MissingPackage(
        'zoo.distributed needs named pipes and file locks of a POSIX system: use Linux, macOS or WSL.'
    ) from error
