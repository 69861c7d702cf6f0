"""What kstatus, which Flux uses, says of an object; by its rules, and by the library itself where it is given.

KSTATUS is the path of a program around `sigs.k8s.io/cli-utils/pkg/kstatus`: it reads an object as JSON or YAML from
stdin and prints the status that `status.Compute` gives.
"""

import json
import os
import subprocess
from typing import Any

Document = dict[str, Any]


def kstatus(document: Document) -> str:
    """The status of a custom resource by kstatus' rules, in their order; compared with the library's if it is given."""
    found = _by_the_rules(document)
    if program := os.environ.get("KSTATUS"):
        printed = subprocess.run(program, input=json.dumps(document), capture_output=True, text=True, check=True)
        assert printed.stdout.strip() == found, document
    return found


def disagreement(document: Document) -> str:
    """How the conditions of an object contradict what kstatus reads from them; empty if they do not.

    Failed is Stalled, InProgress is Reconciling, and Current is Ready with neither.
    """
    holds = {c["type"]: c["status"] for c in (document.get("status") or {}).get("conditions", [])}
    if not holds or document["status"]["observedGeneration"] != document["metadata"]["generation"]:
        return ""  # not processed yet
    found = _by_the_rules(document)
    want = {
        "Terminating": found == "Terminating",
        "InProgress": holds["Reconciling"] == "True",
        "Failed": holds["Stalled"] == "True",
        "Current": holds["Ready"] == "True" and "True" not in (holds["Reconciling"], holds["Stalled"]),
    }
    return "" if want[found] else f"kstatus says {found}, and the conditions are {holds}"


def _by_the_rules(document: Document) -> str:
    meta, status = document["metadata"], document.get("status") or {}
    if meta.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", meta["generation"]) != meta["generation"]:
        return "InProgress"
    conditions = [(c["type"], c["status"]) for c in status.get("conditions", [])]
    for type, holds in conditions:
        if (type, holds) == ("Reconciling", "True"):
            return "InProgress"
        if (type, holds) == ("Stalled", "True"):
            return "Failed"
    return "Current" if dict(conditions).get("Ready", "True") == "True" else "InProgress"
