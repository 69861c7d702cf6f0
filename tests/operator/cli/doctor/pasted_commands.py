"""Whether the commands of findings can be pasted into a shell."""

import shlex
import subprocess
from collections.abc import Iterable

from click.testing import CliRunner

from partita_operator.cli.doctor.findings import CheckFinding, Level
from partita_operator.cli.main import main

PROGRAMS = {"kubectl", "helm", "partita", "uptime", "ps", "sort", "head", "df", "nvidia-smi", "apt-get", "unset"}
ONLY_READ = ("uptime", "ps", "df")
"""Programs that every machine has and that change nothing: their commands are run."""


def check_commands(findings: Iterable[CheckFinding]) -> None:
    """Fails if a finding has a command without an action, an unknown program, or flags that `partita` refuses."""
    for finding in findings:
        assert finding.message.endswith("."), finding
        assert not finding.action or finding.action.endswith("."), finding
        assert finding.action or not finding.command, finding
        assert finding.action or finding.level in (Level.OK, Level.SKIPPED), finding
        if finding.command.startswith(ONLY_READ):
            subprocess.run(finding.command, shell=True, check=True, stdout=subprocess.DEVNULL)
        for part in finding.command.split(" | ") if finding.command else ():
            program, *arguments = shlex.split(part)
            known = program in PROGRAMS or program.startswith("/")
            assert known, finding
            if program == "partita":
                result = CliRunner().invoke(main, [*arguments, "--help"])
                assert result.exit_code == 0, (finding, result.output)
