"""Requests in the cluster, until the test has seen enough: a pod that asks a session, and what it was answered.

Each request has its own connection, so that they reach all endpoints of a Service.
"""

import json
from typing import Any
from urllib.parse import urlsplit

from tests.operator.kubectl import Json, Kubectl, eventually

NAME = "steady-load"
PER_SECOND = 4
_SCRIPT = """
import json, pathlib, sys, threading
from collections import Counter
from datetime import datetime
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

url, pause, body = sys.argv[1], float(sys.argv[2]), sys.argv[3].encode()

def answer(_):
    try:
        with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=120) as got:
            got.read()
            return " ".join([str(got.status), *got.headers.get_all("partita-version", [])])
    except HTTPError as error:
        found = f"{error.code} {error.read(300).decode(errors='replace').strip()}"
    except Exception as error:
        found = repr(error)
    print(f"{datetime.now():%H:%M:%S.%f} {found}", flush=True)
    return found

end, timer, sent = pathlib.Path("/tmp/end"), threading.Event(), []
with ThreadPoolExecutor(256) as pool:
    while not end.exists():
        sent.append(pool.submit(answer, None))
        timer.wait(pause)
print(json.dumps(Counter(one.result() for one in sent)))
"""


def start_load(
    kubectl: Kubectl,
    image: str,
    session: Json,
    inputs: list[Json],
    per_second: float = PER_SECOND,
    *,
    name: str = NAME,
    server: str | None = None,
) -> None:
    """Send requests to the session from now on: to its own Service, or to a `server` (host and port) before it."""
    own = urlsplit(session["status"]["url"])
    url = f"{own.scheme}://{server or own.netloc}{own.path}/v2/models/{session['metadata']['name']}/infer"
    arguments = [url, str(1 / per_second), json.dumps({"inputs": inputs})]
    container = {"name": "load", "image": image, "command": ["python3", "-c", _SCRIPT, *arguments]}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})
    kubectl("wait", "--for=condition=Ready", "--timeout=120s", f"pod/{name}")


async def ended_load(kubectl: Kubectl, name: str = NAME) -> dict[str, int]:
    """Send no more, and return how many requests had each answer: "200", another status with its body, or an error.

    What another version has answered is "200 NAME". Prints when each failure was.
    """
    kubectl("exec", name, "--", "touch", "/tmp/end")
    await eventually(lambda: kubectl.get("pod", name), lambda pod: pod["status"]["phase"] == "Succeeded")
    *failures, answers = kubectl("logs", name).splitlines()
    print(*failures, sep="\n")
    found: dict[str, int] = json.loads(answers)
    kubectl("delete", "pod", name)
    return found
