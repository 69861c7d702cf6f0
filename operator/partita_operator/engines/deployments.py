"""Serve applications as they should run, by name. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from partita_operator.engines.app_config import (
    AppConfig,
    demand_of,
    for_plans,
    stages_by_plan,
    with_replicas,
)
from partita_operator.engines.placement import ReplicaDemand, of_pools
from partita_runtime.serving.deploy.applications import holding_both, parse_application


class Deployments(Mapping[str, AppConfig]):
    """Configurations of applications by name. It is immutable: every operation gives another one.

    Two are equal if they have the same applications, in any order.
    """

    def __init__(self, configs: Iterable[AppConfig] = ()) -> None:
        self._configs: dict[str, AppConfig] = {config["name"]: config for config in configs}

    def __getitem__(self, name: str) -> AppConfig:
        return self._configs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def __repr__(self) -> str:
        return f"Deployments({list(self._configs.values())!r})"

    @property
    def plans(self) -> list[str]:
        """Names of the plans whose stages are in them, sorted."""
        return sorted({plan for config in self.values() for plan in stages_by_plan(config)})

    def demands(self) -> list[ReplicaDemand]:
        """What each application takes of its pool; all must be stages or sub-clusters."""
        found = [demand_of(config) for config in self.values()]
        return [replace(demand, each=of_pools(demand.each)) for demand in found]

    @property
    def resource_names(self) -> set[str]:
        """All resources that they take."""
        return {resource for config in self.values() for resource in demand_of(config).each}

    def of_session(self, session_key: str) -> "Deployments":
        """The applications of one session (namespace/name)."""
        return Deployments(config for name, config in self.items() if session_of(name) == session_key)

    def of_others(self, session_key: str) -> "Deployments":
        """All other applications, also those that belong to no session."""
        return Deployments(config for name, config in self.items() if session_of(name) != session_key)

    def for_plans(self, plans: Collection[str]) -> "Deployments":
        """The stages of these plans; a sub-cluster keeps only the models of these plans."""
        found = (for_plans(config, plans) for config in self.values())
        return Deployments(config for config in found if config is not None)

    def only(self, names: Collection[str]) -> "Deployments":
        """The applications with these names."""
        return Deployments(config for name, config in self.items() if name in names)

    def without(self, names: Collection[str]) -> "Deployments":
        """The applications with other names."""
        return Deployments(config for name, config in self.items() if name not in names)

    def with_replicas(self, counts: Mapping[str, int]) -> "Deployments":
        """The same applications; those in `counts` with these numbers of replicas."""
        return Deployments(
            with_replicas(config, counts[name]) if name in counts else config for name, config in self.items()
        )

    def replaced(self, changed: AppConfig) -> "Deployments":
        """The same applications, with `changed` in place of the one of its name."""
        return Deployments({**self._configs, changed["name"]: changed}.values())

    def merged(self, new: "Deployments") -> "Deployments":
        """These and the new ones. A sub-cluster that is in both holds the models of both."""
        both = [holding_both(self[name], config) if name in self else config for name, config in new.items()]
        return Deployments([*self.without(new).values(), *both])


def session_of(application: str) -> str | None:
    """Key of the session that an application belongs to; None if it is not an application of Partita."""
    parsed = parse_application(application)
    return parsed.session_key if parsed else None
