"""The command ``zoo``."""
