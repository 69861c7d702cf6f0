"""Pictures whose text the session reads, and a package beside it, so that a person can check the answers.

An example whose module `demonstration` has `shown()` shows pictures. The module has these names:

- `PACKAGE`: the package that reads them, too;
- `shown()`: the PNG file and the lines of text of each picture, by name;
- `request(png)`: the tensors of a request with the picture, by input name;
- `served_lines(answer)`: the lines of text in the session's answer;
- `package_lines(png)`: the lines that the package reads.
"""

import asyncio

from partita_devtools.demo.example import Example, demonstration
from partita_devtools.demo.result import ReadPicture
from partita_devtools.demo.traffic import SessionEndpoint
from partita_devtools.demo.verification import answer
from partita_devtools.machine.commands import Report


async def read_pictures(endpoint: SessionEndpoint, example: Example, report: Report) -> tuple[ReadPicture, ...]:
    """Let the session and the package read the pictures; empty if the example has none. Raises DemoError."""
    example_pictures = demonstration(example)
    if not hasattr(example_pictures, "shown"):
        return ()
    package = example_pictures.PACKAGE
    pictures = example_pictures.shown()
    report(f"reading {len(pictures)} pictures by the session, and by the package {package}")
    found = []
    for name, (png, written) in pictures.items():
        served = example_pictures.served_lines(await answer(endpoint, example_pictures.request(png)))
        own = await asyncio.to_thread(example_pictures.package_lines, png)
        found.append(ReadPicture(name, png, package, tuple(written), tuple(served), tuple(own)))
    return tuple(found)
