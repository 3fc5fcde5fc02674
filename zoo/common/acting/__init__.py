"""Acting: behavior policies, and the forward pass that they act by.

``forward.py`` keeps a forward pass up to date with a network: a chain of NumPy layers (``chain.py``, ``layers.py``,
``recurrent_layers.py``; ``convert.py`` makes it) or a graph. The other files are behavior policies.
"""
