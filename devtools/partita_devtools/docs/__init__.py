"""The documentation's site: pages generated from the code, and links that work on the site as in the repository.

`mkdocs.yml` calls `hooks.py`. May import no other folder.
"""
