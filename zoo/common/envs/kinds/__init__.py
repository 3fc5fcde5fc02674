"""One file or folder for each type of environment, with ``find`` and ``ids``."""
