"""Profiles of emulated accelerators."""

from collections.abc import Sequence

from partita_api.profile import VgpuLatency


def emulated_latency(
    curve: tuple[int, int], shares: Sequence[float], batch_sizes: Sequence[int], divisor: int
) -> VgpuLatency:
    """Times of blocks on a vGPU of 1/divisor of an accelerator whose time for a batch of b is alpha * b + beta.

    curve: (alpha, beta) in microseconds, as in Symphony, appendix C. shares: each block's share of the model's work,
    normalized to a sum of 1. On a part of an accelerator each sample takes `divisor` times as long, but the constant
    time of a batch (beta) stays: small batches leave an accelerator partly idle, so sharing it increases throughput
    (PPipe, section 3).
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
