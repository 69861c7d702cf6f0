"""The subcommands `partita dev` and `partita demo`.

`partita_operator.cli.main` finds them if this package is installed. May import `control_plane`, `demo`, `environment`,
`errors`, `nodes`, `operator_process`, `ray_cluster` and `release`.
"""
