"""What of a session's pod template, and of the containers of its functions, the platform does not allow."""

from collections.abc import Iterator
from typing import Final

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.pod.template import PodTemplate
from partita_api.pod.volumes import Volume
from partita_operator.pod_templates.merging import template_document
from partita_operator.settings.pod_templates import Patterns, PodField, PodTemplateSettings, allows

ALL: Final = "*"
"""The pattern for variables of any name, and for all taints."""
_WHERE: Final = "spec.podTemplate"


def forbidden_pods(spec: InferenceSessionSpec, allowed: PodTemplateSettings) -> list[str]:
    """Each forbidden part of a session's pods by its path, with what to do about it."""
    of_template = () if spec.pod_template is None else forbidden_parts(spec.pod_template, allowed)
    return [*of_template, *_of_functions(spec, allowed)]


def forbidden_parts(template: PodTemplate, allowed: PodTemplateSettings) -> list[str]:
    """Each forbidden part of a template by its path, with what to do about it."""
    return [*_fields(template, allowed), *_names(template, allowed)]


def _of_functions(spec: InferenceSessionSpec, allowed: PodTemplateSettings) -> Iterator[str]:
    for module in spec.modules:
        function, path = module.function, f"spec.modules[{module.name}].function"
        if function is None or function.image is None:
            continue
        if not allows(allowed.allowed_images, function.image):
            yield _not_named(f"{path}.image", function.image, "allowed_images", allowed)
        if function.resources is not None and PodField.RESOURCES not in allowed.allowed_fields:
            yield _not_allowed(f"{path}.resources", PodField.RESOURCES)


def _fields(template: PodTemplate, allowed: PodTemplateSettings) -> Iterator[str]:
    """Parts that name nothing."""
    present = template_document(template)
    parts = [(field, str(field)) for field in PodField if field in present]
    parts += [(PodField.EMPTY_DIR, f"volumes[{v.name}].emptyDir") for v in template.volumes if v.empty_dir is not None]
    for field, path in parts:
        if field not in allowed.allowed_fields:
            yield _not_allowed(f"{_WHERE}.{path}", field)


def _names(template: PodTemplate, allowed: PodTemplateSettings) -> Iterator[str]:
    """Parts that name something outside of the pod, or that are known by their names."""
    for path, name, setting in _named(template):
        if not allows(getattr(allowed, setting), name):
            yield _not_named(f"{_WHERE}.{path}", name, setting, allowed)
    if template.env_from and not allows(allowed.allowed_variables, ALL):
        yield (
            f"{_WHERE}.envFrom sets variables of any name, which the platform does not allow; use env, or let the "
            f"platform add {ALL} to podTemplates.allowedVariables of the chart"
        )


def _not_allowed(path: str, field: PodField) -> str:
    return (
        f"{path} is not allowed; remove it, or let the platform add {field} to podTemplates.allowedFields of the chart"
    )


def _not_named(path: str, name: str, setting: str, allowed: PodTemplateSettings) -> str:
    patterns: Patterns = getattr(allowed, setting)
    key = PodTemplateSettings.model_fields[setting].alias
    known = f"only {', '.join(patterns)}" if patterns else "none"
    return (
        f"{path} names {name}, and the platform allows {known}; remove it, or let the platform add {name} to "
        f"podTemplates.{key} of the chart"
    )


def _named(template: PodTemplate) -> Iterator[tuple[str, str, str]]:
    """Path, name and the setting that limits it."""
    for label in template.metadata.labels:
        yield f"metadata.labels[{label}]", label, "allowed_labels"
    for annotation in template.metadata.annotations:
        yield f"metadata.annotations[{annotation}]", annotation, "allowed_annotations"
    if template.image is not None:
        yield "image", template.image, "allowed_images"
    for secret in template.image_pull_secrets:
        yield f"imagePullSecrets[{secret.name}]", secret.name, "allowed_image_pull_secrets"
    for variable in template.env:
        path = f"env[{variable.name}]"
        yield path, variable.name, "allowed_variables"
        if variable.value_from is not None:
            if (of_secret := variable.value_from.secret_key_ref) is not None:
                yield f"{path}.valueFrom.secretKeyRef", of_secret.name, "allowed_secrets"
            if (of_map := variable.value_from.config_map_key_ref) is not None:
                yield f"{path}.valueFrom.configMapKeyRef", of_map.name, "allowed_config_maps"
    for number, source in enumerate(template.env_from):
        if source.secret_ref is not None:
            yield f"envFrom[{number}].secretRef", source.secret_ref.name, "allowed_secrets"
        if source.config_map_ref is not None:
            yield f"envFrom[{number}].configMapRef", source.config_map_ref.name, "allowed_config_maps"
    for volume in template.volumes:
        yield from _of_volume(volume)
    for toleration in template.tolerations:
        key = toleration.key or ALL
        yield f"tolerations[{key}]", key, "allowed_tolerations"
    if template.service_account_name is not None:
        yield "serviceAccountName", template.service_account_name, "allowed_service_accounts"
    if template.priority_class_name is not None:
        yield "priorityClassName", template.priority_class_name, "allowed_priority_classes"
    if template.scheduler_name is not None:
        yield "schedulerName", template.scheduler_name, "allowed_schedulers"


def _of_volume(volume: Volume) -> Iterator[tuple[str, str, str]]:
    path = f"volumes[{volume.name}]"
    if volume.secret is not None:
        yield f"{path}.secret", volume.secret.secret_name, "allowed_secrets"
    if volume.config_map is not None:
        yield f"{path}.configMap", volume.config_map.name, "allowed_config_maps"
    if volume.persistent_volume_claim is not None:
        yield f"{path}.persistentVolumeClaim", volume.persistent_volume_claim.claim_name, "allowed_claims"
    for number, source in enumerate(volume.projected.sources if volume.projected is not None else ()):
        if source.secret is not None:
            yield f"{path}.projected.sources[{number}].secret", source.secret.name, "allowed_secrets"
        if source.config_map is not None:
            yield f"{path}.projected.sources[{number}].configMap", source.config_map.name, "allowed_config_maps"
