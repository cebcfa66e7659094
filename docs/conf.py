"""How Sphinx builds these pages into a static site: `tox run -e site`."""

project = "stagebench"
author = "the stagebench authors"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "stagebench"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
exclude_patterns = ["_build"]
