"""M/M/c/K, several servers behind one bounded line, over many loads; other queues live elsewhere.

A birth–death process: what an accepted request finds fixes how long it waits, so means, quantiles
and the share turned away all follow from one table of probabilities. Times are in mean service
times of one server, 1/μ, because nothing but the load, the servers and the places matters then;
multiply by 1/μ for seconds. One server gives M/M/1/K.

Source: Kleinrock, *Queueing Systems* I (1975), section 3.8 for the probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least, numbers, whole

_GRID = 160
_POLISH = 5
LARGEST_PLACES = 10_000


@dataclass(frozen=True)
class BoundedPool:
    """Long-run figures of M/M/c/K, one entry a load; times in mean service times, 1/μ.

    `load` is the work offered over the capacity, λ/(c·μ). Waits and times in system are of those
    who are accepted; `rejected_share` is the share of arrivals turned away.
    """

    load: FloatArray
    servers: int
    waiting_places: int
    rejected_share: FloatArray
    mean_wait_services: FloatArray
    _found: FloatArray = field(repr=False)

    @property
    def mean_sojourn_services(self) -> FloatArray:
        """Mean wait plus one mean service."""
        return self.mean_wait_services + 1

    def wait_quantile_services(self, p: float) -> FloatArray:
        """Return the waits that a share `p` (0 < p < 1) of the accepted do not exceed.

        Raises ValueError for a `p` outside.

        >>> mmck([0.5], servers=4, waiting_places=8).wait_quantile_services(0.5)
        array([0.])
        """
        return self._quantile(p, wait_only=True)

    def sojourn_quantile_services(self, p: float) -> FloatArray:
        """Return the times in system that a share `p` (0 < p < 1) of the accepted do not exceed.

        Raises ValueError for a `p` outside.

        >>> mmck([0.8], servers=1, waiting_places=0).sojourn_quantile_services(0.99).round(6)
        array([4.60517])
        """
        return self._quantile(p, wait_only=False)

    def _quantile(self, p: float, *, wait_only: bool) -> FloatArray:
        tail = 1 - at_least("p", p, above=True)
        if tail <= 0:
            raise ValueError(f"p={p!r} is not a share below 1; write 0.99 for the 99th percentile")
        answer = np.zeros(self.load.size)
        if wait_only and self.waiting_places == 0:
            return answer
        grid = self._grid(tail)
        # From one table for all loads comes a bracket for each; a few exact steps then close it.
        table = np.log(np.maximum(self._found @ self._longer(grid, wait_only).T, 1e-300))
        wanted = np.log(tail)
        open_ = np.flatnonzero(table[:, 0] > wanted)
        after = np.argmax(table[open_] <= wanted, axis=1)
        low, high = grid[after - 1], grid[after]
        over, under = table[open_, after - 1] - wanted, table[open_, after] - wanted
        moved = np.zeros(open_.size)
        for _ in range(_POLISH):
            middle = low + (high - low) * over / (over - under)
            excess = np.log((self._found[open_] * self._longer(middle, wait_only)).sum(1)) - wanted
            side = np.where(excess > 0, 1.0, -1.0)
            # An end that stands still twice has its excess halved (the Illinois rule): without
            # that the bracket closes from one side only, and slowly.
            kept = np.where(side == moved, 0.5, 1.0)
            over, under = np.where(side > 0, (excess, under * kept), (over * kept, excess))
            low, high = np.where(side > 0, (middle, high), (low, middle))
            moved = side
        answer[open_] = middle
        return answer

    def _grid(self, tail: float) -> FloatArray:
        """Times from zero to beyond the slowest request's quantile, denser where they are short."""
        from scipy.special import gammainccinv

        # One of wait and service exceeds its own quantile of half the tail.
        longest_wait = gammainccinv(max(self.waiting_places, 1), tail / 2) / self.servers
        longest = 1.001 * (longest_wait - np.log(tail / 2))
        return np.append(0.0, np.geomspace(1e-4 * longest, longest, _GRID))

    def _longer(self, time: FloatArray, wait_only: bool) -> FloatArray:
        """Chance that what takes `time` is not over, (time, number found on arrival).

        Who finds n ≥ c in the system waits for k = n − c + 1 services at rate c, an Erlang time,
        and is then served: P(T > t) = P(W > t) + s(k) with s(k) = P(W ≤ t < W + S). Expanding its
        integral gives s(k) = e^−ct·(ct)ᵏ/k! + (1 − 1/c)·s(k+1): positive terms all the way down.
        """
        c, places = self.servers, self.waiting_places
        if c == 1 and not wait_only:  # n + 1 services at one rate
            return np.cumsum(_poisson(time, places + 1), axis=1)
        arrivals = _poisson(c * time, places + 1)
        idle = np.zeros((time.size, c)) if wait_only else np.repeat(np.exp(-time)[:, None], c, 1)
        longer = np.concatenate([idle, np.cumsum(arrivals[:, :-1], axis=1)], axis=1)
        if not wait_only:
            served = _last_served(c, places + 1, time)
            for k in range(places, 0, -1):
                served = arrivals[:, k] + (1 - 1 / c) * served
                longer[:, c + k - 1] += served
        return longer


def mmck(load: npt.ArrayLike, servers: int, waiting_places: int) -> BoundedPool:
    """Return the figures of M/M/c/K for each of `load` = λ/(c·μ), times in mean services 1/μ.

    `waiting_places` come on top of the `servers`: K is their sum. Always stable, also for loads of
    1 and more. Raises ValueError for a load that is not above zero, fewer than one server, or more
    than 10,000 places.

    >>> pool = mmck([1.0], servers=1, waiting_places=3)
    >>> pool.rejected_share, pool.mean_sojourn_services
    (array([0.2]), array([2.5]))
    """
    offered = numbers("load", np.atleast_1d(np.asarray(load, dtype=np.float64)))
    for i in np.flatnonzero(offered <= 0)[:1]:
        raise ValueError(f"load[{i}]={offered[i]} is not above 0; give positive loads λ/(c·μ)")
    servers = whole("servers", servers, high=LARGEST_PLACES)
    waiting_places = whole("waiting_places", waiting_places, low=0, high=LARGEST_PLACES)
    # Birth rate over death rate at each step up; as logarithms, so that no product overflows.
    busy = np.minimum(np.arange(1, servers + waiting_places + 1), servers)
    steps = np.log(offered)[:, None] + np.log(servers / busy)[None, :]
    logs = np.concatenate([np.zeros((offered.size, 1)), np.cumsum(steps, axis=1)], axis=1)
    states = np.exp(logs - logs.max(axis=1, keepdims=True))
    states /= states.sum(axis=1, keepdims=True)
    accepted = states[:, :-1]
    found = accepted / accepted.sum(axis=1, keepdims=True)
    ahead = np.arange(1, waiting_places + 1) / servers
    return BoundedPool(
        load=offered,
        servers=servers,
        waiting_places=waiting_places,
        rejected_share=states[:, -1],
        mean_wait_services=found[:, servers:] @ ahead,
        _found=found,
    )


def _poisson(mean: FloatArray, count: int) -> FloatArray:
    """Chance of 0 … count − 1 arrivals for each mean, (mean, number)."""
    from scipy.special import gammaln, xlogy

    n = np.arange(count)
    return np.asarray(np.exp(xlogy(n, mean[:, None]) - mean[:, None] - gammaln(n + 1)))


def _last_served(servers: int, k: int, time: FloatArray) -> FloatArray:
    """s(k) in closed form, (c/(c−1))ᵏ·e^−t·P(Erlang(k, c−1) ≤ t), where the recursion begins."""
    from scipy.special import gammainc

    finished = gammainc(k, (servers - 1) * time)
    logs = k * np.log(servers / (servers - 1)) - time + np.log(np.maximum(finished, 1e-308))
    return np.asarray(np.where(finished > 0, np.exp(np.minimum(logs, 0.0)), 0.0))
