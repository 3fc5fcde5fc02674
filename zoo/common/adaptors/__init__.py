"""The adaptors of the paper: from observation spaces to networks, and from networks to action spaces.

``observation.py`` makes features of observations, ``action.py`` translates actions (``parts.py``: its distributions,
``masks.py``: forbidden actions). The policy adaptor is :func:`zoo.common.networks.build.build_network`.
"""
