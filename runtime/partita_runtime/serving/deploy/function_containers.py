"""Containers beside frontends that run functions of other images: their names, and where frontends reach them."""

from typing import Final

from partita_api.digests import digest

VARIABLE: Final = "PARTITA_FUNCTIONS"
"""The environment variable of frontends with the directory of the containers' sockets."""
PREFIX: Final = "functions-"
"""Begins the names of the containers."""


def function_container(image: str) -> str:
    """The name of the container of an image."""
    return f"{PREFIX}{digest(image, 8)}"


def function_socket(directory: str, image: str) -> str:
    """Where the container of an image listens."""
    return f"{directory}/{function_container(image)}.sock"
