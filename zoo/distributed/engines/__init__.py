"""Engines: each one moves bytes between the ranks of a cluster in its own way.

``base`` has the interface and its errors. ``local`` connects processes of one machine. ``mpi`` and ``kungfu`` connect
ranks that ``mpirun`` or ``kungfu-run`` started; both build on ``messages``.
"""
