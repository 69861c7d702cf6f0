"""A session as its author writes it: modules, edges, an SLO and a rate, which become a manifest."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from numpy.typing import NDArray
from pydantic.alias_generators import to_camel

from partita.after import After
from partita.manifest import manifest_of, plain, session_in
from partita.problems import validated
from partita.tensor import Tensor
from partita_api.inferencesession import InferenceSession, InferenceSessionStatus
from partita_api.meta import API_VERSION
from partita_api.profile import Profile

if TYPE_CHECKING:  # they load the solver or the Kubernetes client, which a session by itself does not need
    from partita.client import Client, Inputs
    from partita.cluster import Cluster, Report
    from partita.offline import Milliseconds, Pools, Profiles
    from partita.plan import Plan

Upstream = str | After | Sequence[str | After]
"""The modules that another one runs after."""
JoinName = Literal["All", "Any", "First"]
"""When a module with several upstream modules runs."""


class Session:
    """An application to serve under an SLO: models, CPU functions between them, and how requests go through them.

    Nothing is checked until `validate`, or until the session is used. A module that is added again replaces the one of
    its name, so that cells of a notebook can run again.
    """

    def __init__(
        self,
        name: str,
        *,
        slo_ms: int,
        requests_per_second: int,
        namespace: str | None = None,
        attainment: str | None = None,
        **spec: Any,
    ) -> None:
        """`slo_ms` milliseconds for a request, of which a share of `attainment`, such as "99%", must be in time.

        `spec` are other fields of an InferenceSession's spec; see `configure`.
        """
        self._manifest: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "InferenceSession",
            "metadata": _set(name=name, namespace=namespace),
            "spec": {
                "slo": _set(latencyMs=plain(slo_ms), attainment=attainment),
                "rate": {"requestsPerSecond": plain(requests_per_second)},
                "modules": [],
            },
        }
        self.configure(**spec)

    @classmethod
    def from_yaml(cls, text: str, name: str | None = None) -> Self:
        """The session in a manifest; of several, the one with this name.

        Raises InvalidSessionError, and PartitaError if the text has no such session.
        """
        session = cls.__new__(cls)
        session._manifest = manifest_of(session_in(text, name))
        return session

    @classmethod
    def from_file(cls, path: str | Path, name: str | None = None) -> Self:
        """The same from a file. Raises OSError, too."""
        return cls.from_yaml(Path(path).read_text(), name)

    @property
    def name(self) -> str:
        """The session's name."""
        return str(self._manifest["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """The session's namespace; None: that of the cluster's context."""
        found: str | None = self._manifest["metadata"].get("namespace")
        return found

    def add_model(
        self,
        name: str,
        *,
        entrypoint: str | None = None,
        file: str | Path | None = None,
        hugging_face: str | None = None,
        revision: str | None = None,
        task: str | None = None,
        weights: str | Path | None = None,
        sha256: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        input: Tensor | Mapping[str, Any] | None = None,
        after: Upstream = (),
        fan_out: Mapping[str, Any] | None = None,
        join: JoinName | None = None,
        **module: Any,
    ) -> Self:
        """Add a neural network: of an entrypoint (package.module:function), a file or a repository of Hugging Face.

        It runs `after` other modules: names, or `After` with a condition. `fan_out` is that of all edges without their
        own; see `connect`. After several modules it needs a `join`, Any or First. `module` are other fields of a
        module, such as `image`.
        """
        source = _set(
            entrypoint=entrypoint,
            file=file,
            huggingFace=hugging_face,
            revision=revision,
            task=task,
            weights=weights,
            sha256=sha256,
            kwargs=kwargs,
        )
        return self._add(name, after, fan_out, model=source, input=input, join=join, **module)

    def add_function(
        self,
        name: str,
        *,
        entrypoint: str,
        kwargs: Mapping[str, Any] | None = None,
        max_millis: int | None = None,
        image: str | None = None,
        resources: Mapping[str, str] | None = None,
        after: Upstream = (),
        fan_out: Mapping[str, Any] | None = None,
        join: JoinName | None = None,
        **module: Any,
    ) -> Self:
        """Add a CPU function, for which `max_millis` of the SLO are reserved; see `add_model` for the others.

        After several modules it runs once for each request, with all of their answers, unless `join` is Any or First.
        """
        source = _set(entrypoint=entrypoint, kwargs=kwargs, maxMillis=max_millis, image=image, resources=resources)
        return self._add(name, after, fan_out, function=source, join=join, **module)

    def add_endpoint(
        self,
        name: str,
        *,
        url: str,
        model: str,
        input: Tensor | Mapping[str, Any],
        after: Upstream = (),
        fan_out: Mapping[str, Any] | None = None,
        join: JoinName | None = None,
        **endpoint: Any,
    ) -> Self:
        """Add a model that another server answers. `endpoint` are other fields of it, such as `max_millis`.

        See `add_model` for the others.
        """
        source = _set(url=url, model=model, **{to_camel(field): value for field, value in endpoint.items()})
        return self._add(name, after, fan_out, endpoint=source, input=input, join=join)

    def connect(
        self,
        source: str,
        target: str,
        fan_out: Mapping[str, Any] | None = None,
        *,
        when: str | None = None,
        share: str | None = None,
        map: Mapping[str, str] | None = None,
    ) -> Self:
        """Send the answers of one module to another one.

        `fan_out` is how many calls one answer makes, on average and at most: `{"mean": 1.5, "max": 4}`. With `when`,
        only answers go there for which it is true, a share of about `share`: `"outputs.label[0] == 2"`, `"20%"`.
        `map` has the upstream output for each input: `{"boxes": "detections"}`.
        """
        kept = [edge for edge in self._edges if (edge["from"], edge["to"]) != (source, target)]
        edge = {"from": source, "to": target, **_set(fanOut=fan_out, when=when, share=share, map=map)}
        self._manifest["spec"]["edges"] = [*kept, edge]
        return self

    def remove(self, module: str) -> Self:
        """Remove a module with its edges, if the session has it."""
        self._modules = [each for each in self._modules if each["name"] != module]
        self._edges = [edge for edge in self._edges if module not in (edge["from"], edge["to"])]
        return self

    def configure(self, **spec: Any) -> Self:
        """Set other fields of the spec: `planner={"marginPercent": 30}`, `pool_selector=...`. None removes one.

        The names of parameters may be in snake_case, those in values are as in YAML. A value replaces the whole field.
        """
        self._manifest["spec"] |= {to_camel(name): plain(value) for name, value in spec.items()}
        self._manifest["spec"] = {name: value for name, value in self._manifest["spec"].items() if value is not None}
        return self

    def copy(
        self, *, name: str | None = None, slo_ms: int | None = None, requests_per_second: int | None = None
    ) -> Self:
        """The same session with another name, SLO or rate."""
        made = type(self).__new__(type(self))
        made._manifest = plain(self._manifest)
        made._manifest["metadata"] |= _set(name=name)
        made._manifest["spec"]["slo"] |= _set(latencyMs=slo_ms)
        made._manifest["spec"]["rate"] |= _set(requestsPerSecond=requests_per_second)
        return made

    def validate(self) -> None:
        """Raises InvalidSessionError with all that the API server or the operator would refuse."""
        self.build()

    def build(self) -> InferenceSession:
        """The session as a model of the API. Raises InvalidSessionError."""
        return validated(self._manifest)

    def manifest(self) -> str:
        """The session as YAML, for kubectl or Git. Raises InvalidSessionError."""
        return yaml.safe_dump(manifest_of(self.build()), sort_keys=False, allow_unicode=True)

    def plan(self, *, pools: "Pools", profiles: "Profiles") -> "Plan":
        """The plan for this session alone on these pools, computed here. `Cluster.plan` plans with a cluster's.

        Both may be paths: of manifests, and of the folder that `partita profile` has written. Raises NoPlanError with
        what would make a plan possible, InvalidSessionError, and PartitaError for files that are wrong.
        """
        from partita.offline import plan_of

        return plan_of(self.build(), pools, profiles)

    def assumed_profiles(self, milliseconds: "Milliseconds") -> tuple[Profile, ...]:
        """Profiles for `plan` without a measurement: the time of one batch by module, pool and batch size.

        Models then stay whole: only a measurement knows their blocks. Raises PartitaError for modules that are no
        models.
        """
        from partita.offline import assumed_profiles

        return assumed_profiles(self.build(), milliseconds)

    def apply(self, cluster: "Cluster | None" = None, *, force: bool = False) -> InferenceSession:
        """Create or change the session in a cluster; see `Cluster.apply`. By default kubectl's current cluster."""
        return _or_default(cluster).apply(self, force=force)

    def wait(
        self, timeout: float = 600.0, cluster: "Cluster | None" = None, *, progress: "Report | None" = print
    ) -> InferenceSession:
        """Wait until the session serves; see `Cluster.wait`."""
        return _or_default(cluster).wait(self, timeout, progress)

    def status(self, cluster: "Cluster | None" = None) -> InferenceSessionStatus:
        """Its status in a cluster: conditions, URL, current plan, measurements."""
        return _or_default(cluster).get(self).status

    def client(
        self,
        cluster: "Cluster | None" = None,
        *,
        credentials: str | None = None,
        url: str | None = None,
        timeout_s: float = 30.0,
    ) -> "Client":
        """A client for many requests; see `Client`."""
        return _or_default(cluster).client(self, credentials=credentials, url=url, timeout_s=timeout_s)

    def infer(
        self,
        inputs: "Inputs",
        cluster: "Cluster | None" = None,
        *,
        credentials: str | None = None,
        url: str | None = None,
        timeout_s: float = 30.0,
        deadline_ms: float | None = None,
    ) -> dict[str, NDArray[Any]]:
        """The answer to one request; see `Client.infer`. It connects each time: for many requests, use `client`."""
        with self.client(cluster, credentials=credentials, url=url, timeout_s=timeout_s) as client:
            return client.infer(inputs, deadline_ms=deadline_ms)

    def delete(self, cluster: "Cluster | None" = None, *, timeout: float | None = None) -> None:
        """Delete the session in a cluster, if it exists; see `Cluster.delete`."""
        _or_default(cluster).delete(self, timeout=timeout)

    def __repr__(self) -> str:
        return f"Session({self.name!r}: {', '.join(str(module['name']) for module in self._modules)})"

    @property
    def _modules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._manifest["spec"].get("modules", [])
        return found

    @_modules.setter
    def _modules(self, modules: list[dict[str, Any]]) -> None:
        self._manifest["spec"]["modules"] = modules

    @property
    def _edges(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._manifest["spec"].get("edges", [])
        return found

    @_edges.setter
    def _edges(self, edges: list[dict[str, Any]]) -> None:
        self._manifest["spec"]["edges"] = edges

    def _add(self, name: str, after: Upstream, fan_out: Mapping[str, Any] | None, **fields: Any) -> Self:
        """Add the module in the place of the one with its name. Edges that led to that one go."""
        made = {"name": name, **_set(**{to_camel(field): value for field, value in fields.items()})}
        names = [module["name"] for module in self._modules]
        if name in names:
            self._modules[names.index(name)] = made
        else:
            self._modules = [*self._modules, made]
        self._edges = [edge for edge in self._edges if edge["to"] != name]
        for each in [after] if isinstance(after, str | After) else after:
            edge = each if isinstance(each, After) else After(each)
            own = edge.fan_out if edge.fan_out is not None else fan_out
            self.connect(edge.module, name, own, when=edge.when, share=edge.share, map=edge.map)
        return self


def _set(**fields: Any) -> dict[str, Any]:
    """The fields that are not None, as JSON data."""
    return {name: plain(value) for name, value in fields.items() if value is not None}


def _or_default(cluster: "Cluster | None") -> "Cluster":
    if cluster is not None:
        return cluster
    from partita.cluster import Cluster

    return Cluster()
