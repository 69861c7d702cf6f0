"""The example repository for GitOps: valid manifests, in an order that admission takes, and Lua in one version."""

from pathlib import Path
from typing import Any

import yaml

from partita_api.manifests import Manifests, parse_manifests
from partita_operator.reconcile.capacity.accounting import selected_pools

GITOPS = Path(__file__).resolve().parents[2] / "examples" / "gitops"
CHART = GITOPS.parents[1] / "charts" / "partita"


def read(*folders: str) -> Manifests:
    found = Manifests()
    for folder in folders:
        for path in sorted((GITOPS / folder).rglob("*.yaml")):
            found += parse_manifests(path.read_text(), str(path))
    return found


def documents(path: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((GITOPS / path).read_text()) if document]


def test_sessions_select_pools_of_an_earlier_step() -> None:
    platform, team = read("platform"), read("teams")
    assert not platform.sessions
    assert not team.pools
    (session,) = team.sessions
    assert set(selected_pools(session, {pool.metadata.name: pool for pool in platform.pools})) == {"l4", "t4"}
    quotas = {quota.namespace for pool in platform.pools for quota in pool.spec.quotas}
    assert quotas == {session.metadata.namespace}


def test_argo_cd_s_settings_have_the_lua_as_it_is() -> None:
    (config,) = documents("argocd/argocd-cm.yaml")
    customizations = yaml.safe_load(config["data"]["resource.customizations"])
    assert customizations == {"partita.dev/*": {"health.lua": (GITOPS / "argocd/health.lua").read_text()}}


def test_argo_cd_syncs_operator_pools_and_teams_in_order() -> None:
    applications = documents("argocd/applications.yaml")
    waves = [a["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"] for a in applications]
    assert waves == ["0", "1", "2"]
    assert [a["spec"]["source"]["path"] for a in applications] == ["charts/partita", "platform", "teams/team-a"]
    values = applications[0]["spec"]["source"]["helm"]["valuesObject"]
    assert values["admission"]["certManager"]["enabled"], "a certificate of the chart's would change all the time"
    assert_values_are_known(values)


def test_flux_syncs_operator_pools_and_teams_in_order() -> None:
    steps = [d["spec"] | {"name": d["metadata"]["name"]} for d in documents("flux/sync.yaml") if "path" in d["spec"]]
    assert [s["name"] for s in steps] == ["partita", "pools", "team-a"]
    assert [[d["name"] for d in s.get("dependsOn", [])] for s in steps] == [[], ["partita"], ["pools"]]
    for step in steps:
        assert (GITOPS / step["path"]).is_dir(), step["path"]
        assert step["wait"], "the next step needs this one"
    (release,) = [d for d in documents("flux/operator/release.yaml") if d["kind"] == "HelmRelease"]
    assert release["spec"]["upgrade"]["crds"] == "CreateReplace"
    assert_values_are_known(release["spec"]["values"])


def assert_values_are_known(values: dict[str, Any]) -> None:
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, part in values.items():
        assert name in known
        assert not isinstance(part, dict) or set(part) <= set(known[name])
