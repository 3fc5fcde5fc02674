"""The types of environment, a file or folder each; the other files serve several types.

A type has ``find`` and ``ids``. It has ``make_vector`` if its copies are one object, and ``COMPILED = True`` if they
are compiled together with the policy.
"""
