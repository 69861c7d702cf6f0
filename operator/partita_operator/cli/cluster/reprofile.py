"""`partita reprofile`: has the models of a session measured again."""

import click

from partita_api.inferencesession import InferenceSession
from partita_api.session.module import ModelSource
from partita_operator.cli.cluster.api_server import ApiServer
from partita_operator.cli.cluster.name_completion import session_argument
from partita_operator.cli.cluster.options import ClusterPlace, cluster_options
from partita_operator.cli.output import OutputFormat, emit, output_option, report


@click.command()
@session_argument
@click.option("--module", "modules", multiple=True, help="Only the model of this module (may be repeated).")
@cluster_options
@output_option
def reprofile(session: str, modules: tuple[str, ...], place: ClusterPlace, output: OutputFormat) -> None:
    """Profile the models of SESSION again, because their files have changed, or a branch has moved.

    This deletes their profiles in the session's namespace. The operator makes them again. If the content is another
    one, it makes another plan, and moves to it as to any plan; until then, present replicas serve on. Other sessions of
    the namespace with the same models do the same.
    """
    server = ApiServer(place)
    found = server.session(session)
    models = _models(found, modules)
    profiles = [profile for profile in server.profiles() if profile.request.model in models]
    if not profiles:
        raise click.ClickException(f"The models of {found.key} have no profiles that could be made again.")
    for profile in profiles:
        server.delete_profile(profile.key)
    pools = sorted({profile.request.pool for profile in profiles})
    keys = sorted(profile.key for profile in profiles)
    emit({"session": found.key, "deletedProfiles": keys, "pools": pools}, output)
    report(f"{found.key}: {len(keys)} profiles are deleted; the operator makes them again on {', '.join(pools)}")


def _models(session: InferenceSession, names: tuple[str, ...]) -> list[ModelSource]:
    """The models of the session, or of these modules. Raises BadParameter for a module without a model."""
    models = {module.name: module.model for module in session.spec.modules if module.model is not None}
    if unknown := [name for name in names if name not in models]:
        raise click.BadParameter(
            f"{session.key} has no module {unknown[0]} with a model; its modules with a model are: "
            f"{', '.join(models) or 'none'}",
            param_hint="--module",
        )
    return [model for name, model in models.items() if not names or name in names]
