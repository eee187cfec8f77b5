"""The records that pass into the service's loop: what it reads, keeps and writes; no code is here.

Named tuples of flat arrays and plain numbers. The compiled loop takes numpy arrays, the plain one
lists of the same numbers, so nothing in them has two dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

from course.serving._arguments import FloatArray, IntArray, SmallArray, TinyArray


class Asked(NamedTuple):
    """The workload: one entry a request."""

    arrival_s: FloatArray  # in a closed loop: empty, for it is decided by the run
    prompt: IntArray
    output: IntArray
    cached: IntArray  # prompt tokens that the prefix cache holds; empty: none
    guess: IntArray  # predicted output tokens
    value: FloatArray  # priority, smaller is more urgent; empty: all 0
    tenant: SmallArray  # number of the tenant's bucket; empty: no buckets
    think_s: FloatArray  # (closed) the pause after its end; empty: the same for all
    names: IntArray  # of prompt blocks: by entry, or by request the name of its group
    name_begin: IntArray  # where each request's entries begin, and one end more; empty: groups
    shared: IntArray  # (groups) tokens that it shares with its group; empty: no groups


class Terms(NamedTuple):
    """Engine, clients and gate as plain numbers."""

    seats: int
    budget: int
    chunked: bool
    blocks: int  # -1: no limit
    block_size: int
    order: int
    cost: int
    horizon_s: float
    max_wait_s: float
    ageing_s: float
    # clients
    ttft_s: float  # inf: no limit
    e2e_s: float
    e2e_per_token_s: float
    noticed: bool
    attempts: int
    delay_s: float
    jitter: float
    round_trip_s: float
    budget_share: float  # -1: no budget
    budget_burst: float
    seed: int
    closed: bool
    think_s: float
    fruitless: int  # attempts without a success after which a run will never end; -1: any number
    # admission
    own_policy: bool
    most_waiting: int  # -1: no limit
    most_waiting_tokens: int
    most_wait_s: float  # inf: no limit, as the two below
    urgent_wait_s: float
    degrade_wait_s: float
    least_urgent: float
    degrade_to: int
    gated: bool
    watermark: float
    tenant_tokens_per_s: float  # -1: no buckets
    tenant_burst: float
    # long prompts
    split: bool
    long_over: int
    long_chunk: int
    long_running: int
    long_wait_s: float
    handed: bool  # requests come with their prompt computed and one token emitted
    # the scheduler
    whole_fits: bool  # who is admitted must find blocks for all its known tokens
    kept_blocks: int  # that an admission leaves free
    asynchronous: bool
    alone: bool  # prefills go first and alone, in pieces, and reserve what answers will need
    token_ratio: float  # of that, the share that a running answer reserves
    drafts: int  # tokens that a decode step guesses ahead
    acceptance: float
    draft_seed: int
    window_s: float  # an idle engine waits for company; -1: it does not
    adaptive: bool
    company: int  # as many as end the wait
    caching: bool
    name_tokens: int  # tokens a name stands for; 0: no names by entry
    table_shift: int
    width: int  # (prefix caching) blocks that a seat may hold
    logged: bool  # interruptions are written down: there may be some


class Attempts(NamedTuple):
    """What is known of each attempt, in order of sending; grows."""

    request: SmallArray
    number: SmallArray  # 1 for the first of its request
    sent_s: FloatArray
    verdict: TinyArray
    status: TinyArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    end_s: FloatArray
    output: SmallArray
    emitted: SmallArray
    computed: IntArray
    recomputed: IntArray
    preemptions: SmallArray
    high: SmallArray  # most tokens that it ever had in the cache
    place: TinyArray  # which queue it is in, or RUNS, or OUT
    before: SmallArray  # neighbours in its queue
    after: SmallArray
    due_s: FloatArray  # when its client will look at the clock next
    gives: SmallArray  # heap of attempts by that time
    leavers: SmallArray  # attempts whose clients have gone since the last step's start
    joined_s: FloatArray  # (long prompts) when it joined its queue last
    rank: FloatArray  # (not first-come) its key in the order
    heap: SmallArray  # (not first-come) the queue by that key
    long_heap: SmallArray  # (not first-come, long prompts)
    entered_s: FloatArray  # (with a door) when it came in; NaN: it never did, or not that way
    # one entry each time that somebody takes a seat
    stay_attempt: SmallArray
    stay_from: SmallArray  # the first step in the seat
    stay_to: SmallArray  # the first step without it; -1: it is there still
    stay_ready: SmallArray  # the step that computed all it lacked; -1: none yet;
    # below: all but one token, which counts as a decode, from the step -2 - this number on
    stay_cached: SmallArray  # tokens that were in the cache when it sat down
    stay_emitted: SmallArray  # tokens that it had emitted by then
    first_step: SmallArray  # the step that brought its first token
    gap: SmallArray  # (logged) its last row of gaps
    hit: SmallArray  # (prefix caching) tokens found at its first admission
    recovered: SmallArray  # (prefix caching) and at later ones


class Gaps(NamedTuple):
    """Where an attempt's tokens do not fall on consecutive decode steps; grows."""

    attempt: SmallArray
    tokens: SmallArray  # emitted before it
    lost: SmallArray  # the first step without it
    back: SmallArray  # the step in which it was admitted again; -1: it never was; KEPT: it stayed
    resumed: SmallArray  # the step that brought its next token; -1: none before the next gap


class Bursts(NamedTuple):
    """(Speculation) each time that an attempt emitted tokens; grows."""

    attempt: SmallArray
    step: SmallArray
    tokens: SmallArray


class Pool(NamedTuple):
    """(Prefix caching) the blocks; of fixed size, but for `row`, which grows with the seats."""

    ends: IntArray  # of the queue of free blocks, and how many they are
    holders: SmallArray  # by block: running attempts that hold it
    name: IntArray  # by block; -1: it has none
    ahead: SmallArray  # by free block: its neighbours in the queue
    behind: SmallArray
    table: SmallArray  # blocks, to be found by name
    found: IntArray  # the leading blocks of whoever is looked at
    row: SmallArray  # by seat: its blocks in the order of its sequence


class Steps(NamedTuple):
    """What is written down of each step; grows."""

    start_s: FloatArray
    end_s: FloatArray
    prefill_tokens: SmallArray
    decode_seqs: SmallArray
    blocks: IntArray  # empty: no limit
    running: SmallArray
    waiting: SmallArray


class Seats(NamedTuple):
    """The running attempts; grows with them."""

    running: IntArray  # seats in the order of admission
    vacant: IntArray  # the free seats
    attempt: IntArray
    output: IntArray
    emitted: IntArray
    known: IntArray  # prompt + emitted
    lack: IntArray  # known tokens that are not in the cache
    begun: IntArray  # tokens that were in the cache when it took the seat
    since: IntArray  # the tick at which what stands here was so
    held: IntArray  # KV blocks
    room: IntArray  # tokens for which those still have room
    chunk: IntArray  # tokens it computes in the step in hand
    long: IntArray  # 1: its prompt is a long one
    gap: IntArray  # the row of gaps that is open; -1: none
    named: IntArray  # (prefix caching) leading blocks that were given names, or found by them
    stay: IntArray  # its entry among the stays


class Server(NamedTuple):
    """What the loop keeps besides; of fixed size."""

    at: IntArray  # running totals
    clock: FloatArray  # times and amounts
    next_s: FloatArray  # by request (closed: by user): when they send next
    sends: IntArray  # heap of those who will, by that time
    current: IntArray  # (closed) by user: the request to send again; -1: a new one
    owner: IntArray  # (closed) by request: its user
    tries: IntArray  # by request: attempts so far
    first_s: FloatArray  # by request: when the first was sent
    factor: FloatArray  # how many delays a client waits after attempt 1, 2, …
    phases: IntArray  # by residue of the tick: decoders that need a KV block then
    level: FloatArray  # by tenant: tokens in the bucket
    level_s: FloatArray  # by tenant: when that was so
