"""The parts of ``build_env``: a module per kind of environment, a module per way of running copies, the wrappers."""
