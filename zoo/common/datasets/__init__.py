"""Datasets: recorded episodes, written and read, and filled into a replay buffer."""
