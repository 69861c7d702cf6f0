"""The Kubernetes API server for the commands and the SDK: reads Partita's objects, and writes those of users."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from typing import Any, Final, Self, TypeVar

import click

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile
from partita_operator.cli.cluster.options import ClusterPlace
from partita_operator.cli.errors import BadInput
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.kube.errors import ApiError, ApiUnreachableError, is_conflict, is_missing
from partita_operator.kube.profiles import list_profiles, profile_name
from partita_operator.kube.resources import (
    ALL_NAMESPACES,
    ConfigMapResource,
    PlanResource,
    PoolResource,
    SessionResource,
    install_crds,
    read_plan,
    read_pool,
    read_session,
)
from partita_operator.reconcile.capacity.cluster import Cluster

T = TypeVar("T")

FIELD_MANAGER: Final = "kubectl-partita"


class ApiServer:
    """One cluster and the current namespace. A request that fails raises ClickException, which says what to do."""

    def __init__(self, place: ClusterPlace, field_manager: str = FIELD_MANAGER) -> None:
        self._manager = field_manager
        try:
            self._connection = _completed(load_config(place.kubeconfig, place.context))
        except NoClusterError as error:
            raise BadInput(str(error)) from error
        self._server = self._connection.server
        self.namespace = place.namespace or self._connection.namespace or "default"

    def in_namespace(self, namespace: str | None) -> Self:
        """The same cluster with another namespace, if one is given."""
        other = copy(self)
        other.namespace = namespace or self.namespace
        return other

    def has_session(self, name: str) -> bool:
        """Whether the namespace has the session."""
        try:
            self._ask(lambda client: client.get(SessionResource, name, self.namespace))
        except _NotFoundError:
            return False
        return True

    def session(self, name: str) -> InferenceSession:
        """A session of the namespace."""
        try:
            raw = self._ask(lambda client: client.get(SessionResource, name, self.namespace))
        except _NotFoundError:
            there = [s["metadata"]["name"] for s in self._list(SessionResource, self.namespace)]
            raise click.ClickException(
                f"There is no InferenceSession {name} in namespace {self.namespace}; its sessions are: "
                f"{', '.join(there) or 'none'}. Choose another namespace with -n."
            ) from None
        return read_session(raw, None)[0]

    def pool(self, name: str) -> GPUPool:
        """A pool of the cluster."""
        try:
            return read_pool(self._ask(lambda client: client.get(PoolResource, name)))[0]
        except _NotFoundError:
            there = [p["metadata"]["name"] for p in self._list(PoolResource, ALL_NAMESPACES)]
            raise click.ClickException(
                f"There is no GPUPool {name}; the cluster's are: {', '.join(there) or 'none'}."
            ) from None

    def pools(self) -> tuple[GPUPool, ...]:
        """All pools of the cluster; one with an invalid spec has the default one."""
        return tuple(read_pool(raw)[0] for raw in self._list(PoolResource, ALL_NAMESPACES))

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
        for raw in self._list(PoolResource, ALL_NAMESPACES):
            pool, complaint = read_pool(raw)
            pools[pool.metadata.name] = pool
            unreadable |= {pool.metadata.name: complaint} if complaint else {}
        for raw in self._list(SessionResource, ALL_NAMESPACES):
            session, complaint = read_session(raw, None)
            sessions[session.key] = session
            unreadable |= {session.key: complaint} if complaint else {}
        plans = (plan for raw in self._list(PlanResource, ALL_NAMESPACES) if (plan := read_plan(raw)) is not None)
        return Cluster(pools, sessions, {f"{p.metadata.namespace}/{p.metadata.name}": p for p in plans}, unreadable)

    def profiles(self) -> tuple[Profile, ...]:
        """The profiles in the namespace, without unreadable ones: the operator measures those again."""
        return self._ask(lambda client: list_profiles(client, self.namespace))

    def delete_profile(self, key: str) -> None:
        """Delete a profile of the namespace, if it exists."""
        with suppress(_NotFoundError):
            self._ask(lambda client: client.delete(ConfigMapResource, profile_name(key), self.namespace))

    def annotate(self, owner: InferenceSession | GPUPool, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a session or a pool; None removes one."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        resource: Any = PoolResource if isinstance(owner, GPUPool) else SessionResource
        namespace = owner.metadata.namespace or ""
        self._ask(lambda client: client.patch(resource, owner.metadata.name, patch, namespace))

    def apply_session(self, manifest: Document, *, force: bool = False) -> InferenceSession:
        """Server-side apply of a session with its name and namespace. `force` takes over fields of other managers."""
        try:
            raw = self._ask(lambda client: client.apply(SessionResource, manifest, force=force))
        except _NotFoundError:
            namespace = manifest["metadata"]["namespace"]
            raise click.ClickException(
                f"The cluster at {self._server} has no namespace {namespace}, or not Partita's kinds. Create the "
                f"namespace, or install the kinds: `{install_crds()}`"
            ) from None
        return read_session(raw, None)[0]

    def delete_session(self, name: str) -> None:
        """Delete a session of the namespace, if it exists."""
        with suppress(_NotFoundError):
            self._ask(lambda client: client.delete(SessionResource, name, self.namespace))

    def _list(self, resource: Any, namespace: str) -> Sequence[Document]:
        try:
            return self._ask(lambda client: client.list(resource, namespace))
        except _NotFoundError:
            raise click.ClickException(
                f"The cluster at {self._server} does not have Partita's kinds. Install them: `{install_crds()}`"
            ) from None

    def _ask(self, request: Callable[[KubernetesClient], Awaitable[T]]) -> T:
        """The answer to one request. Raises _NotFoundError and ClickException."""

        async def ask() -> T:
            async with KubernetesClient(self._connection, self._manager) as client:
                return await request(client)

        try:
            return _completed(ask())
        except ApiError as error:
            if is_missing(error):
                raise _NotFoundError from error
            if is_conflict(error):
                raise click.ClickException(
                    f"Others manage these fields, and keep them without force: {error.message}"
                ) from error
            raise click.ClickException(f"The API server at {self._server} refuses: {error.message}") from error
        except ApiUnreachableError as error:
            raise click.ClickException(f"The API server at {self._server} does not answer: {error}") from error
        except NoClusterError as error:
            raise BadInput(str(error)) from error


class _NotFoundError(Exception):
    """The object or its kind does not exist."""


def _completed(work: Coroutine[Any, Any, T]) -> T:
    """Its result. In a notebook this thread has a running event loop, and the work gets a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
