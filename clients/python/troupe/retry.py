"""Whether and when a refused request is sent again."""
from __future__ import annotations

import dataclasses
import random

from .errors import Refused


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """A request that was refused with a time to wait is sent again after that time, then after twice that, and so on. Each
    wait is lengthened by a random part of up to a half, so that clients that were refused together do not come back
    together. Nothing was computed for a refused request, so this is safe."""

    max_retries: int = 2
    """Attempts after the first; 0: a refusal is raised at once."""
    max_delay: float = 30.0
    """Seconds of one wait, without the random part; where the server asks for a longer one, there is no retry."""
    seed: int | None = None
    """Of the random parts; None: another one each time."""


class Backoff:
    """The waits of one request."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._retries = 0
        self._random = random.Random(policy.seed)

    def next(self, refusal: Refused) -> float | None:
        """Seconds to wait before the request is sent again; None: it is not."""
        policy, least = self._policy, refusal.retry_after
        # A draining server closes the connection: what is sent again goes to the next one, not to this.
        if least is None or refusal.outcome == "draining":
            return None
        if self._retries >= policy.max_retries or least > policy.max_delay:
            return None
        delay = min(max(0.001, least) * 2.0 ** self._retries, policy.max_delay)
        self._retries += 1
        return delay * (1 + self._random.random() / 2)
