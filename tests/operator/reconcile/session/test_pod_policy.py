"""Which parts of a session's pod template the platform allows."""

from typing import Any

import pytest
from tests.builders import session
from tests.crds.pod_templates import EVERYTHING

from partita_api.pod.template import PodTemplate
from partita_api.session.module import Module
from partita_operator.reconcile.session.pod_policy import forbidden_parts, forbidden_pods
from partita_operator.settings.pod_templates import PodField, PodTemplateSettings

ALL_NAMES = [name for name in PodTemplateSettings.model_fields if name != "allowed_fields"]
HUB = {"name": "hub", "key": "token"}


def forbidden(template: dict[str, Any], **allowed: Any) -> list[str]:
    return forbidden_parts(PodTemplate.model_validate(template), PodTemplateSettings.model_validate(allowed))


PARTS = [
    pytest.param({"image": "x:1"}, "image", {"allowed_images": ["x:*"]}, id="image"),
    pytest.param(
        {"imagePullSecrets": [{"name": "r"}]}, "imagePullSecrets[r]", {"allowed_image_pull_secrets": ["r"]}, id="pull"
    ),
    pytest.param(
        {"metadata": {"labels": {"app": "x"}}}, "metadata.labels[app]", {"allowed_labels": ["a*"]}, id="label"
    ),
    pytest.param(
        {"metadata": {"annotations": {"x.y/z": ""}}},
        "metadata.annotations[x.y/z]",
        {"allowed_annotations": ["x.y/*"]},
        id="annotation",
    ),
    pytest.param(
        {"env": [{"name": "LD_PRELOAD", "value": "x"}]},
        "env[LD_PRELOAD]",
        {"allowed_variables": ["LD_*"]},
        id="variable",
    ),
    pytest.param(
        {"env": [{"name": "TZ", "valueFrom": {"secretKeyRef": HUB}}]},
        "env[TZ].valueFrom.secretKeyRef",
        {"allowed_secrets": ["hub"]},
        id="variable of a Secret",
    ),
    pytest.param(
        {"env": [{"name": "TZ", "valueFrom": {"configMapKeyRef": HUB}}]},
        "env[TZ].valueFrom.configMapKeyRef",
        {"allowed_config_maps": ["hub"]},
        id="variable of a ConfigMap",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "secret": {"secretName": "hub"}}]},
        "volumes[v].secret",
        {"allowed_secrets": ["hub"]},
        id="volume of a Secret",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "configMap": {"name": "hub"}}]},
        "volumes[v].configMap",
        {"allowed_config_maps": ["hub"]},
        id="volume of a ConfigMap",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "hub"}}]}}]},
        "volumes[v].projected.sources[0].secret",
        {"allowed_secrets": ["hub"]},
        id="projected Secret",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "hub"}}]}}]},
        "volumes[v].projected.sources[0].configMap",
        {"allowed_config_maps": ["hub"]},
        id="projected ConfigMap",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        "volumes[v].persistentVolumeClaim",
        {"allowed_claims": ["data"]},
        id="claim",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        "volumes[v].emptyDir",
        {"allowed_fields": ["emptyDir"]},
        id="empty directory",
    ),
    pytest.param({"serviceAccountName": "m"}, "serviceAccountName", {"allowed_service_accounts": ["m"]}, id="account"),
    pytest.param(
        {"priorityClassName": "high"}, "priorityClassName", {"allowed_priority_classes": ["high"]}, id="priority"
    ),
    pytest.param({"schedulerName": "volcano"}, "schedulerName", {"allowed_schedulers": ["volcano"]}, id="scheduler"),
    pytest.param(
        {"tolerations": [{"key": "team", "operator": "Exists"}]},
        "tolerations[team]",
        {"allowed_tolerations": ["team"]},
        id="toleration",
    ),
    pytest.param(
        {"tolerations": [{"operator": "Exists"}]},
        "tolerations[*]",
        {"allowed_tolerations": ["*"]},
        id="toleration of all taints",
    ),
    pytest.param(
        {"resources": {"limits": {"cpu": "64"}}}, "resources", {"allowed_fields": ["resources"]}, id="resources"
    ),
    pytest.param(
        {"securityContext": {"fsGroup": 1}}, "securityContext", {"allowed_fields": ["securityContext"]}, id="group"
    ),
    pytest.param({"nodeSelector": {"a": "b"}}, "nodeSelector", {"allowed_fields": ["nodeSelector"]}, id="nodes"),
    pytest.param(
        {"topologySpreadConstraints": EVERYTHING["topologySpreadConstraints"]},
        "topologySpreadConstraints",
        {"allowed_fields": ["topologySpreadConstraints"]},
        id="spread",
    ),
    pytest.param({"affinity": EVERYTHING["affinity"]}, "affinity", {"allowed_fields": ["affinity"]}, id="affinity"),
]


@pytest.mark.parametrize(("template", "path", "allowing"), PARTS)
def test_a_part_is_allowed_by_its_setting_only(
    template: dict[str, Any], path: str, allowing: dict[str, list[str]]
) -> None:
    nothing = {"allowed_fields": [], "allowed_variables": ["TZ"], "allowed_labels": []}
    ((setting, (value,)),) = allowing.items()

    (problem,) = forbidden(template, **nothing)

    assert problem.startswith(f"spec.podTemplate.{path} ")
    assert f"podTemplates.{PodTemplateSettings.model_fields[setting].alias} of the chart" in problem
    assert forbidden(template, **{**nothing, setting: [value]}) == []


def test_with_everything_allowed_every_field_passes() -> None:
    assert forbidden(EVERYTHING, allowed_fields=list(PodField), **dict.fromkeys(ALL_NAMES, ("*",))) == []


@pytest.mark.parametrize(
    ("source", "path", "allowing"),
    [
        pytest.param({"image": "registry/a:1"}, "image", {"allowed_images": ["registry/*"]}, id="image"),
        pytest.param(
            {"image": "any/a:1", "resources": {"cpu": "4"}},
            "resources",
            {"allowed_fields": ["resources"]},
            id="resources",
        ),
    ],
)
def test_a_container_of_a_function_is_allowed_by_the_same_settings(
    source: dict[str, Any], path: str, allowing: dict[str, list[str]]
) -> None:
    function = {"name": "crop", "function": {"entrypoint": "shop:crop", **source}}
    made = session("traffic").model("detector").build().spec
    spec = made.model_copy(update={"modules": (*made.modules, Module.model_validate(function))})
    common = {"allowed_images": ["any/*"], "allowed_fields": []}

    (problem,) = forbidden_pods(spec, PodTemplateSettings.model_validate(common))

    assert problem.startswith(f"spec.modules[crop].function.{path} ")
    assert forbidden_pods(spec, PodTemplateSettings.model_validate({**common, **allowing})) == []


def test_by_default_a_session_reaches_no_object_and_no_code() -> None:
    paths = {problem.split()[0].removeprefix("spec.podTemplate.") for problem in forbidden(EVERYTHING)}

    assert paths == {
        "metadata.annotations[note]",
        "image",
        "imagePullSecrets[registry]",
        "env[HF_HOME]",
        "env[PARTITA_ENGINE_CACHE]",
        "env[TOKEN]",
        "env[TOKEN].valueFrom.secretKeyRef",
        "env[LEVEL]",
        "env[LEVEL].valueFrom.configMapKeyRef",
        "envFrom",
        "envFrom[0].secretRef",
        "envFrom[1].configMapRef",
        "volumes[cache].persistentVolumeClaim",
        "volumes[config].configMap",
        "volumes[hub].secret",
        "volumes[both].projected.sources[0].secret",
        "volumes[both].projected.sources[1].configMap",
        "tolerations[dedicated]",
        "tolerations[*]",
        "resources",
        "securityContext",
        "serviceAccountName",
        "priorityClassName",
        "schedulerName",
    }


def test_an_object_with_all_variables_needs_that_all_variables_are_allowed() -> None:
    template = {"envFrom": [{"configMapRef": {"name": "app"}}]}

    (problem,) = forbidden(template, allowed_config_maps=["app"], allowed_variables=["A*"])

    assert "envFrom sets variables of any name" in problem
    assert forbidden(template, allowed_config_maps=["app"], allowed_variables=["*"]) == []


@pytest.mark.parametrize(
    ("image", "is_allowed"),
    [
        pytest.param("registry.example/team-a/vision:1", True, id="of the team"),
        pytest.param("registry.example/team-a/vision@sha256:0000", True, id="by digest"),
        pytest.param("registry.example/team-b/vision:1", False, id="of another team"),
        pytest.param("evil.example/registry.example/team-a/vision:1", False, id="of another registry"),
    ],
)
def test_a_pattern_matches_the_whole_name(image: str, is_allowed: bool) -> None:
    assert (forbidden({"image": image}, allowed_images=["registry.example/team-a/*"]) == []) is is_allowed
