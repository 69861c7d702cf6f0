"""A Kubernetes cluster with Partita: plans with its pools, and applies, watches and deletes sessions."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import click

from partita.client import Client
from partita.errors import ClusterError, NotReadyError, WaitTimeoutError, needs_extra
from partita.manifest import manifest_of
from partita.plan import Plan
from partita.waiting import Phase, step_of
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.profile import Profile
from partita_operator.cli.cluster.options import ClusterPlace
from partita_planner.planning import EXPLAIN_SECONDS
from partita_planner.planning import plan as solve

with needs_extra("operator", "a cluster"):
    from partita_operator.cli.cluster.api_server import ApiServer
    from partita_operator.cli.cluster.planning_problem import problem_of

FIELD_MANAGER: Final = "partita-sdk"
POLL_SECONDS: Final = 1.0

Report = Callable[[str], None]
"""Takes a line of progress."""


class Described(Protocol):
    """A session as its author has it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def namespace(self) -> str | None:
        """None: that of the cluster's context."""

    def build(self) -> InferenceSession:
        """It as a model of the API. Raises InvalidSessionError."""


class Cluster:
    """A cluster that runs Partita. Every method raises ClusterError if the cluster refuses or does not answer."""

    def __init__(
        self, *, kubeconfig: str | Path | None = None, context: str | None = None, namespace: str | None = None
    ) -> None:
        """By default as kubectl: in a pod its account, else $KUBECONFIG or ~/.kube/config, and the current context.

        `namespace` is for sessions that name none.
        """
        place = ClusterPlace(None if kubeconfig is None else Path(kubeconfig), context, namespace)
        with _translated():
            self._server = ApiServer(place, FIELD_MANAGER)

    @property
    def namespace(self) -> str:
        """The namespace of sessions that name none."""
        return self._server.namespace

    def pools(self) -> tuple[GPUPool, ...]:
        """All GPUPools."""
        with _translated():
            return self._server.pools()

    def profiles(self, namespace: str | None = None) -> tuple[Profile, ...]:
        """The profiles that the operator has measured for the namespace's sessions."""
        with _translated():
            return self._server.in_namespace(namespace).profiles()

    def plan(
        self, session: Described, *, requests_per_second: int | None = None, explain_seconds: float = EXPLAIN_SECONDS
    ) -> Plan:
        """The plan that the operator would make now, with what is free and profiled. Nothing changes in the cluster.

        It is for `requests_per_second`, else for the measured or declared rate. Raises NoPlanError.
        """
        there = self._placed(session)
        if requests_per_second is not None:
            rate = there.spec.rate.model_copy(update={"requests_per_second": requests_per_second})
            there = there.model_copy(update={"spec": there.spec.model_copy(update={"rate": rate})})
        with _translated():
            cluster, profiles = self._server.cluster(), self.profiles(there.namespace)
            problem = problem_of(there, cluster, profiles, requests_per_second)
        return Plan.of(there, solve(problem, explain_seconds=explain_seconds))

    def apply(self, session: Described, *, force: bool = False) -> InferenceSession:
        """Create or change the session. `force` takes over fields that others manage, such as kubectl.

        Raises InvalidSessionError.
        """
        with _translated():
            return self._server.apply_session(manifest_of(self._placed(session)), force=force)

    def get(self, session: Described) -> InferenceSession:
        """The session as it is in the cluster, with its status."""
        with _translated():
            return self._server.in_namespace(session.namespace).session(session.name)

    def wait(self, session: Described, timeout: float, progress: Report | None = print) -> InferenceSession:
        """Wait until the session serves its present spec, for `timeout` seconds at most; it with its status.

        `progress` takes a line when what it waits for changes. Raises NotReadyError if a person has to act first, and
        WaitTimeoutError.
        """
        begin, said = time.monotonic(), ""
        while True:
            found = self.get(session)
            step = step_of(found)
            if step.phase is Phase.READY:
                return found
            if step.phase is Phase.STALLED:
                raise NotReadyError(f"{found.key} needs a change before it can serve. {step.message}")
            elapsed = time.monotonic() - begin
            if progress is not None and step.message != said:
                progress(f"{elapsed:5.0f} s  {step.message}")
                said = step.message
            self._pause(timeout - elapsed, f"{found.key} is not Ready after {elapsed:.0f} s. {step.message}")

    def delete(self, session: Described, *, timeout: float | None = None) -> None:
        """Delete the session, if it exists. With a `timeout`, wait until its replicas have stopped.

        Raises WaitTimeoutError.
        """
        server = self._server.in_namespace(session.namespace)
        begin = time.monotonic()
        with _translated():
            server.delete_session(session.name)
            while timeout is not None and server.has_session(session.name):
                elapsed = time.monotonic() - begin
                self._pause(timeout - elapsed, f"{session.name} still exists after {elapsed:.0f} s. Does Partita run?")

    def client(
        self, session: Described, *, credentials: str | None = None, url: str | None = None, timeout_s: float = 30.0
    ) -> Client:
        """A client of the session; see Client. `url` replaces the one in its status."""
        found = url or self.get(session).status.url
        if found is None:
            raise ClusterError(f"session {session.name} has no URL yet; wait until it is Ready")
        return Client(found, credentials=credentials, timeout_s=timeout_s)

    def _placed(self, session: Described) -> InferenceSession:
        """The session in its namespace."""
        built = session.build()
        namespace = session.namespace or self.namespace
        return built.model_copy(update={"metadata": built.metadata.model_copy(update={"namespace": namespace})})

    def _pause(self, left: float, too_late: str) -> None:
        """Wait a little. Raises WaitTimeoutError if no time is left."""
        if left <= 0:
            raise WaitTimeoutError(too_late)
        time.sleep(min(POLL_SECONDS, left))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        raise ClusterError(error.message) from error
