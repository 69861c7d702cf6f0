"""Applications for Ray Serve on a local Ray cluster."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError

from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.cluster import RayCluster

APPLICATIONS_PATH: Final = "/api/serve/applications/"
"""Where the dashboard takes Serve's configuration, and says what runs."""

_ANSWER_SECONDS, _AGAIN_SECONDS = 120.0, 1.0


def deploy(cluster: RayCluster, config: Mapping[str, Any], *, host: str = "127.0.0.1", within_s: float = 300.0) -> None:
    """Make this Serve's configuration, on the cluster's own port.

    The first configuration also starts Serve. On a slow and busy machine Serve does not start within the 60 seconds
    that Ray gives it, and Ray answers with a server error while Serve goes on to start. Then this sends it again.

    Args:
        cluster: A running cluster.
        config: `applications`, and what else the dashboard takes. A `proxy_location` that it does not say is HeadOnly.
        host: The address on which Serve listens.
        within_s: Seconds until this gives up.

    Raises:
        DevError: Ray refuses the configuration, or has not taken it in time. It tells Ray's answer.
    """
    options = {"host": host, "port": cluster.serve_http_port}
    body = json.dumps({"proxy_location": "HeadOnly", **config, "http_options": options}).encode()
    request = urllib.request.Request(
        cluster.dashboard_url + APPLICATIONS_PATH,
        data=body,
        headers={"Authorization": f"Bearer {cluster.auth_token}", "Content-Type": "application/json"},
        method="PUT",
    )
    deadline = time.monotonic() + within_s
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
                return
        except HTTPError as error:
            answer = f"{error}: {error.read().decode(errors='replace')[-2000:]}"
            may_pass = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR
        except (OSError, HTTPException) as error:
            answer, may_pass = str(error), True
        if not may_pass or time.monotonic() > deadline:
            raise DevError(f"PUT {request.full_url}: {answer}")
        time.sleep(_AGAIN_SECONDS)
