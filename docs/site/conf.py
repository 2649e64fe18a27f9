"""Settings of Sphinx; build.py says how the site is made."""

from pathlib import Path

from rllib import __version__

project = "rllib"
version = release = __version__
html_title = f"rllib {version}"
extensions = ["myst_parser", "sphinx_copybutton"]
# Prompts, and what a program prints below them, are not copied.
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
myst_heading_anchors = 3
nitpicky = True
html_theme = "furo"
html_copy_source = html_show_copyright = html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_theme_options = {"navigation_with_keys": True}
