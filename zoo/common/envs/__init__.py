"""Environments: ``build`` makes them, ``about`` tells what zoo knows of one, ``names`` lists them, ``check`` tests one.

``kinds`` has a file for each type, ``wrappers`` what stands around an environment, ``vector`` copies that step
together, ``goals`` the rewards for any goal, ``answers`` checks what ``reset`` and ``step`` returned.
"""
