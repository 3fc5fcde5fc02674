"""Where the paper's Listing 1 imports ``call_default_params`` from; it lives in :mod:`zoo.default_params`."""

from zoo.default_params import call_default_params, default_nenv

__all__ = ['call_default_params', 'default_nenv']
