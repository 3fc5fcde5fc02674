"""The types of environment, a file or folder each with ``find`` and ``ids``; the other files serve several types."""
