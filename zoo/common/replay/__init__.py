"""Replay: the ring of transitions, priorities, sequences, hindsight."""
