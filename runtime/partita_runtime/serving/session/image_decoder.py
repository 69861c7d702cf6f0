"""Decodes the images of requests in a few threads, which take turns between requests."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.images import image_tensor
from partita_runtime.serving.protocol.inference import InferRequest, Samples
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.body_memory import BodyMemory


class ImageDecoder:
    """The threads that decode images, each one at a time: all images together take bounded memory."""

    def __init__(self, threads: int, max_image_bytes: int, bodies: BodyMemory) -> None:
        """`bodies` also counts the encoded images that wait for a thread."""
        self._threads = ThreadPoolExecutor(threads, "images")
        self._count = threads
        self._max_image_bytes = max_image_bytes
        self._bodies = bodies

    def close(self) -> None:
        """Decode no more images."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def decode(self, request: InferRequest, interface: Interface) -> InferRequest:
        """The same request with tensors instead of images.

        Raises RequestError (400) for data that is not an image, or takes too much memory to decode, and BodyMemoryError
        if too many bytes wait already.
        """
        tensors = dict(request.inputs)
        with self._bodies.reading() as waiting:
            waiting.grew(sum(len(data) for images in request.images.values() for data in images))
            for name, images in request.images.items():
                spec = interface.inputs[name]
                decode = partial(image_tensor, spec=spec, image=interface.images[name], max_bytes=self._max_image_bytes)
                if spec.variable_dimension is None:
                    rows: Samples = np.empty((len(images), *spec.shape), NUMPY_DTYPES[spec.dtype])
                else:
                    rows = [np.empty(0)] * len(images)
                await self._decode_all(images, decode, rows)
                tensors[name] = rows
        return request._replace(inputs=tensors, images={})

    async def _decode_all(self, images: Sequence[bytes], decode: Callable[[bytes], Array], rows: Samples) -> None:
        """Decode images into `rows`. A request queues no more images at a time than there are threads."""
        remaining = iter(enumerate(images))

        async def take_turns() -> None:
            for row, data in remaining:
                rows[row] = await asyncio.get_running_loop().run_in_executor(self._threads, decode, data)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._count, len(images))):
                    group.create_task(take_turns())
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
