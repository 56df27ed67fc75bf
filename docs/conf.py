"""How `docs/` becomes pages: `make docs`, strictly, and without a network."""

import re
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "valuelens"
copyright = "the valuelens authors, MIT licence"
version = release = installed("valuelens")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "public", "verbs"]
html_theme = "furo"
html_title = "valuelens"
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"code-font-size": "75%"},
    "dark_css_variables": {"code-font-size": "75%"},
}
html_show_sphinx = False
exclude_patterns = ["_ext", "_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

nitpicky = True
# types of other libraries, and private ones, stand in signatures as words; any other broken link is an error
nitpick_ignore_regex = [("py:.*", r"(?!valuelens\.).*"), ("py:class", r"valuelens\..*\._\w+\.\w+")]

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True
napoleon_attr_annotations = False
napoleon_custom_sections = ["Source"]


def setup(app):  # noqa: D103
    app.connect("source-read", _links_as_here)


def _links_as_here(app, docname, source):
    """On disk the benchmark pages lie beside `docs/`; here they are pages of it, by a link from `docs/benchmarks`."""
    source[0] = re.sub(
        r"\[([^\]]+)\]\((?:\.\./)+benchmarks/(\w+)\.md\)", r"{doc}`\1 </benchmarks/\2>`", source[0]
    )
