"""A slow reference of the scheduler: who computes what in a step, and who holds which KV block.

What lives here: the rules by which a step is put together (continuous batching, prefill first,
SGLang's way), KV blocks one by one with their names, preemption, speculation, and what asynchronous
scheduling sees. Both references use it: `reference_engine` for open and closed workloads,
`reference_service` with clients and a gate. What does not: the clock, arrivals, static batching,
windows, clients, and anything of `course` besides the hash that spreads draws.

Notation: b = block_size, F = blocks that nobody holds, W = floor(watermark * num_kv_blocks),
known = prompt + emitted, lacks = known - computed, hit = tokens found computed at an admission.

Readings
========
The readings of `reference_engine` hold. Those of today's rules:

41. Two blocks of one prompt may have the same name (a trace's id that comes twice in one list). The
    first one computed carries it; at a later admission both places are the same physical block,
    held twice and counted as two wherever blocks are counted by need.
42. A full block whose name is taken when it becomes full stays unnamed for good.
43. A re-admission that lacks exactly one token after its hit *decodes* (1 token, no drafts): it has
    emitted and lacks one. Not in SGLang's way, whose prefill pass knows prefills only.
44. Drafts belong to the running pass: whoever is admitted in a step verifies none in it.
45. Whoever has joined and is not visible yet stands behind everybody in the queue, also those
    who were retracted or came through the gate meanwhile.
46. Drafts verified and refused count in the budget, the step's features and the pace, not in the
    attempt's `computed_tokens`: what is computed stays.
47. In SGLang's way the head that does not fit stops the pass, as everywhere.
48. A hit given by hand (`cached_prefix_tokens`) is no find of the cache: no output counts it.
49. What a policy sees as `arrival_s` is the sending; the gate's own clock is the joining, `now_s`.
50. Sends of different times whose joinings are one double come in the order of equal times. A first
    attempt pays into the clients' budget when it joins.
51. Prefix caching is refused with static batching, and for a pool whose requests bring their KV.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


# ---------------------------------------------------------------------------------------------
# Nouns
# ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dials:
    """What decides how steps are put together, by the names of the fast engine."""

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    enable_chunked_prefill: bool = True
    num_kv_blocks: int | None = None
    block_size: int = 16
    batching: str = "continuous"
    new_token_ratio: float = 0.7  # SGLang's
    order: str = "fcfs"  # fcfs, sjf, priority
    max_wait_s: float | None = None  # of sjf
    ageing_s: float | None = None  # of priority
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    enable_prefix_caching: bool = False
    async_scheduling: bool = False
    front_end_s: float = 0.0
    num_speculative_tokens: int = 0
    acceptance: float = 0.0
    speculation_seed: int = 0
    # What prompts have in common: ids of their blocks of `prefix_block_tokens`, or groups.
    prefix_ids: Sequence[Sequence[int]] | None = None
    prefix_block_tokens: int = 512
    prefix_group: Sequence[int] | None = None
    prefix_shared_tokens: Sequence[int] | None = None


@dataclass(frozen=True)
class LongPrompts:
    """A queue of their own for prompts of more than `over_tokens`."""

    over_tokens: int
    chunk_tokens: int | None = None
    max_running: int | None = None
    max_wait_s: float | None = None


@dataclass(eq=False, kw_only=True)
class Job:
    """One sending of a row of the workload, and all that the scheduler knows about it."""

    serial: int  # its place in the order of joining
    row: int  # of the workload
    sent_s: float
    arrival_s: float  # when it joins the server: a front end later
    prompt: int
    output: int
    predicted: float
    priority_key: float
    hit: int = 0  # tokens found computed, said by hand, that still wait for the first admission
    joined_s: float = math.nan  # when it came to the place in the queue that it has
    emitted: int = 0
    computed: int = 0  # positions whose KV exists
    had: int = 0  # positions whose KV has existed at any time
    blocks: list[int] = field(default_factory=list)  # physical ones, in the order of its tokens
    named: int = 0  # its leading blocks that are full and have been offered a name
    prefilling: bool = False  # admitted, and its known tokens have not all been computed since
    admissions: int = 0
    preempted: bool = False  # it has been put to the front of the queue
    preemptions: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    prefix_hit_tokens: int = 0  # found at its first admission
    recovered_tokens: int = 0  # found at later ones

    @property
    def known(self) -> int:
        """Tokens of the prompt and the emitted ones."""
        return self.prompt + self.emitted

    @property
    def lacks(self) -> int:
        """Known tokens that have no KV yet."""
        return self.known - self.computed

    @property
    def decodes(self) -> bool:
        """Whether what it does next is a decode."""
        return self.emitted >= 1 and self.lacks - self.hit == 1


class Piece(NamedTuple):
    """What one job does in one step: `tokens` computed, as prefill or as decode with its drafts."""

    job: Any
    tokens: int
    decodes: bool


class Pool:
    """All KV blocks: who is held how often, what is cached where, and who is handed out next."""

    def __init__(self, number: int) -> None:
        self.free = list(range(number))  # head first
        self.holders = [0] * number
        self.name_of: dict[int, Hashable] = {}
        self.block_of: dict[Hashable, int] = {}

    def held(self) -> int:
        """Return how many blocks have at least one holder."""
        return sum(1 for holders in self.holders if holders > 0)

    def hand_out(self) -> int:
        """Give the block at the head of the free queue; what was cached in it is lost."""
        block = self.free.pop(0)
        if block in self.name_of:
            del self.block_of[self.name_of.pop(block)]
        self.holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a holder; a block in the free queue leaves it, with its name."""
        if self.holders[block] == 0:
            self.free.remove(block)
        self.holders[block] += 1

    def give_back(self, blocks: list[int]) -> None:
        """Take a holder from each, the last block first; those that nobody holds go to the tail."""
        for block in reversed(blocks):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free.append(block)

    def cache(self, block: int, name: Hashable) -> bool:
        """Cache a block under a name, unless that name is cached already."""
        if name in self.block_of:
            return False
        self.name_of[block] = name
        self.block_of[name] = block
        return True


@dataclass(kw_only=True)
class Scheduler:
    """The scheduler's state between two steps."""

    dials: Dials
    long_prompts: LongPrompts | None = None
    t: float = 0.0
    last_start_s: float = -math.inf  # the start of the step before
    unseen: list[Any] = field(default_factory=list)  # have joined, and are not visible yet
    waiting: list[Any] = field(default_factory=list)
    long_waiting: list[Any] = field(default_factory=list)
    running: list[Any] = field(default_factory=list)  # in order of latest admission
    pool: Pool | None = None  # None where KV is unlimited
    # How often the rarer rules were used, so that a test can show that its cases reach them.
    reached: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        check_dials(self.dials)
        if self.dials.num_kv_blocks is not None:
            self.pool = Pool(self.dials.num_kv_blocks)


def check_dials(d: Dials) -> None:
    """Refuse what the rules give no meaning to."""
    if d.order not in ("fcfs", "sjf", "priority"):
        raise ValueError(f"order is {d.order!r}")
    if not 0 <= d.watermark < 1:
        raise ValueError(f"watermark is {d.watermark}; give a share below 1")
    if not 0 <= d.new_token_ratio <= 1:
        raise ValueError(f"new_token_ratio is {d.new_token_ratio}; give a share")
    if d.batching == "sglang" and d.order != "fcfs":
        raise ValueError(f"order is {d.order!r}; SGLang's way serves first come, first served")
    if d.enable_prefix_caching:
        if d.num_kv_blocks is None:
            raise ValueError("enable_prefix_caching needs num_kv_blocks")
        if d.prefix_ids is not None and d.prefix_block_tokens % d.block_size:
            raise ValueError(
                f"block_size is {d.block_size}, which does not divide prefix_block_tokens="
                f"{d.prefix_block_tokens}"
            )
    refused = {
        "static": (d.enable_prefix_caching, d.async_scheduling, d.num_speculative_tokens > 0),
        "windowed": (False, d.async_scheduling, False),
        "adaptive": (False, d.async_scheduling, False),
    }
    if any(refused.get(d.batching, ())):
        raise ValueError(f"batching is {d.batching!r}, which does not go with a dial of today's")


# ---------------------------------------------------------------------------------------------
# KV blocks
# ---------------------------------------------------------------------------------------------
def blocks_for(tokens: int, d: Dials) -> int:
    """Return ceil(tokens / block_size)."""
    return (tokens + d.block_size - 1) // d.block_size


def kept_blocks(d: Dials) -> int:
    """Return W, the blocks that stay free at admissions."""
    return 0 if d.num_kv_blocks is None else math.floor(d.watermark * d.num_kv_blocks)


def is_rejected(prompt: int, output: int, d: Dials) -> bool:
    """Rule 1: the whole request needs more blocks, or a larger budget, than there is."""
    tokens = prompt + output - 1
    if d.num_kv_blocks is not None and blocks_for(tokens, d) > d.num_kv_blocks - kept_blocks(d):
        return True
    return not d.enable_chunked_prefill and tokens > d.max_num_batched_tokens


def free_blocks(s: Scheduler) -> float:
    """Return F; infinitely many where KV is unlimited."""
    return math.inf if s.pool is None else len(s.pool.free)


def new_blocks(s: Scheduler, a: Job, tokens: int) -> int:
    """Return how many blocks more the job needs to hold so many tokens."""
    # "blocks once held stay held until freed": after refused drafts there may be some to spare.
    return 0 if s.pool is None else max(0, blocks_for(tokens, s.dials) - len(a.blocks))


def grow(s: Scheduler, a: Job, tokens: int) -> None:
    """Take blocks from the head of the free queue until the job can hold so many tokens."""
    for _ in range(new_blocks(s, a, tokens)):
        assert s.pool is not None
        a.blocks.append(s.pool.hand_out())


def give_blocks_back(s: Scheduler, a: Job) -> None:
    """Free the job's blocks: finished, preempted, or its client gone."""
    if s.pool is not None:
        s.pool.give_back(a.blocks)
    a.blocks = []
    a.named = 0


def leave_seat(s: Scheduler, a: Job) -> None:
    """Give seat and blocks back."""
    s.running.remove(a)
    give_blocks_back(s, a)


# ---------------------------------------------------------------------------------------------
# The prefix cache
# ---------------------------------------------------------------------------------------------
def name_of_block(d: Dials, a: Job, j: int) -> Hashable:
    """Return the identity of the job's j-th block."""
    b = d.block_size
    if (j + 1) * b > a.prompt:
        return ("attempt", a.serial, j)  # it holds an emitted token
    if d.prefix_ids is not None:
        ids, size = d.prefix_ids[a.row], d.prefix_block_tokens
        if j * b // size < len(ids):
            return ("id", ids[j * b // size], j * b % size // b)
    if d.prefix_group is not None and d.prefix_shared_tokens is not None:
        group, shared = d.prefix_group[a.row], d.prefix_shared_tokens[a.row]
        if group != -1 and (j + 1) * b <= min(shared, a.prompt):
            return ("group", group, j)
    return ("request", a.row, j)


def cached_blocks(s: Scheduler, a: Job) -> list[int]:
    """Find the longest run of leading cached blocks, "at most floor((known - 1) / b)"."""
    found: list[int] = []
    if not s.dials.enable_prefix_caching:
        return found
    assert s.pool is not None
    while len(found) < (a.known - 1) // s.dials.block_size:
        block = s.pool.block_of.get(name_of_block(s.dials, a, len(found)))
        if block is None:
            break
        found.append(block)
    return found


def held_among(s: Scheduler, found: list[int]) -> int:
    """Return u: how many of the blocks found are held by running requests already."""
    return sum(1 for block in found if s.pool is not None and s.pool.holders[block] > 0)


def cache_full_blocks(s: Scheduler, pieces: Iterable[Piece]) -> None:
    """At the end of a step: "for every request that was scheduled in it, in the order of running:
    each newly full block is cached under its identity, unless that identity is cached already".
    """
    if not s.dials.enable_prefix_caching:
        return
    assert s.pool is not None
    scheduled = [piece.job for piece in pieces]
    for a in s.running:
        if a not in scheduled:
            continue
        while (a.named + 1) * s.dials.block_size <= a.computed:
            name = name_of_block(s.dials, a, a.named)
            if not s.pool.cache(a.blocks[a.named], name):
                s.reached["name taken"] += 1
            a.named += 1


# ---------------------------------------------------------------------------------------------
# What the scheduler knows of
# ---------------------------------------------------------------------------------------------
def see_arrivals(s: Scheduler) -> None:
    """Asynchronous: "step k sees requests that joined at or before the START of step k-1"; an idle
    engine "sees everybody who has joined by that start". Called at s.t, the start of a step.
    """
    move_seen(s)
    if is_idle(s):
        for a in s.unseen:
            queue_of(s, a).append(a)
        s.unseen = []
    if s.unseen:
        s.reached["not seen yet"] += 1


def move_seen(s: Scheduler) -> None:
    """Whoever joined before the step before this one began stands in the queue."""
    for a in list(s.unseen):
        if not s.dials.async_scheduling or a.arrival_s <= s.last_start_s:
            s.unseen.remove(a)
            queue_of(s, a).append(a)


def is_idle(s: Scheduler) -> bool:
    """Tell whether nobody runs and nobody visible waits."""
    return not s.running and not s.waiting and not s.long_waiting


# ---------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------
def schedule(s: Scheduler) -> list[Piece]:
    """Choose what the step computes; admissions, preemptions and blocks are done on the way."""
    if s.dials.batching == "sglang":
        return prefill_batch(s) or decode_everybody(s)
    budget = s.dials.max_num_batched_tokens
    if not s.dials.enable_chunked_prefill:
        # Prefill first: "If any was taken, the step prefills those alone and decode stands still;
        # if none, the step runs the running requests by rule 2."
        taken = waiting_pass(s, budget)
        if taken:
            return taken
        pieces, _, _ = running_pass(s)
        return pieces
    pieces, budget, somebody_preempted = running_pass(s)
    # Rule 3: "If nobody was preempted in this step"
    if not somebody_preempted:
        pieces = pieces + waiting_pass(s, budget)
    return pieces


def step_of_work(s: Scheduler) -> list[Piece]:
    """Schedule until something is: a pass that left nothing scheduled was no step (reading 23)."""
    pieces = schedule(s)
    while not pieces:
        s.reached["empty pass"] += 1
        pieces = schedule(s)
    s.last_start_s = s.t
    return pieces


def running_pass(s: Scheduler) -> tuple[list[Piece], int, bool]:
    """Rule 2. Returns the pieces, the budget left, and whether anybody was preempted."""
    pieces: list[Piece] = []
    budget = s.dials.max_num_batched_tokens
    somebody_preempted = False
    position = 0
    # "in the order of their latest admission, until the budget is used up (those left keep
    # their seat and blocks and stand still)"
    while position < len(s.running) and budget > 0:
        a = s.running[position]
        # "a request that has emitted a token and lacks exactly one token of KV decodes [...];
        # any other prefills min(what it lacks, budget left)"
        decodes = a.decodes
        n = 1 + drafts(s, a, budget - 1) if decodes else chunk(s, a, a.lacks, budget)
        # "Each first gets the KV blocks for its new total [...] While too few are free, the last
        # running request is preempted (itself, if it is the last)"
        while new_blocks(s, a, a.computed + n) > free_blocks(s):
            victim = choose_victim(s)
            somebody_preempted = True
            if s.running.index(victim) < position:
                # Reading 22, under priority only: it leaves the step, its tokens go back.
                position -= 1
                for piece in list(pieces):
                    if piece.job is victim:
                        pieces.remove(piece)
                        budget += piece.tokens
                        s.reached["withdrawn"] += 1
            preempt(s, victim)
            if victim is a:
                # "If the request preempted itself, the running pass ends."
                s.reached["preempted itself"] += 1
                return pieces, budget, True
        grow(s, a, a.computed + n)
        pieces.append(Piece(a, n, decodes))
        budget -= n
        position += 1
    return pieces, budget, somebody_preempted


def chunk(s: Scheduler, a: Job, lacks: int, budget: int) -> int:
    """Return how many of the tokens that it lacks the job would prefill in this step."""
    if not s.dials.enable_chunked_prefill and a not in s.running:
        return lacks  # taken whole or not at all
    cap = None if s.long_prompts is None else s.long_prompts.chunk_tokens
    if cap is not None and s.dials.enable_chunked_prefill and is_long(s, a) and lacks > cap:
        s.reached["chunk cap"] += 1
        lacks = cap
    return min(lacks, budget)


def choose_victim(s: Scheduler) -> Any:
    """The last running one; under `priority` the lowest (largest key, then latest)."""
    if s.dials.order == "priority":
        return max(s.running, key=lambda a: (a.priority_key, a.serial))
    return s.running[-1]


def preempt(s: Scheduler, a: Any) -> None:
    """Rule 2: "its blocks are freed, its computed tokens forgotten, its emitted tokens kept
    [...], and it goes to the *front* of the waiting queue" (its own, where there are two).
    """
    forget(s, a)
    queue_of(s, a).insert(0, a)


def forget(s: Scheduler, a: Any) -> None:
    """Take a running job's seat, blocks and computed tokens."""
    s.reached["preempted"] += 1
    leave_seat(s, a)
    a.computed = 0
    a.prefilling = False
    a.preempted = True
    a.preemptions += 1
    a.joined_s = s.t


# ---------------------------------------------------------------------------------------------
# Admission
# ---------------------------------------------------------------------------------------------
def waiting_pass(s: Scheduler, budget: int) -> list[Piece]:
    """Rule 3: waiting requests from the head, while budget > 0 and running < max_num_seqs.

    With a queue for long prompts: "(1) the long head first if it has waited > max_wait_s [...];
    (2) the other queue as usual; (3) the long queue's heads while fewer than max_running long
    requests run that still prefill".
    """
    sort_queue(s, s.waiting)
    sort_queue(s, s.long_waiting)
    pieces: list[Piece] = []

    def take(queue: list[Any]) -> bool:
        """Admit a queue's head; False ends the whole pass: no budget, no seat, or no blocks."""
        nonlocal budget
        if budget == 0 or len(s.running) >= s.dials.max_num_seqs:
            return False
        a = queue[0]
        found = cached_blocks(s, a)
        hit = a.hit + len(found) * s.dials.block_size
        n = chunk(s, a, a.lacks - hit, budget)
        if n > budget or not has_room(s, a, found, hit + n):
            return False
        decodes = a.emitted >= 1 and a.lacks - hit == 1  # the rest of a recompute
        admit(s, a, found, n)
        pieces.append(Piece(a, n, decodes))
        budget -= n
        return True

    if s.long_waiting and long_head_is_overdue(s):
        s.reached["overdue long head"] += 1
        if not take(s.long_waiting):
            return pieces
    while s.waiting:
        if not take(s.waiting):
            return pieces
    while s.long_waiting and another_long_may_run(s):
        if not take(s.long_waiting):
            return pieces
    return pieces


def has_room(s: Scheduler, a: Job, found: list[int], tokens: int) -> bool:
    """Today's rule of admission: "Needed = blocks_for(known) if scheduler_reserve_full_isl else
    blocks_for(hit + n). If needed - u > F - W the pass stops (head of line)."
    """
    needed = blocks_for(tokens, s.dials)
    room = free_blocks(s) - kept_blocks(s.dials) + held_among(s, found)
    if s.dials.scheduler_reserve_full_isl:
        whole = blocks_for(a.known, s.dials)
        if needed <= room < whole:
            s.reached["whole sequence in doubt"] += 1
        needed = whole
    if room < needed <= room + kept_blocks(s.dials):
        s.reached["kept by the watermark"] += 1
    return needed <= room


def admit(s: Scheduler, a: Any, found: list[int], n: int) -> None:
    """Give a waiting job a seat, the blocks found, and new ones for n more tokens."""
    queue_of(s, a).remove(a)
    s.running.append(a)
    for block in found:
        assert s.pool is not None
        if s.pool.holders[block]:
            s.reached["shared"] += 1
        s.pool.share(block)
    a.blocks = list(found)
    a.named = len(found)
    tokens = len(found) * s.dials.block_size
    if a.admissions == 0:
        a.prefix_hit_tokens = tokens
    else:
        a.recovered_tokens += tokens
        if any(name_of_block(s.dials, a, j)[0] == "attempt" for j in range(len(found))):
            s.reached["found what it had emitted"] += 1
    a.admissions += 1
    # A hit given by hand lies "in blocks of their own".
    a.computed = tokens + a.hit
    a.hit = 0
    a.prefilling = True
    grow(s, a, a.computed + n)


def queue_of(s: Scheduler, a: Job) -> list[Any]:
    """Return the queue in which the job waits for the engine."""
    return s.long_waiting if is_long(s, a) else s.waiting


def is_long(s: Scheduler, a: Job) -> bool:
    """Tell whether the job's prompt is one of the long ones."""
    return s.long_prompts is not None and a.prompt > s.long_prompts.over_tokens


def long_head_is_overdue(s: Scheduler) -> bool:
    """Tell whether the long queue's head has waited too long since it joined."""
    assert s.long_prompts is not None
    limit_s = s.long_prompts.max_wait_s
    return limit_s is not None and s.t - s.long_waiting[0].joined_s > limit_s


def another_long_may_run(s: Scheduler) -> bool:
    """Tell whether fewer than max_running long jobs run that still prefill."""
    assert s.long_prompts is not None
    limit = s.long_prompts.max_running
    prefilling = [a for a in s.running if is_long(s, a) and not a.decodes]
    if limit is not None and len(prefilling) >= limit:
        s.reached["long ones held"] += 1
        return False
    return True


def sort_queue(s: Scheduler, queue: list[Any]) -> None:
    """Put a queue into its order at the step's start (readings 19 to 21).

    Preempted jobs stand at the list's front already and arrivals at its tail; the sort is stable,
    so equal keys keep that.
    """
    limit_s = s.dials.max_wait_s

    def sjf(a: Job) -> tuple[int, float, int]:
        if a.preempted:
            return (0, 0.0, 0)
        # "a request that has waited longer than max_wait_s goes before all others"
        if limit_s is not None and s.t - a.arrival_s > limit_s:
            return (1, 0.0, a.serial)
        # "by predicted output tokens (ties by arrival)"
        return (2, a.predicted, a.serial)

    if s.dials.order == "sjf":
        queue.sort(key=sjf)
    elif s.dials.order == "priority":
        queue.sort(key=lambda a: (a.priority_key, a.serial))


# ---------------------------------------------------------------------------------------------
# SGLang's way
# ---------------------------------------------------------------------------------------------
def prefill_batch(s: Scheduler) -> list[Piece]:
    """Prompts, "chunked to the budget, several prompts together", that go first and alone."""
    d, ratio = s.dials, s.dials.new_token_ratio
    budget = d.max_num_batched_tokens
    pieces: list[Piece] = []
    # Tokens that will be wanted: a share of what the running ones have still to emit, ...
    reserved = sum(math.floor(ratio * (a.output - a.emitted)) for a in s.running)
    partial = [a for a in s.running if a.prefilling]
    assert len(partial) <= 1
    for a in partial:
        n = min(a.lacks, budget)
        assert new_blocks(s, a, a.computed + n) <= free_blocks(s)
        grow(s, a, a.computed + n)
        pieces.append(Piece(a, n, decodes=False))
        budget -= n
        # ... what the half-computed one of them has still to compute, ...
        reserved += a.lacks - n
        s.reached["partial"] += 1
    while s.waiting and budget > 0 and len(s.running) < d.max_num_seqs:
        a = s.waiting[0]
        found = cached_blocks(s, a)
        hit = a.hit + len(found) * d.block_size
        n = min(a.lacks - hit, budget)
        if not d.enable_chunked_prefill and n < a.lacks - hit:
            break
        to_emit = a.output - a.emitted
        if not has_room_to_the_end(s, a, found, n, to_emit, reserved):
            break
        lacks = a.lacks - hit
        admit(s, a, found, n)
        pieces.append(Piece(a, n, decodes=False))
        budget -= n
        # ... and all that is wanted by those admitted just now.
        reserved += (lacks - n) + to_emit
    return pieces


def has_room_to_the_end(
    s: Scheduler, a: Job, found: list[int], n: int, to_emit: int, reserved: int
) -> bool:
    """Tell whether a job's tokens fit "beside the future tokens of running requests"."""
    if s.pool is None:
        return True
    b, h, u = s.dials.block_size, len(found), held_among(s, found)
    room = len(s.pool.free) - kept_blocks(s.dials)
    tokens = (h - u) * b + (a.known - h * b) + to_emit - 1
    if tokens > room * b - reserved:
        s.reached["reserved for the running"] += tokens <= room * b
        return False
    return blocks_for(a.hit + h * b + n, s.dials) - u <= room


def decode_everybody(s: Scheduler) -> list[Piece]:
    """ "all running decode (budget not looked at [...]); while the decoders' new blocks together
    exceed F, one is retracted: fewest emitted tokens, then longest prompt, then latest admitted".
    """

    def tokens(a: Job) -> int:
        return 1 + drafts(s, a, None)

    def wanted() -> int:
        return sum(new_blocks(s, a, a.computed + tokens(a)) for a in s.running)

    while wanted() > free_blocks(s):
        order = {id(a): place for place, a in enumerate(s.running)}
        victim = min(s.running, key=lambda a: (a.emitted, -a.prompt, -order[id(a)]))
        forget(s, victim)
        s.waiting.append(victim)  # "it joins the TAIL of the waiting queue"
        s.reached["retracted"] += 1
    pieces = []
    for a in s.running:
        assert a.decodes
        grow(s, a, a.computed + tokens(a))
        pieces.append(Piece(a, tokens(a), decodes=True))
    return pieces


# ---------------------------------------------------------------------------------------------
# What a step costs and does
# ---------------------------------------------------------------------------------------------
def features(pieces: Iterable[Piece]) -> tuple[int, int, int, int]:
    """Rule 4: prefill tokens, prefill pairs, decode sequences, KV tokens read by decode."""
    prefill_tokens = prefill_pairs = decode_seqs = kv_tokens = 0
    for a, n, decodes in pieces:
        if decodes:
            # "sum over decoding requests of prompt + tokens emitted before this step", once also
            # where drafts are verified with them
            decode_seqs += n
            kv_tokens += a.known
        else:
            # "c * done + c(c + 1)/2; recompute counts as prefill"
            prefill_tokens += n
            prefill_pairs += n * a.computed + n * (n + 1) // 2
    return prefill_tokens, prefill_pairs, decode_seqs, kv_tokens


def step_seconds(cost: tuple[float, ...], work: tuple[int, int, int, int]) -> float:
    """Sum the cost's terms "left to right in the order of the features", the fixed one first."""
    seconds = cost[0]
    for coefficient, feature in zip(cost[1:], work, strict=True):
        seconds = seconds + coefficient * feature
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"cost gives a step of {seconds} s for features {work}; must be > 0")
    return seconds


def compute(s: Scheduler, piece: Piece) -> int:
    """Rule 5, at the step's end: the piece's tokens have their KV. Returns how many it emits."""
    a, n = piece.job, piece.tokens
    before, emits = a.computed, 0
    if piece.decodes:
        # The token, and as many drafts as are right one after the other.
        emits = 1
        while emits < n and draft_is_right(s, a, emits - 1):
            emits += 1
        s.reached["draft refused"] += emits < n
        s.reached["draft accepted"] += emits > 1
        a.computed += emits  # all known tokens but the last one emitted
    else:
        a.computed += n
        if a.lacks == 0:
            emits = 1
    a.computed_tokens += a.computed - before
    a.recomputed_tokens += max(0, min(a.had, a.computed) - before)
    a.had = max(a.had, a.computed)
    a.emitted += emits
    if emits:
        a.prefilling = False
    return emits


def drafts(s: Scheduler, a: Job, budget_left: int | None) -> int:
    """Return d: min(k, output - emitted - 1, budget left - 1), the 1 being the token's own."""
    d = min(s.dials.num_speculative_tokens, a.output - a.emitted - 1)
    return d if budget_left is None else min(d, budget_left)


def draft_is_right(s: Scheduler, a: Job, i: int) -> bool:
    """Tell whether the i-th draft (from 0) after the tokens emitted so far is accepted."""
    from course.serving.engine.clients import retry_uniform

    u = retry_uniform(s.dials.speculation_seed, a.row, a.emitted + i)
    return u < s.dials.acceptance
