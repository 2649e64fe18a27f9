"""Settings of Sphinx; build.py says how the site is made."""

from rllib import __version__

project = html_title = "rllib"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
nitpicky = True
html_theme = "furo"
html_copy_source = html_show_copyright = html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_theme_options = {"navigation_with_keys": True}
