"""The records that pass into the compiled loops: what they read, keep and write; no code runs here.

Named tuples of arrays and plain numbers, because both the compiled and the plain loop take them.
"""

from __future__ import annotations

from typing import NamedTuple

from course.serving._arguments import FloatArray, IntArray, SmallArray, TinyArray


class Load(NamedTuple):
    """The workload: one entry a request, in the order in which they are sent."""

    arrival_s: FloatArray  # in a closed loop: empty, for it is decided by the run
    prompt: IntArray
    output: IntArray
    cached: IntArray  # prompt tokens that the prefix cache holds; empty: none
    guess: IntArray  # predicted output tokens
    value: FloatArray  # priority, smaller is more urgent; empty: all 0


class Senders(NamedTuple):
    """The users of a closed loop; all empty in an open one."""

    next_s: FloatArray  # by user: when they send next
    heap: IntArray  # users who will send again, by (time, user)
    think_s: FloatArray  # by request: the pause after its end
    sent_s: FloatArray  # by request: when it was sent
    owner: IntArray  # by request: who sent it


class Rules(NamedTuple):
    """The configuration as plain numbers."""

    seats: int
    budget: int
    chunked: bool
    blocks: int  # -1: no limit
    block_size: int
    batching: int
    order: int
    cost: int
    batch_size: int  # requests waiting that end the wait: of a static batch, or max_num_seqs
    last_accepted: int  # static batching: the last request that can be accepted
    decode_shift: int  # how a step's three counts are packed into one word
    prefill_shift: int
    horizon_s: float
    window_s: float
    max_wait_s: float
    ageing_s: float
    whole_fits: bool  # who is admitted must find blocks for all its known tokens
    kept_blocks: int  # that an admission leaves free


class Log(NamedTuple):
    """What is written down: of each request, of each step, of each interruption."""

    scheduled_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    status: TinyArray
    preemptions: SmallArray
    first_step: SmallArray  # the step that brought the first token
    tokens: SmallArray  # emitted
    step_end_s: FloatArray
    step_work: IntArray  # prefill tokens, decode sequences and KV blocks in one word
    gaps: SmallArray  # one row an interruption, in columns


class Work(NamedTuple):
    """What a loop keeps between steps."""

    at: IntArray  # running totals
    seat: IntArray  # one row a seat, in columns
    vacant: IntArray  # seats: the free ones
    due: IntArray  # heap of ends: the decode step of the last token, and the seat
    completing: IntArray  # seats whose prompt is computed by the step in hand
    stack: IntArray  # rows of gaps: preempted requests in front of the queue
    running: IntArray  # (static) seats of the batch
    phases: IntArray  # decoders in each phase
    queue: SmallArray  # (not first-come) waiting requests
    mark: SmallArray  # (not first-come) by request: NEW, TAKEN, or its static batch
