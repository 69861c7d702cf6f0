"""The baselines of the ocr benchmark: the whole pipeline of the package rapidocr, in processes and behind Ray Serve."""

import asyncio
import io
import json
import threading
from typing import Any

import numpy as np
from PIL import Image
from rapidocr import RapidOCR
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

NAME = "pipeline"


def engine(threads: int | None) -> RapidOCR:
    """The package's pipeline; None: with as many threads as it takes by itself."""
    params: dict[str, Any] = {"Global.log_level": "critical"}
    if threads is not None:
        params["EngineConfig.onnxruntime.intra_op_num_threads"] = threads
        params["EngineConfig.onnxruntime.inter_op_num_threads"] = threads
    return RapidOCR(params=params)


def read(pipeline: RapidOCR, picture: bytes) -> list[str]:
    """The lines of text of an encoded picture."""
    return list(pipeline(picture).txts or ())


_OF_THIS_PROCESS: list[RapidOCR] = []


def start(threads: int | None) -> None:
    """Make the pipeline of this process, and let it read a picture, for its first is slower."""
    _OF_THIS_PROCESS[:] = [engine(threads)]
    file = io.BytesIO()
    Image.fromarray(np.full((64, 64, 3), 255, np.uint8)).save(file, "PNG")
    read_here(file.getvalue())


def read_here(picture: bytes) -> list[str]:
    """The lines that this process reads."""
    return read(_OF_THIS_PROCESS[0], picture)


def pipeline_application(replicas: int) -> dict[str, Any]:
    """Ray Serve with the whole pipeline in each replica, on one thread: no process waits for another."""
    return {
        "name": NAME,
        "route_prefix": f"/{NAME}",
        "import_path": "benchmarks.serving.serving_cases.ocr_pipeline:application",
        "args": {},
        "deployments": [
            {
                "name": "Pipeline",
                "num_replicas": replicas,
                "max_ongoing_requests": 2,
                "logging_config": {"enable_access_log": False},
                "ray_actor_options": {"num_cpus": 0.1},
            }
        ],
    }


def application(_args: dict[str, str]) -> serve.Application:
    """Built by Serve."""
    return serve.deployment(Pipeline).bind()


class Pipeline:
    """Answers encoded pictures with their lines of text, as JSON."""

    def __init__(self) -> None:
        self._engine = engine(threads=1)
        self._one = threading.Lock()

    async def __call__(self, request: Request) -> Response:
        """The body is the picture."""
        return JSONResponse(await asyncio.to_thread(self._read, await request.body()))

    def _read(self, picture: bytes) -> list[str]:
        with self._one:
            return read(self._engine, picture)


def lines_of(content: bytes) -> list[str]:
    """The lines in an answer of `Pipeline`."""
    lines: list[str] = json.loads(content)
    return lines
