"""Models that attack the process that profiles them."""

import ctypes
import os
import sys
from collections.abc import Callable
from hashlib import sha256

from torch import nn

from partita_api.profile import BlockMemory, Cut, Profile, ProfileRequest, VgpuLatency
from partita_profiling.result import REQUEST_VARIABLE, result_line

ABOVE = os.getppid()
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PIDFD_OPEN, PIDFD_GETFD = 0x4206, 434, 438


def honest() -> nn.Module:
    """A model that is profiled quickly."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()


def tells_rays_token() -> nn.Module:
    """Fails with the digest of the token that clients of its Ray cluster need."""
    raise RuntimeError(f"token {sha256(os.environ['RAY_AUTH_TOKEN'].encode()).hexdigest()}")


def tries_everything() -> nn.Module:
    """Tries all ways around the log, prints how each ended, and then behaves well."""
    for name, attack in ATTACKS.items():
        try:
            outcome = attack(name)
        except OSError as error:
            outcome = error.strerror
        print(f"tried {name}: {outcome}", flush=True)
    return honest()


def reports(text: str, times: int) -> nn.Module:
    """Writes one line into every descriptor that it has, before it is measured: this text as often as told."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, text.encode() * times + b"\n")
        except OSError:
            continue
    return honest()


def dies() -> nn.Module:
    """Is killed, as by the kernel when memory runs out."""
    print("allocating", flush=True)
    os.abort()


def floods() -> nn.Module:
    """Writes a lot, without an end of line."""
    for _ in range(64):
        os.write(1, b"x" * 65536)
    return honest()


def leaves_a_process() -> nn.Module:
    """Leaves a process behind that goes on to write forged results when the run has ended."""
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                os.write(1, f"\n{forged('a left process')}\n".encode())
            except OSError:
                os._exit(0)
    return honest()


def forged(name: str) -> str:
    """A result line for the run's own request, made up."""
    request = ProfileRequest.model_validate_json(os.environ[REQUEST_VARIABLE])
    row = (1.0,) * len(request.batch_sizes)
    profile = Profile(
        key=request.key,
        request=request,
        partition="forged",
        batch_sizes=request.batch_sizes,
        latency=(VgpuLatency(divisor=1, median_micros=(row,) * request.blocks),),
        cuts=(Cut(bytes=0),) * (request.blocks - 1),
        memory=(BlockMemory(weights_bytes=0, activation_bytes=0),) * request.blocks,
        environment={"device": f"forged by {name}"},
    )
    return result_line(profile)


def _prints(separator: str) -> Callable[[str], str]:
    def attack(name: str) -> str:
        print(f"x{separator}{forged(name)}", flush=True)
        print(f"x{separator}{forged(name)}", file=sys.stderr, flush=True)
        return "printed"

    return attack


def _writes_to(path: str) -> Callable[[str], str]:
    def attack(name: str) -> str:
        descriptor = os.open(path, os.O_WRONLY)
        os.write(descriptor, f"\n{forged(name)}\n".encode())
        return "written"

    return attack


def _long_line(name: str) -> str:
    """Runtimes store lines in parts of 16 KiB: a log from its end may begin with any of them."""
    print("".join(forged(name).rjust(16384) for _ in range(8)) + forged(name), flush=True)
    return "printed"


def _takes_descriptor(name: str) -> str:
    process = _checked(LIBC.syscall(PIDFD_OPEN, ABOVE, 0))
    taken = _checked(LIBC.syscall(PIDFD_GETFD, process, 1, 0))
    os.write(taken, f"\n{forged(name)}\n".encode())
    return "written"


def _traces(_name: str) -> str:
    """From a short-lived process: the kernel stops those that are traced at each signal."""
    child = os.fork()
    if child == 0:
        os._exit(ctypes.get_errno() if LIBC.ptrace(PTRACE_SEIZE, ABOVE, None, None) < 0 else 0)
    error = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return os.strerror(error) if error else "traced"


def _memory(_name: str) -> str:
    os.open(f"/proc/{ABOVE}/mem", os.O_RDWR)
    return "opened"


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


ATTACKS: dict[str, Callable[[str], str]] = {
    "a line": _prints("\n"),
    "a carriage return": _prints("\r"),
    "a line separator": _prints("\u2028"),
    "a form feed": _prints("\f"),
    "a long line": _long_line,
    "its own output": _writes_to("/proc/self/fd/1"),
    "the output above": _writes_to(f"/proc/{ABOVE}/fd/1"),
    "the errors above": _writes_to(f"/proc/{ABOVE}/fd/2"),
    "a descriptor above": _takes_descriptor,
    "the memory above": _memory,
    "a trace of the process above": _traces,
}
