"""Datasets: recorded episodes, written, opened in every form, and held by a replay buffer.

Others use :class:`zoo.common.datasets.dataset.Dataset`, ``opening``, ``replaying`` and ``writing``.
"""
