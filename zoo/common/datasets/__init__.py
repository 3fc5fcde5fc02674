"""Data sets: recorded episodes, written and read."""
