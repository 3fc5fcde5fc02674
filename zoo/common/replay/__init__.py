"""Replay: the ring of transitions, how batches are drawn from it, priorities, sequences, hindsight.

Others use :class:`zoo.common.replay.replay.Replay` and :class:`zoo.common.replay.hindsight.Hindsight`.
"""
