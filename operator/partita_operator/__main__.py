"""`python -m partita_operator` is the `partita` command."""

from partita_operator.cli.main import main

main(prog_name="partita")
