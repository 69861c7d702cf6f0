"""What the pages show, as frozen data: pure functions of the objects, the query and the time.

Templates turn it into HTML. May import `console.drawing` and `console.reading.snapshot`.
"""
