"""Settings of the documentation site: ``make -C docs html`` writes it to ``docs/_build/html``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / '_ext'), str(Path(__file__).parents[1])]

import zoo  # noqa: E402
import zoo.callbacks  # noqa: E402
import zoo.dashboard  # noqa: E402
import zoo.distributed.testing  # noqa: E402
from zoo import algorithms  # noqa: E402

# Autodoc would import them with TYPE_CHECKING set, which changes what a class has.
for _name in (*algorithms.NAMES, *zoo.__all__):
    getattr(algorithms if _name in algorithms.NAMES else zoo, _name)

project = 'zoo'
copyright = '2026, the authors of zoo'
release = version = zoo.__version__

extensions = [
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'myst_parser',
    'sphinx_copybutton',
    # In docs/_ext:
    'repository',
    'pseudocode',
    'facts',
    'choosing',
    'reference',
    'mathml',
]
exclude_patterns = ['_build', '_ext']
nitpicky = False

myst_enable_extensions = ['dollarmath', 'deflist', 'attrs_block', 'attrs_inline', 'colon_fence']
myst_heading_anchors = 3
# A link ``source:zoo/algorithms/ppo.py#L-30`` leads to a line of a source page (docs/_ext/repository.py).
myst_url_schemes = ['http', 'https', 'mailto', 'source']

autodoc_member_order = 'bysource'
autodoc_typehints = 'none'
napoleon_use_rtype = False
# A class that inherits from a private one shows the methods that users call.
autodoc_inherit_docstrings = True

html_theme = 'furo'
html_title = f'zoo {release}'
html_static_path = ['_static']
html_css_files = ['zoo.css']
html_copy_source = False
html_show_sourcelink = False
html_search_scorer = str(Path(__file__).parent / '_static' / 'scorer.js')
pygments_style = 'friendly'
pygments_dark_style = 'monokai'
copybutton_prompt_text = r'>>> |\$ '
copybutton_prompt_is_regexp = True
