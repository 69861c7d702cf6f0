"""Bodies of requests to the API server and of its answers, whatever text and depth objects have.

May import no other folder.
"""
