"""Training: the contract of an agent, loops and their experience, checkpoints, logs, tests, recordings.

Algorithms use :mod:`zoo.common.training.loops`; callbacks are given :class:`zoo.common.training.training.Training`.
"""
