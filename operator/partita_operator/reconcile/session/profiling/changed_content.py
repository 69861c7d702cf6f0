"""Models whose content has changed since they were profiled: their profiles are forgotten, so that they are made again.

A replica that finds other content than its plan names refuses to start. If profiling finds the same content again, only
some nodes have other content. Then the profile is not made a third time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from partita_api.pipelineplan import PipelinePlan, ProfileRef
from partita_operator.reconcile.actions import Event, ForgetProfile
from partita_operator.reconcile.reasons import Severity
from partita_operator.reconcile.world import SessionWorld


@dataclass(frozen=True)
class ContentChanges:
    """What replicas have found since the models were profiled."""

    confirmed: tuple[str, ...] = ()
    """Contents that replicas did not find, and that profiling looks for again or has found again."""
    actions: tuple[ForgetProfile, ...] = ()
    events: tuple[Event, ...] = ()


def content_changes(world: SessionWorld) -> ContentChanges:
    """The profiles to forget, because replicas have found other content."""
    refused = dict(_refused(world))
    confirmed = {content for content in world.session.status.confirmed_contents if _is_kept(world, content)}
    confirmed |= {ref.content for ref in refused if ref.content is not None and ref.key not in world.profiles}
    outdated = [ref for ref in refused if ref.content not in confirmed and _is_of(world, ref)]
    return ContentChanges(
        tuple(sorted(confirmed)),
        tuple(ForgetProfile(key) for key in sorted({ref.key for ref in outdated})),
        tuple(_event(ref, refused[ref]) for ref in outdated),
    )


def _is_of(world: SessionWorld, ref: ProfileRef) -> bool:
    """Whether the present profile has the content that the plan names."""
    return ref.content is not None and ref.key in world.profiles and world.profiles[ref.key].content == ref.content


def _refused(world: SessionWorld) -> Iterator[tuple[ProfileRef, str]]:
    """The profiles of models whose replicas refuse to start, with a plan that was made from each."""
    for serving in world.serving.plans if world.serving is not None else ():
        plan = world.plans.get(serving.plan)
        changed = {stage.module for stage in serving.stages if stage.content_changed}
        if plan is not None and changed:
            yield from ((ref, serving.plan) for ref in _of_same_models(world, plan, changed))


def _of_same_models(world: SessionWorld, plan: PipelinePlan, modules: set[str]) -> list[ProfileRef]:
    """The plan's profiles of these modules, and of others with the same model: size classes have one model."""
    model_of = {ref: world.profiles[ref.key].request.model for ref in plan.spec.profiles if ref.key in world.profiles}
    models = [model for ref, model in model_of.items() if ref.module in modules]
    return [ref for ref in plan.spec.profiles if ref.module in modules or model_of.get(ref) in models]


def _is_kept(world: SessionWorld, content: str) -> bool:
    """Whether a plan names the content, and no profile that was made again has another one."""
    refs = [ref for plan in world.plans.values() for ref in plan.spec.profiles if ref.content == content]
    return bool(refs) and all(
        ref.key not in world.profiles or world.profiles[ref.key].content == content for ref in refs
    )


def _event(ref: ProfileRef, plan: str) -> Event:
    message = (
        f"The model of module {ref.module} has other content than when plan {plan} was made. It is profiled again on "
        f"pool {ref.pool}."
    )
    return Event(Severity.NORMAL, "ContentChanged", message)
