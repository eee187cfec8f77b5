"""The block pool of a prefix cache: names, one queue of free blocks; no step is planned here.

Blocks are numbered from 0. A block is held by so many running attempts; one that nobody holds
stands in the queue of free blocks, and keeps its name, by which it can be found, until it is handed
out again from the queue's head. Blocks are found by name in a table with open addressing.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from course.serving._arguments import IntArray
from course.serving._compiled import compiled
from course.serving.engine.kernels.common import OPTIONS
from course.serving.engine.kernels.service_state import Asked, Pool, Terms

INNER = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INLINED = INNER | {"forceinline": True}

# --- pool.ends -----------------------------------------------------------------------------------
FIRST_FREE = 0  # head of the queue of free blocks, handed out next; -1: it is empty
LAST_FREE = 1
UNHELD = 2  # blocks in that queue

# --- kinds of names: in the two lowest bits ------------------------------------------------------
GIVEN, REQUESTS_OWN, ATTEMPTS_OWN = 0, 1, 2
BLOCK_BITS = 28  # of the place within a prompt

# the low 62 bits of a product are the same in 64 bits that overflow and in Python's whole numbers
LOW_62 = 2**62 - 1
SPREAD = 0x1E3779B97F4A7C15  # odd, near 2^61 / golden ratio: multiplicative hashing (Knuth)


# =========================================================================================== names
@compiled(**INLINED)
def name_of(
    asked: Asked, terms: Terms, request: int, attempt: int, prompt_tokens: int, place: int
) -> int:
    """Return the name of the block at `place` of an attempt's sequence."""
    size = terms.block_size
    last = (place + 1) * size
    if last > prompt_tokens:
        return (((attempt << BLOCK_BITS) | place) << 2) | ATTEMPTS_OWN
    if terms.name_tokens > 0:
        first = place * size
        entry = asked.name_begin[request] + first // terms.name_tokens
        if entry < asked.name_begin[request + 1]:
            part = first % terms.name_tokens // size
            return ((asked.names[entry] << BLOCK_BITS) | part) << 2
    elif len(asked.shared) > 0 and last <= asked.shared[request]:
        return ((asked.names[request] << BLOCK_BITS) | place) << 2
    return (((request << BLOCK_BITS) | place) << 2) | REQUESTS_OWN


@compiled(**INLINED)
def home_of(terms: Terms, name: int) -> int:
    """Return the place in the table at which the search for a name begins."""
    return ((name * SPREAD) & LOW_62) >> terms.table_shift


@compiled(**INNER)
def find(terms: Terms, pool: Pool, name: int) -> int:
    """Return the block of that name; -1 if there is none."""
    mask = len(pool.table) - 1
    slot = home_of(terms, name)
    while pool.table[slot] >= 0:
        if pool.name[pool.table[slot]] == name:
            return pool.table[slot] + 0
        slot = (slot + 1) & mask
    return -1


@compiled(**INNER)
def give_name(terms: Terms, pool: Pool, block: int, name: int) -> None:
    """Let a block be found by `name`, unless another one is."""
    mask = len(pool.table) - 1
    slot = home_of(terms, name)
    while pool.table[slot] >= 0:
        if pool.name[pool.table[slot]] == name:
            return
        slot = (slot + 1) & mask
    pool.table[slot] = block
    pool.name[block] = name


@compiled(**INNER)
def take_name(terms: Terms, pool: Pool, block: int) -> None:
    """Let a block be found no longer; those that were put behind it for want of room move up."""
    mask = len(pool.table) - 1
    hole = home_of(terms, pool.name[block])
    while pool.table[hole] != block:
        hole = (hole + 1) & mask
    pool.name[block] = -1
    slot = (hole + 1) & mask
    while pool.table[slot] >= 0:
        home = home_of(terms, pool.name[pool.table[slot]])
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            pool.table[hole] = pool.table[slot]
            hole = slot
        slot = (slot + 1) & mask
    pool.table[hole] = -1


# =================================================================================== free and held
@compiled(**INLINED)
def leave_free(pool: Pool, block: int) -> None:
    """Take a block out of the queue of free ones, wherever it stands."""
    ends = pool.ends
    ahead = pool.ahead[block]
    behind = pool.behind[block]
    if ahead < 0:
        ends[FIRST_FREE] = behind
    else:
        pool.behind[ahead] = behind
    if behind < 0:
        ends[LAST_FREE] = ahead
    else:
        pool.ahead[behind] = ahead
    ends[UNHELD] -= 1


@compiled(**INLINED)
def take_new(terms: Terms, pool: Pool) -> int:
    """Return the block at the head of the queue, held now and without a name."""
    block = pool.ends[FIRST_FREE]
    leave_free(pool, block)
    if pool.name[block] >= 0:
        take_name(terms, pool, block)
    pool.holders[block] = 1
    return block


@compiled(**INLINED)
def share(pool: Pool, block: int) -> None:
    """Hold a block that was found by its name."""
    if pool.holders[block] == 0:
        leave_free(pool, block)
    pool.holders[block] += 1


@compiled(**INLINED)
def let_go(pool: Pool, block: int) -> None:
    """Hold a block no longer; where nobody does, it joins the tail of the queue."""
    pool.holders[block] -= 1
    if pool.holders[block] > 0:
        return
    ends = pool.ends
    last = ends[LAST_FREE]
    pool.ahead[block] = last
    pool.behind[block] = -1
    if last < 0:
        ends[FIRST_FREE] = block
    else:
        pool.behind[last] = block
    ends[LAST_FREE] = block
    ends[UNHELD] += 1


# ======================================================================================= sequences
@compiled(**INNER)
def find_prefix(
    asked: Asked,
    terms: Terms,
    pool: Pool,
    request: int,
    attempt: int,
    prompt_tokens: int,
    known: int,
    found: IntArray,
) -> tuple[int, int]:
    """Write the leading blocks that are in the cache into `found`; return how many.

    Second: how many of them are held already. The last known token is always computed anew.
    """
    most = (known - 1) // terms.block_size
    count = 0
    held = 0
    while count < most:
        name = name_of(asked, terms, request, attempt, prompt_tokens, count)
        block = find(terms, pool, name)
        if block < 0:
            break
        found[count] = block
        if pool.holders[block] > 0:
            held += 1
        count += 1
    return count, held
