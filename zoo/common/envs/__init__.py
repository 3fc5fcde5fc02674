"""Environments: ``build`` makes them, ``about`` tells what zoo knows of one, ``names`` lists them, ``check`` tests one.

``kinds`` has a file or folder for each type, ``wrappers`` what is put around an environment, ``vector`` copies that step
together, ``goals`` the rewards for any goal, ``answers`` what ``reset`` and ``step`` returned.
"""
