"""The Kubernetes API as plain documents, through the official package's dynamic client.

The generated API classes are not imported: see docs/internals/reconciling.md for what they cost. The kinds are declared
in resources.py, which saves the dynamic client's discovery requests and its cache file.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self

from aiohttp import ClientError, ClientTimeout
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient, Resource
from kubernetes.aio.dynamic.exceptions import UnauthorizedError
from kubernetes.aio.watch import Watch

from partita_api.meta import FIELD_MANAGER
from partita_operator.kube.bodies.decoding import decoded
from partita_operator.kube.connection import REMEDY, Connection, NoClusterError
from partita_operator.kube.errors import ApiError, ApiUnreachableError, api_error, is_forbidden

Document = dict[str, Any]

PAGE_SIZE: Final = 100
"""Objects in one answer to a list request. One object can have some megabytes."""
WATCH_SECONDS: Final = 300.0
"""How long one watch request lasts. The next one continues where it ended, so a dead connection is noticed by then."""
_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 30.0
_NO_VERSION: Final = "1"
"""Resource version that no object has: etcd's first revision is its empty state."""
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"


class WatchEvent(NamedTuple):
    """One event of a watch."""

    object: Document
    """The object, as it is now or was last."""
    deleted: bool


@dataclass(frozen=True)
class Listing:
    """The objects of several namespaces."""

    objects: tuple[Document, ...]
    refused: frozenset[str]
    """The namespaces that may not be listed: with a namespace, the operator's role in it goes."""


class KubernetesClient:
    """Reads and writes objects as one field manager. Use it as an async context manager, or call close().

    All calls raise ApiError if the API server refuses, and ApiUnreachableError if it does not answer. A namespace
    that is empty stands for all namespaces, or for the cluster.
    """

    def __init__(
        self, connection: Connection, field_manager: str = FIELD_MANAGER, api_client: ApiClient | None = None
    ) -> None:
        """`api_client` replaces the official client of this connection, which has the HTTP connections.

        Raises NoClusterError if the connection's certificates or keys cannot be used.
        """
        self._connection = connection
        self._manager = field_manager
        try:
            self._api = api_client or ApiClient(connection.configuration)
        except (OSError, ValueError) as error:
            raise NoClusterError(
                f"No Kubernetes cluster: the certificates or keys for {connection.server} cannot be used: {error}; "
                f"{REMEDY}"
            ) from error
        # It is not awaited: that would discover all kinds of the cluster.
        self._dynamic = DynamicClient(self._api)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def get(self, kind: Resource, name: str, namespace: str = "") -> Document:
        """One object."""
        return await self._document(self._dynamic.get, kind, name=name, namespace=namespace)

    async def list(
        self, kind: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[Document]:
        """All objects that match the label selector and the field selector, read page by page."""
        found: list[Document] = []
        where = {"namespace": namespace, "label_selector": labels or None, "field_selector": fields or None}
        limit: int | None = PAGE_SIZE
        following: str | None = None
        while True:
            try:
                page = await self._document(self._dynamic.get, kind, **where, limit=limit, _continue=following)
            except ApiError as error:
                if error.status != HTTPStatus.GONE or following is None:
                    raise
                # The server no longer has the version of the first page. All in one answer, as client-go does.
                found, limit, following = [], None, None
                continue
            found += page.get("items") or []
            following = page["metadata"].get("continue")
            if not following:
                return found

    async def list_in(self, kind: Resource, places: Iterable[str], *, labels: str = "") -> Listing:
        """The objects in these namespaces. Raises ApiError, also if none of the namespaces may be listed."""
        objects: list[Document] = []
        refused: dict[str, ApiError] = {}
        allowed = False
        for place in places:
            try:
                objects += await self.list(kind, place, labels=labels)
                allowed = True
            except ApiError as error:
                if not is_forbidden(error):
                    raise
                refused[place] = error
        if refused and not allowed:
            raise next(iter(refused.values()))
        return Listing(tuple(objects), frozenset(refused))

    async def version(self, kind: Resource, namespace: str = "", *, labels: str = "") -> str:
        """The resource version of the list of these objects, as the start of a watch."""
        page = await self._document(self._dynamic.get, kind, namespace=namespace, label_selector=labels, limit=1)
        return str(page["metadata"]["resourceVersion"])

    async def changes(
        self, kind: Resource, namespace: str = "", *, labels: str = "", since: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """The objects that are created, changed or deleted after the version `since`. Ends only with an error.

        The official Watch reconnects when a request ends or times out. Raises ApiError with status 410 if the server
        no longer knows the version.
        """
        async with Watch() as watch:
            try:
                async for event in watch.stream(
                    self._dynamic.get,
                    kind,
                    namespace=namespace,
                    label_selector=labels,
                    resource_version=since,
                    serialize=False,
                    _request_timeout=ClientTimeout(total=WATCH_SECONDS, sock_connect=_CONNECT_SECONDS),
                ):
                    if not isinstance(event, dict):
                        raise ApiUnreachableError("The watch was cut off in the middle of an event.")
                    yield WatchEvent(event["raw_object"], deleted=event["type"] == "DELETED")
            except ApiException as error:
                raise api_error(error) from error
            except (ClientError, TimeoutError) as error:
                raise _unreachable(error) from error

    async def create(self, kind: Resource, manifest: Mapping[str, Any]) -> Document:
        """Create an object. Raises ApiError with status 409 if it exists."""
        body = _complete(kind, manifest)
        return await self._document(self._dynamic.create, kind, body=body, field_manager=self._manager)

    async def replace(self, kind: Resource, manifest: Mapping[str, Any]) -> Document:
        """Replace an object; with a resource version in the manifest, only that version."""
        body = _complete(kind, manifest)
        return await self._document(self._dynamic.replace, kind, body=body, field_manager=self._manager)

    async def apply(self, kind: Resource, manifest: Mapping[str, Any], *, force: bool = False) -> Document:
        """Server-side apply. Without `force`, raises ApiError with status 409 where another manager has a field."""
        return await self._apply(kind, kind, manifest, force=force)

    async def apply_new(self, kind: Resource, manifest: Mapping[str, Any]) -> Document:
        """Server-side apply that creates an object. Raises ApiError with status 409 if one has the name.

        An object made by `create` would keep fields that a later `apply` leaves out: POST and apply are different field
        managers. The API server ignores the version for a new object, and no object has this one.
        """
        return await self.apply(
            kind, {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": _NO_VERSION}}
        )

    async def apply_status(self, kind: Resource, manifest: Mapping[str, Any]) -> Document:
        """Server-side apply of the status. It takes over the fields that other managers have."""
        return await self._apply(kind.subresources["status"], kind, manifest, force=True)

    async def patch(self, kind: Resource, name: str, patch: Mapping[str, Any], namespace: str = "") -> Document:
        """Merge `patch` into the object (RFC 7386)."""
        return await self._patch(kind, name, dict(patch), namespace, _MERGE_PATCH)

    async def json_patch(
        self, kind: Resource, name: str, operations: Sequence[Mapping[str, Any]], namespace: str = ""
    ) -> Document:
        """Apply JSON patch operations (RFC 6902), all or none."""
        return await self._patch(kind, name, [dict(operation) for operation in operations], namespace, _JSON_PATCH)

    async def delete(
        self, kind: Resource, name: str, namespace: str = "", *, propagation: str | None = None, uid: str = ""
    ) -> None:
        """Delete an object. `propagation` is what happens to the objects that it owns: Background, Foreground, Orphan.

        None means the kind's default. With `uid`, raises ApiError with status 409 if another object has the name now.
        """
        body = {"preconditions": {"uid": uid}} if uid else None
        await self._read(
            self._dynamic.delete, kind, name=name, namespace=namespace, propagation_policy=propagation, body=body
        )

    async def log(self, pod: str, namespace: str, *, container: str, tail_lines: int, limit_bytes: int) -> str:
        """The last lines of a container's log, without what of them is beyond the limit."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = [("container", container), ("tailLines", tail_lines), ("limitBytes", limit_bytes)]
        return (await self._read(self._dynamic.request, "get", path, query_params=query)).decode(errors="replace")

    async def document(self, path: str) -> Document:
        """The document at a path that belongs to no kind, such as /version or /apis/ray.io/v1."""
        return await self._document(self._dynamic.request, "get", path)

    async def _apply(self, target: Resource, kind: Resource, manifest: Mapping[str, Any], *, force: bool) -> Document:
        body = _complete(kind, manifest)
        return await self._document(
            self._dynamic.server_side_apply, target, body=body, force_conflicts=force, field_manager=self._manager
        )

    async def _patch(self, kind: Resource, name: str, body: Any, namespace: str, content_type: str) -> Document:
        # request() and not patch(), which looks for metadata in the body: operations of a JSON patch have none.
        return await self._document(
            self._dynamic.request,
            "patch",
            kind.path(name=name, namespace=namespace),
            body=body,
            content_type=content_type,
            field_manager=self._manager,
        )

    async def _document(self, verb: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Document:
        raw = await self._read(verb, *arguments, **options)
        try:
            found: Document = decoded(raw)
        except ValueError as error:
            raise ApiUnreachableError(f"The answer is not JSON: {raw[:200]!r}") from error
        return found

    async def _read(self, verb: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> bytes:
        """The body of the answer. Credentials that have expired are loaded again, once."""
        timeout = ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
        options |= {"serialize": False, "_request_timeout": timeout}
        try:
            token = self._connection.token
            try:
                answer = await verb(*arguments, **options)
            except UnauthorizedError:
                await self._connection.renew(token)
                answer = await verb(*arguments, **options)
            body: bytes = await answer.read()
        except ApiException as error:
            raise api_error(error) from error
        except (ClientError, TimeoutError) as error:
            raise _unreachable(error) from error
        return body


def _complete(kind: Resource, manifest: Mapping[str, Any]) -> Document:
    """The manifest with its apiVersion and kind, which a server-side apply needs."""
    return {"apiVersion": kind.group_version, "kind": kind.kind, **manifest}


def _unreachable(error: Exception) -> ApiUnreachableError:
    return ApiUnreachableError(str(error) or type(error).__name__)
