"""The engines: each moves bytes between the ranks of a cluster in its own way, behind :mod:`.base`."""
