"""The types of environment, a file or a folder for each, with ``find`` and ``ids``.

Several types share ``pixels`` (observations that are images), ``rendering`` (MuJoCo off screen), ``envpool`` and
``old_gym``.
"""
