"""How plans look in HTML: the diagram, its SVG template, and the colours of light and dark pages.

The report of the demonstration draws with it, too. May import no other folder.
"""
