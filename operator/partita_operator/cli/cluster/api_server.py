"""The Kubernetes API server as the commands see it: Partita's objects read, annotations of sessions set."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import click
import httpx2
from lightkube import ApiError, Client
from lightkube.operators import exists
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType
from pydantic import ValidationError

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import PROFILE_LABEL
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import PROFILE_FILE, Profile
from partita_operator.cli.cluster.options import ClusterPlace
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.kube.resources import (
    PlanResource,
    PoolResource,
    SessionResource,
    read_plan,
    read_pool,
    read_session,
)
from partita_operator.reconcile.world import Cluster

T = TypeVar("T")

FIELD_MANAGER: Final = "kubectl-partita"
_TIMEOUT_S: Final = 30.0


class ApiServer:
    """One cluster, and the namespace that the person is in. What fails raises ClickException with what to do."""

    def __init__(self, place: ClusterPlace) -> None:
        try:
            config = load_config(place.kubeconfig, place.context)
        except NoClusterError as error:
            raise click.ClickException(str(error)) from error
        self._server = config.cluster.server
        self.namespace = place.namespace or config.namespace or "default"
        self._client: Any = Client(config=config, field_manager=FIELD_MANAGER, timeout=httpx2.Timeout(_TIMEOUT_S))

    def session(self, name: str) -> InferenceSession:
        """A session of the namespace."""
        try:
            raw = self._ask(lambda: self._client.get(SessionResource, name, namespace=self.namespace))
        except _NotFoundError:
            there = [s["metadata"]["name"] for s in self._list(SessionResource, self.namespace)]
            raise click.ClickException(
                f"There is no InferenceSession {name} in namespace {self.namespace}; its sessions are: "
                f"{', '.join(there) or 'none'}. Another namespace is chosen with -n."
            ) from None
        return read_session(raw, None)[0]

    def pool(self, name: str) -> GPUPool:
        """A pool of the cluster."""
        try:
            return read_pool(self._ask(lambda: self._client.get(PoolResource, name)))[0]
        except _NotFoundError:
            there = [p["metadata"]["name"] for p in self._list(PoolResource, None)]
            raise click.ClickException(
                f"There is no GPUPool {name}; the cluster's are: {', '.join(there) or 'none'}."
            ) from None

    def plans(self, session: InferenceSession) -> dict[str, PipelinePlan]:
        """The session's plans by name."""
        read = (read_plan(raw) for raw in self._list(PlanResource, self.namespace))
        return {
            plan.metadata.name: plan
            for plan in read
            if plan is not None and plan.spec.session.name == session.metadata.name
        }

    def cluster(self) -> Cluster:
        """All of Partita's objects, as the operator sees them."""
        pools: dict[str, GPUPool] = {}
        sessions: dict[str, InferenceSession] = {}
        unreadable: dict[str, str] = {}
        for raw in self._list(PoolResource, None):
            pool, complaint = read_pool(raw)
            pools[pool.metadata.name] = pool
            unreadable |= {pool.metadata.name: complaint} if complaint else {}
        for raw in self._list(SessionResource, "*"):
            session, complaint = read_session(raw, None)
            sessions[session.key] = session
            unreadable |= {session.key: complaint} if complaint else {}
        plans = (plan for raw in self._list(PlanResource, "*") if (plan := read_plan(raw)) is not None)
        return Cluster(pools, sessions, {f"{p.metadata.namespace}/{p.metadata.name}": p for p in plans}, unreadable)

    def profiles(self) -> tuple[Profile, ...]:
        """The profiles in the namespace; those that cannot be read are left out, as the operator makes them anew."""
        return tuple(self._profiles())

    def annotate(self, owner: InferenceSession | GPUPool, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a session or a pool; None removes one."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        resource: Any = PoolResource if isinstance(owner, GPUPool) else SessionResource
        where = {"namespace": owner.metadata.namespace} if owner.metadata.namespace else {}
        self._ask(lambda: self._client.patch(resource, owner.metadata.name, patch, **where, patch_type=PatchType.MERGE))

    def _profiles(self) -> Iterator[Profile]:
        marked = {PROFILE_LABEL: exists()}
        listed = self._ask(lambda: list(self._client.list(ConfigMap, namespace=self.namespace, labels=marked)))
        for config_map in listed:
            try:
                yield Profile.model_validate_json((config_map.data or {}).get(PROFILE_FILE, ""))
            except ValidationError:
                continue

    def _list(self, resource: Any, namespace: str | None) -> list[dict[str, Any]]:
        where: dict[str, Any] = {"namespace": namespace} if namespace is not None else {}
        try:
            return self._ask(lambda: list(self._client.list(resource, **where)))
        except _NotFoundError:
            raise click.ClickException(
                f"The cluster at {self._server} does not know Partita's kinds: partita crds | kubectl apply -f -"
            ) from None

    def _ask(self, call: Callable[[], T]) -> T:
        """The answer, or what went wrong in words. Raises _NotFoundError and ClickException."""
        try:
            return call()
        except ApiError as error:
            if error.status.code == 404:
                raise _NotFoundError from error
            raise click.ClickException(f"The API server at {self._server} refuses: {error.status.message}") from error
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == 404:
                raise _NotFoundError from error
            raise click.ClickException(f"The API server at {self._server} answers: {error}") from error
        except httpx2.HTTPError as error:
            raise click.ClickException(f"The API server at {self._server} does not answer: {error!r}") from error


class _NotFoundError(Exception):
    """The object or its kind is not there."""
