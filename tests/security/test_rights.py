"""What the API server lets the operator's ServiceAccount do, if an attacker has it, and a session author."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import pytest
import yaml
from tests.architecture.sources import ROOT
from tests.operator.chart.charts import EVERYTHING, documents, rendered
from tests.operator.kubectl import Kubectl, new_namespace

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.engines import monitoring_tokens
from partita_operator.engines.kuberay import authentication

pytestmark = pytest.mark.apiserver

PAGE: Final = ROOT / "docs/security.md"
ROW: Final = re.compile(r"^\| [^|]+ \| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
"""A row of the table: a command for `kubectl auth can-i`, and the answers with both scopes."""
PLACES: Final = {
    "no": set[str](),
    "own": {"own"},
    "served": {"served"},
    "all": {"served", "own", "other"},
}
"""Where a right holds, for each answer of the table. `other` is a namespace that is not served."""
RELEASE_NAMESPACE: Final = "partita-system"
"""Of the rendered chart."""


@dataclass(frozen=True)
class Installed:
    """The roles of a release, and who it is."""

    admin: Kubectl
    namespaces: dict[str, str]
    """By what they stand for."""

    def places(self, command: str) -> set[str]:
        """Where the operator may do this."""
        account = f"system:serviceaccount:{self.namespaces['own']}:partita"
        return allowed(self.admin, account, command, self.namespaces)


def allowed(admin: Kubectl, user: str, command: str, namespaces: Mapping[str, str]) -> set[str]:
    """In which of the namespaces `kubectl auth can-i <command> --as=<user>` answers yes.

    It makes the reviews that `can-i` makes, which refuses kinds that the API server does not serve.
    """
    verb, resource, *option = command.split()
    kind, _, name = resource.partition("/")
    plural, _, group = kind.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "name": name}
    attributes["subresource"] = "".join(option).removeprefix("--subresource=")
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": {**attributes, "namespace": namespace}},
        }
        for namespace in namespaces.values()
    ]
    answers = admin("create", "-f", "-", "-o", "jsonpath={.status.allowed} ", stdin=yaml.safe_dump_all(reviews)).split()
    return {place for place, answer in zip(namespaces, answers, strict=True) if answer == "true"}


def rows() -> list[tuple[str, str, str]]:
    """The rows of the table: the command, and where the right holds with each scope."""
    section = PAGE.read_text().partition("## What a compromised operator can do")[2].partition("\n## ")[0]
    return [(command, named.strip(), everywhere.strip()) for command, named, everywhere in ROW.findall(section)]


@pytest.fixture(scope="module", params=["Namespaces", "Cluster"])
def scope(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, scope: str) -> Iterator[Installed]:
    """The chart's roles with all features but `mig`, which the page describes separately."""
    suffix = uuid4().hex[:8]
    names = {place: f"{place}-{suffix}" for place in ("own", "served", "other")}
    values: dict[str, Any] = {**EVERYTHING, "mig": {"enabled": False}, "scope": scope, "namespaces": [names["served"]]}
    kuberay = {key: value for key, value in EVERYTHING["kuberay"].items() if key not in ("authSecret", "tokenSecret")}
    objects = documents({**values, "kuberay": kuberay})
    text = yaml.safe_dump_all(o for o in objects if o["kind"] in RBAC).replace(RELEASE_NAMESPACE, names["own"])
    admin = Kubectl(control_plane.kubeconfig, names["own"])
    roles = list(yaml.safe_load_all(text))
    with (
        new_namespace(admin.kubeconfig, names["own"]),
        new_namespace(admin.kubeconfig, names["served"]),
        new_namespace(admin.kubeconfig, names["other"]),
    ):
        for role in roles:
            replace(admin, namespace=role["metadata"].get("namespace", "")).apply(role)
        yield Installed(admin, names)
        for role in roles:
            place = replace(admin, namespace=role["metadata"].get("namespace", ""))
            place("delete", role["kind"], role["metadata"]["name"])


RBAC: Final = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@pytest.mark.parametrize(("command", "named", "everywhere"), rows(), ids=[command for command, _, _ in rows()])
def test_the_table_is_what_the_api_server_says(
    installed: Installed, scope: str, command: str, named: str, everywhere: str
) -> None:
    assert installed.places(command) == PLACES[named if scope == "Namespaces" else everywhere]


@pytest.mark.parametrize("scope_of_chart", ["Namespaces", "Cluster"])
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything set"])
def test_every_right_is_named(values: dict[str, Any], scope_of_chart: str) -> None:
    """No wildcards, and nothing that leads to other rights in one step, whatever the table says."""
    found = documents({**values, "scope": scope_of_chart})
    rules = [rule for o in found if o["kind"] in ("Role", "ClusterRole") for rule in o["rules"]]
    assert len(rules) > 10
    for rule in rules:
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not words & {"*", "bind", "escalate", "impersonate", "rbac.authorization.k8s.io", "certificates.k8s.io"}
        assert (
            not {"pods/exec", "pods/attach", "pods/ephemeralcontainers", "serviceaccounts/token", "nodes/proxy"} & words
        )
        assert "secrets" not in rule["resources"] or rule.get("resourceNames")


def test_the_table_has_both_answers() -> None:
    """Else the test of its rows would not notice a table that is not read."""
    assert len(rows()) > 20
    assert {"no", "own", "served", "all"} <= {answer for _, *answers in rows() for answer in answers}


AUTHOR: Final = "author"


@pytest.fixture(scope="module")
def namespaces(control_plane: ControlPlane) -> Iterator[dict[str, Kubectl]]:
    """The author's own namespace with the chart's roles, and the one of another team, as an administrator uses them."""
    suffix = uuid4().hex[:8]
    objects = rendered(EVERYTHING)
    roles = [{**objects["ClusterRole", f"partita-{role}"], "metadata": {"name": f"{role}-{suffix}"}} for role in ROLES]
    with (
        new_namespace(control_plane.kubeconfig, f"own-{suffix}") as own,
        new_namespace(control_plane.kubeconfig, f"other-{suffix}") as other,
    ):
        own.apply(*roles)
        for role in ROLES:
            own("create", "rolebinding", role, f"--clusterrole={role}-{suffix}", f"--user={AUTHOR}")
        yield {"own": own, "other": other}
        own("delete", "clusterrole", *(f"{role}-{suffix}" for role in ROLES))


ROLES: Final = ("view", "edit")


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("create inferencesessions.partita.dev", {"own"}, id="make a session"),
        pytest.param("list inferencesessions.partita.dev", {"own"}, id="read sessions"),
        pytest.param("delete inferencesessions.partita.dev", {"own"}, id="stop sessions"),
        pytest.param("patch pipelineplans.partita.dev", {"own"}, id="approve plans"),
        pytest.param("create pipelineplans.partita.dev", set(), id="make plans"),
        pytest.param("patch inferencesessions.partita.dev --subresource=status", set(), id="write a status"),
        pytest.param("patch gpupools.partita.dev", set(), id="change pools"),
        pytest.param(f"get secrets/{authentication.SECRET}", set(), id="read Ray's token"),
        pytest.param(f"get secrets/{monitoring_tokens.SECRET}", set(), id="read the tokens of measurements"),
        pytest.param("create pods", set(), id="make pods"),
        pytest.param("create jobs.batch", set(), id="make Jobs"),
        pytest.param("create configmaps", set(), id="store profiles"),
    ],
)
def test_the_roles_for_people_reach_no_more_than_sessions(
    namespaces: dict[str, Kubectl], command: str, want: set[str]
) -> None:
    own = namespaces["own"]
    assert allowed(own, AUTHOR, command, {place: found.namespace for place, found in namespaces.items()}) == want
