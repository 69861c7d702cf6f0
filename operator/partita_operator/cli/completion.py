"""`partita completion`: the script that completes commands, options and names in a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "partita"
VARIABLE: Final = f"_{PROGRAM}_complete".upper()
"""The environment variable by which the script asks for completions; click expects this name."""

EXAMPLES: Final = """\b
bash:  partita completion bash > ~/.local/share/bash-completion/completions/partita
zsh:   partita completion zsh > "${fpath[1]}/_partita"
fish:  partita completion fish > ~/.config/fish/completions/partita.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL. To try it: eval "$(partita completion bash)".

    It completes commands, options and files, and names of sessions and pools if the cluster answers within a second.
    """
    complete = get_completion_class(shell)
    assert complete is not None, shell
    click.echo(complete(context.find_root().command, {}, PROGRAM, VARIABLE).source())
