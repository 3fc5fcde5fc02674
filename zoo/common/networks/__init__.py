"""Networks: from an entry of ``net_list`` to a function of observations.

``build.py`` is the entrance. ``spec.py`` checks specs; ``torsos.py`` and ``heads.py`` assemble them from ``layers/``.
``users.py`` adapts networks of the user's own, ``recurrent.py`` has recurrence, ``policy.py`` adds a distribution, and
``copies.py`` makes targets and twins.
"""
