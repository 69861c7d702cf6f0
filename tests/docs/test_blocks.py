"""Each block of commands on a page is pasted by a test, or says what a test would need for it."""

from typing import Final

import pytest
from tests.architecture.sources import ROOT, documents
from tests.docs.pages import NEEDS_NODES, SHELL, Block, all_blocks, blocks

RUNNABLE: Final = (*SHELL, "python")
LANGUAGES: Final = {*RUNNABLE, "yaml", "json", "dockerfile", "text"}
NEEDS: Final = {
    "it needs a container engine",
    NEEDS_NODES,
    "it runs these tests",
    "it takes an hour",
    "it takes minutes and all cores",
    "it installs packages",
    "it builds an image as root",
    "it needs a domain, a certificate and a proxy",
    "it needs another machine",
    "it runs until Ctrl-C",
}
PAGES_OF_FILES, PAGES_OF_SESSIONS = "docs/test_file_pages.py", "docs/test_session_pages.py"
INSTALLATION_PAGES, CLIENT_PAGES = "docs/test_installation_pages.py", "docs/test_client_pages.py"
PYTHON_PAGES, TRIAL_PAGE = "docs/test_python_pages.py", "docs/test_trial_page.py"
RUN_BY: Final[dict[str, set[str]]] = {
    "README.md": {PAGES_OF_SESSIONS, INSTALLATION_PAGES},
    "examples/traffic/README.md": {PAGES_OF_SESSIONS, CLIENT_PAGES},
    "docs/concepts/engines.md": {INSTALLATION_PAGES},
    "docs/concepts/plan-changes.md": {PAGES_OF_SESSIONS},
    "docs/concepts/profiling.md": {PAGES_OF_FILES},
    "docs/concepts/scheduling.md": {PYTHON_PAGES},
    "docs/development.md": {"devtools/test_environment.py"},
    "docs/faq.md": {PAGES_OF_SESSIONS},
    "docs/get-started/first-session.md": {PAGES_OF_SESSIONS, CLIENT_PAGES},
    "docs/get-started/install.md": {INSTALLATION_PAGES},
    "docs/get-started/local.md": {"devtools/local/test_local_page.py"},
    "docs/get-started/uninstall.md": {INSTALLATION_PAGES},
    "docs/get-started/trial.md": {TRIAL_PAGE, "cluster/test_trial.py"},
    "docs/internals/planner.md": {PYTHON_PAGES},
    "docs/reference/cli-plan.md": {PAGES_OF_FILES, PAGES_OF_SESSIONS},
    "docs/reference/cli.md": {PAGES_OF_FILES, PAGES_OF_SESSIONS},
    "docs/reference/client-api.md": {CLIENT_PAGES},
    "docs/reference/functions.md": {PYTHON_PAGES},
    "docs/reference/sdk.md": {PYTHON_PAGES, "e2e/test_sdk.py"},
    "docs/reference/settings.md": {INSTALLATION_PAGES},
    "docs/tasks/alerts.md": {"operator/chart/test_alerts.py"},
    "docs/tasks/admission.md": {"operator/handlers/test_admission.py"},
    "docs/tasks/approval.md": {PAGES_OF_SESSIONS},
    "docs/tasks/doctor.md": {PAGES_OF_FILES},
    "docs/tasks/dra.md": {"operator/handlers/pools/test_device_pools.py"},
    "docs/tasks/gpus.md": {"operator/handlers/pools/test_mig_nodes.py"},
    "docs/tasks/mig.md": {PAGES_OF_FILES},
    "docs/tasks/mps.md": {PAGES_OF_SESSIONS},
    "docs/tasks/elastic.md": {PAGES_OF_SESSIONS},
    "docs/tasks/event-streams.md": {CLIENT_PAGES},
    "docs/tasks/models.md": {PAGES_OF_SESSIONS},
    "docs/tasks/monitoring.md": {PAGES_OF_SESSIONS, INSTALLATION_PAGES},
    "docs/tasks/quality.md": {"operator/cli/offline/test_quality.py"},
    "docs/tasks/quotas.md": {PAGES_OF_SESSIONS},
    "docs/tasks/request-log.md": {PYTHON_PAGES},
    "docs/tasks/scale-to-zero.md": {PAGES_OF_SESSIONS, PAGES_OF_FILES},
    "docs/tasks/simulation.md": {PAGES_OF_FILES, PYTHON_PAGES},
    "docs/tasks/transport-tls.md": {"operator/engines/kuberay/test_on_api_server.py"},
    "docs/tasks/upgrade.md": {INSTALLATION_PAGES},
    "docs/tasks/what-if.md": {PAGES_OF_FILES, PAGES_OF_SESSIONS},
    "docs/troubleshooting.md": {PAGES_OF_SESSIONS},
}
"""The tests below tests/ that run the blocks of a page; each takes all blocks of the page, so a new one fails it."""


def test_blocks_have_a_language() -> None:
    found = {str(block): block.language for page in documents() for block in blocks(str(page.relative_to(ROOT)))}

    assert {place: language for place, language in found.items() if language not in LANGUAGES} == {}


def test_code_is_fenced() -> None:
    """An indented block has no language, and no button that copies it."""
    for page in documents():
        fenced, before = False, ""
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            assert fenced or before or not line.startswith("    ") or line.lstrip()[:3] == "```", f"{page}:{number}"
            before = line


@pytest.mark.parametrize("block", [*all_blocks(*RUNNABLE)], ids=str)
def test_commands_and_programs_are_run(block: Block) -> None:
    if block.not_run is not None:
        assert block.not_run in NEEDS
        return
    for test in RUN_BY[block.page]:
        assert f'"{block.page}"' in (ROOT / "tests" / test).read_text(), f"{test} does not read {block.page}"


def test_each_row_has_commands_or_programs() -> None:
    assert RUN_BY.keys() == {block.page for block in all_blocks(*RUNNABLE) if block.not_run is None}


def test_each_reason_is_used() -> None:
    assert {block.not_run for block in all_blocks(*RUNNABLE)} - {None} == NEEDS
