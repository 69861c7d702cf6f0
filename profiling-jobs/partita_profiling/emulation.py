"""Profiles of accelerators that are not there."""

from collections.abc import Sequence

from partita_api.profile import VgpuLatency


def emulated_latency(
    curve: tuple[int, int], shares: Sequence[float], batch_sizes: Sequence[int], divisor: int
) -> VgpuLatency:
    """Times of blocks on a vGPU of 1/divisor of an accelerator whose time for a batch of b is alpha * b + beta.

    curve: (alpha, beta) in microseconds, as in Symphony, appendix C. shares: each block's part of the whole model's
    work; made to sum to 1. On a part of an accelerator each sample takes `divisor` times as long, while the time
    that a batch takes whatever its size (beta) stays: small batches leave an accelerator partly idle, which is what
    sharing it gains (PPipe, section 3).
    """
    alpha, beta = curve
    total = sum(shares)
    return VgpuLatency(
        divisor=divisor,
        median_micros=tuple(
            tuple(round(share / total * (alpha * divisor * batch + beta), 3) for batch in batch_sizes)
            for share in shares
        ),
    )
