"""The commands that messages propose. A message has each of them in backquotes; tests run them."""

from typing import Final

from partita_api.meta import APPROVED_ANNOTATION, POOL_LABEL, RETRY_ANNOTATION, ObjectMeta

_NO_FINALIZERS: Final = '{"metadata":{"finalizers":null}}'


def approve_plan(session: str, plan: ObjectMeta) -> str:
    """Approves a plan of the session of this name."""
    return f"`kubectl annotate isess {session} {_namespace(plan)} --overwrite {APPROVED_ANNOTATION}={plan.name}`"


def approve_partitioning(pool: ObjectMeta, change: str) -> str:
    """Approves a change of a pool's MIG slices."""
    return f"`kubectl annotate gpool {pool.name} --overwrite {APPROVED_ANNOTATION}={change}`"


def retry_profiling(session: ObjectMeta) -> str:
    """Starts failed profiling runs again, without a change of the spec."""
    return f'`kubectl annotate isess {session.name} {_namespace(session)} --overwrite {RETRY_ANNOTATION}="$(date)"`'


def explain(session: ObjectMeta) -> str:
    """Shows the plan of a session, its reasons, and the load."""
    return f"`kubectl partita explain isess/{session.name} {_namespace(session)}`"


def resume(session: ObjectMeta) -> str:
    """Ends the pause of a session."""
    return f"`kubectl partita resume isess/{session.name} {_namespace(session)}`"


def undo_rollback(session: ObjectMeta) -> str:
    """Ends the rollback of a session."""
    return f"`kubectl partita rollback --undo isess/{session.name} {_namespace(session)}`"


def remove_finalizers(session: ObjectMeta) -> str:
    """Completes the deletion of a session whose engine never comes back."""
    return f"`kubectl patch isess {session.name} {_namespace(session)} --type merge -p '{_NO_FINALIZERS}'`"


def remove_node_label(node: str, label: str) -> str:
    """Removes a label of a node."""
    return f"`kubectl label node {node} {label}-`"


def describe_pool(pool: str) -> str:
    """Shows the conditions of a pool."""
    return f"`kubectl describe gpool {pool}`"


def waiting_pods(pool: ObjectMeta) -> str:
    """Shows the pods of a pool that wait for a node."""
    return f"`kubectl get pods -A -l {POOL_LABEL}={pool.name} --field-selector status.phase=Pending`"


def _namespace(meta: ObjectMeta) -> str:
    return f"-n {meta.namespace or 'default'}"
