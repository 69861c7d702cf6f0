"""What runs CPU functions: in processes beside the frontend, and in containers of other images.

It is copied into such containers (`delivery`), so it needs only the standard library and numpy. May import `functions`.
"""
