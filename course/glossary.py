"""The course's terms with their exact definitions, one table; the model's code lives elsewhere."""

from __future__ import annotations

import difflib
import html
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A term, its symbol and unit, what it means exactly, and the notebook that introduces it."""

    name: str
    definition: str
    notebook: str
    symbol: str = ""
    unit: str = ""
    also: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Return the entry as one line of text."""
        head = self.name + (f" ({self.symbol})" if self.symbol else "")
        unit = f" Unit: {self.unit}." if self.unit else ""
        return f"{head}: {self.definition}.{unit} [notebook {self.notebook}]"

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        symbol = f" <i>{html.escape(self.symbol)}</i>" if self.symbol else ""
        unit = f" Unit: {html.escape(self.unit)}." if self.unit else ""
        return (
            f"<p><b>{html.escape(self.name)}</b>{symbol}: {html.escape(self.definition)}.{unit} "
            f"<small>(notebook {html.escape(self.notebook)})</small></p>"
        )


class UnknownTermError(ValueError):
    """A word that the glossary does not have; shown to a student as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"Not in the glossary: {self}"]


TERMS: tuple[Term, ...] = (
    Term("admission control", "deciding at the door, before any work is done, whether a request is accepted, queued, degraded or rejected", "05", also=("gate", "load shedding")),
    Term("all-reduce", "the exchange in which the GPUs that share a model add up their partial results, twice in each layer", "03", also=("allreduce",)),
    Term("arithmetic intensity", "operations done for each byte read from memory", "03", unit="operations/byte", also=("intensity",)),
    Term("arrival rate", "the mean number of requests that arrive in a second, whether or not they are served", "02", "λ", "requests/s", ("lambda", "offered load")),
    Term("attainment", "the share of the requests offered that succeed and meet every limit of the SLO", "01"),
    Term("attempt", "one sending of a request; a client that retries makes several attempts for one request", "05", also=("retry",)),
    Term("bandwidth", "how many bytes a second a GPU's memory delivers; it bounds how fast a step can read the weights", "01", unit="bytes/s"),
    Term("batch", "the requests that share one step of the engine, each getting at least one token computed in it", "00", also=("batching",)),
    Term("bf16", "a number in 16 bits, two bytes, with the range of 32 bits and less precision; the usual format of weights and KV cache", "03", also=("bfloat16",)),
    Term("bounded queue", "a waiting queue with a limit; who finds it full is refused at once; vLLM calls the limit max_num_queued_reqs", "05", also=("queue bound", "max_num_queued_reqs")),
    Term("burst", "a stretch in which more requests come than the mean; in a plan, the worst minute's rate over the mean of its hour", "06", also=("bursts", "bursty")),
    Term("calibration", "a prediction multiplied by what one or a few measured points ask for; it then holds near those points, on that machine and software", "10"),
    Term("chunk", "a piece of an answer as it travels over the network, carrying one token or several; also a piece of a prompt that is prefilled in one step", "01"),
    Term("chunked prefill", "computing a prompt in pieces that share steps with decoding, so that no step exceeds the token budget", "04"),
    Term("closed loop", "a source of a fixed number of users, each of whom sends the next request only after the answer to the last one and a think time; the load falls when the server slows down", "02", also=("closed-loop",)),
    Term("coefficient of variation", "standard deviation divided by mean; 1 for an exponential time, 0 for a constant one", "02", "CV", also=("cv",)),
    Term("concurrency", "the time-weighted mean number of requests in the system; an input in a closed loop, a result in an open one", "02", "L"),
    Term("confidence interval", "the range, worked out from several runs, in which the true value lies with 95 % confidence: of a hundred such ranges about 95 hold the value they are for", "06", also=("interval", "95 % interval")),
    Term("continuous batching", "batching in which requests join and leave between any two steps", "03", also=("in-flight batching",)),
    Term("coordinated omission", "leaving out of a measurement the waiting that requests would have suffered had they been sent on schedule, because the load generator itself waited", "02"),
    Term("CUDA graph", "a recorded row of kernels that a GPU replays in one go; saves the time in which Python starts each kernel by itself", "10", also=("graph replay",)),
    Term("decode", "the phase in which a request gets one further output token in each step, reading its whole KV cache each time", "00"),
    Term("decode slot", "the place of one sequence in one decode step; in a static batch it is kept, and computed, after the answer is complete", "03"),
    Term("degrade", "to accept a request with a cheaper answer than was asked for, a shorter one or one by a smaller model", "05"),
    Term("dispatch", "the time that a call from Python takes before its kernel begins to compute; on a GPU, replaying a recorded graph of calls saves most of it", "10", also=("launch overhead",)),
    Term("draw", "one set of arrivals and lengths that chance gave, fixed by its seed; another draw has the same averages and other luck", "02", also=("draws", "seed")),
    Term("E2E latency", "the time from sending a request to the last token of its answer", "00", unit="s", also=("e2e", "end-to-end latency")),
    Term("exponential distribution", "the distribution of a time that forgets how long it has already lasted; its P99 is ln(100) ≈ 4.6 means", "02"),
    Term("fairness", "Jain's index, (sum of x)² over n times the sum of x², where x is what a tenant got over what a fair division of the same total would give it; 1 when all got the same part of their due, 1/n when one got everything", "05", also=("jain's index", "jain")),
    Term("fp8", "a number in 8 bits, one byte: half the bytes of bf16, and twice the peak on cards that can compute in it", "03", also=("float8",)),
    Term("goodput", "the rate of requests that succeed and meet every limit of the SLO, over wall-clock time", "00", unit="requests/s"),
    Term("grouped-query attention", "attention in which several query heads share one head of keys and values, so that the KV cache is smaller by that factor", "04", also=("gqa",)),
    Term("head-of-line blocking", "small requests waiting for a large one in front of them, although they alone would be done at once", "04", also=("head of line",)),
    Term("headroom", "the capacity that a promise about a percentile, the loss of a replica or a burst forbids to use", "02"),
    Term("idle slot", "a place in a static batch whose answer is complete, still computed until the longest answer is", "03"),
    Term("index of dispersion", "variance of the number of arrivals in a window divided by its mean; 1 for Poisson arrivals, larger for bursts", "02"),
    Term("ITL", "inter-token latency: each single gap between neighbouring output tokens of one answer", "00", unit="s", also=("inter-token latency", "gap")),
    Term("jitter", "a random part of a waiting time, such as that before a retry, so that not all clients act in the same moment", "05"),
    Term("kernel", "one program that runs on a GPU, such as the multiplication of two matrices; not the Python process behind a notebook, which has the same name", "01"),
    Term("knee", "the load beyond which more load brings little throughput and much latency; where it is depends on the definition: by the SLO, by the plateau, by two straight pieces", "06", also=("capacity knee", "slo knee")),
    Term("KV block", "the piece in which KV memory is given out, 16 tokens unless set otherwise; a sequence holds whole blocks", "04", also=("block", "block_size")),
    Term("KV cache", "the keys and values of all tokens a request has so far, kept in GPU memory so that they are not computed again for each new token", "00", also=("kv",)),
    Term("Little's law", "the mean number in a system is the arrival rate times the mean time spent in it, L = λ·W, whatever the distributions and the order of service", "02", "L = λW", also=("little",)),
    Term("M/G/1", "the queue with Poisson arrivals, one server and service times of any (General) distribution; with exponential ones it is M/M/1, with equal ones M/D/1", "02", also=("m/d/1", "g/g/1")),
    Term("M/M/1", "the queue with Poisson arrivals, exponential service times and one server", "02"),
    Term("M/M/c", "the queue with Poisson arrivals, exponential service times and c servers behind one queue", "02"),
    Term("memory fraction", "the share of a GPU's memory that a server may use for weights, working memory and KV cache together; vLLM calls it gpu_memory_utilization", "04", also=("gpu_memory_utilization",)),
    Term("metastable failure", "an overload that keeps itself going after its cause has gone, because the load caused by failing is larger than the capacity", "05", also=("metastable", "retry storm")),
    Term("N+1", "a fleet with one replica more than the peak needs, so that any single one may fail", "06", also=("spare", "n+1 redundancy")),
    Term("open loop", "a source that sends at its own pace whether or not earlier requests have been answered", "02", also=("open-loop",)),
    Term("patience", "the time after which a client gives up waiting for its first token or its whole answer", "05", unit="s", also=("time-out", "timeout")),
    Term("percentile", "the value that a given share of the requests stay at or below; P99 for 99 in 100", "02", "Pq", also=("quantile", "p99", "p95")),
    Term("plateau", "the highest throughput that a server holds however much load is offered; on a measured curve the mean of the points within 5 % of the highest", "06"),
    Term("Poisson arrivals", "arrivals whose gaps are independent and exponential: the next one is as likely in any moment, whatever came before", "02", also=("poisson",)),
    Term("preemption", "taking a running sequence's KV blocks away because memory is full; it is computed again later, what it had written included", "04", also=("recompute",)),
    Term("prefill", "the phase in which all tokens of a prompt are computed and its KV cache is filled; ends with the first output token", "00"),
    Term("prefix cache", "KV blocks of earlier prompts that a server keeps, so that a prompt with the same beginning need not be computed again", "01", also=("prefix caching",)),
    Term("priority", "a request's rank in the waiting queue or at the gate; here, as in vLLM, the smaller number is the more urgent", "05"),
    Term("quartile", "one of the three values that cut sorted measurements into four equal parts; the middle one is the median, and half of all lie between the lower and the upper", "10", also=("quartiles",)),
    Term("query head", "one of the parallel parts of a layer's attention: it compares a token with the keys of all earlier ones and mixes their values; these keys and values are a KV head's, which one query head has for itself or several share", "04", also=("head", "kv head")),
    Term("replica", "one complete copy of a served model, on one GPU or on several that work together", "00"),
    Term("residual", "measured over fitted minus 1, of one point: what a fit does not explain of it", "10"),
    Term("retry budget", "a limit on the retries of all clients together, as a share of the first attempts they send", "05"),
    Term("ridge", "the arithmetic intensity at which a card computes for as long as it reads: peak over bandwidth; for the matrices in 16 bits as many tokens in a step", "03", unit="operations/byte"),
    Term("roofline", "the bound on speed that memory and arithmetic set together: the smaller of the peak and bandwidth times arithmetic intensity", "03"),
    Term("saturated", "loaded with so much that more load brings no more throughput, only a longer queue", "06", also=("saturation",)),
    Term("seat", "one of the places in the batch; vLLM calls their number max_num_seqs", "00", also=("seats", "max_num_seqs", "slot")),
    Term("separate pools", "two groups of GPUs, one of which prefills and hands the KV cache to the other, which decodes", "04", also=("disaggregated prefill", "disaggregation")),
    Term("service rate", "the number of requests that a server would finish in a second if it were never idle", "02", "μ", "requests/s", ("mu",)),
    Term("service time", "the time for which a request occupies the server, waiting not included; its mean is 1/μ", "02", "S", "s"),
    Term("shortest first", "an order of the waiting queue that takes the shortest request next; without a waiting limit it can forget the long ones", "04", also=("sjf", "shortest-job-first")),
    Term("SLO", "service level objective: the limits on latency that a stated share of the requests offered has to meet", "00", also=("service level objective",)),
    Term("sojourn time", "the whole time from arrival to departure: waiting plus service", "02", "W", "s", ("time in system", "response time")),
    Term("stability", "a queue is stable where less work arrives than can be done, ρ < 1; otherwise it grows without end and has no steady state", "02"),
    Term("static batching", "batching in which a group starts together and all its places are kept until its longest answer is complete", "03"),
    Term("step", "one trip of the batch through the model: some prompt tokens, or one token for each decoding request, or both", "00", also=("iteration",)),
    Term("sweep", "the same server run at one load after the other, each load a point of its curve", "06", also=("load sweep",)),
    Term("tenant", "one of several customers or applications that share a service", "01"),
    Term("tensor parallel", "several GPUs share each layer of one model, each with a part of the weights, and act as one larger card; in each layer they exchange their partial results (all-reduce)", "06", also=("tensor parallelism", "tp")),
    Term("think time", "how long a user of a closed loop pauses between an answer and the next request", "02"),
    Term("throughput", "work finished per second: requests/s, output tokens/s or total tokens/s; a result, never an input", "00", "X", "per second"),
    Term("token", "the piece of text a model reads and writes, about three quarters of an English word", "00"),
    Term("token bucket", "an allowance that fills at a steady rate up to a rim; a request passes if it holds enough, and takes that much out", "05"),
    Term("token budget", "the most tokens that one step computes, one for each decoding sequence included; vLLM calls it max_num_batched_tokens", "04", also=("budget", "max_num_batched_tokens")),
    Term("TPOT", "time per output token: (E2E − TTFT) / (n − 1) for an answer of n tokens, undefined for n < 2", "00", unit="s", also=("time per output token",)),
    Term("TTFT", "time to first token: from sending a request to its first output token, queueing and prefill included", "00", unit="s", also=("time to first token",)),
    Term("utilization", "the share of time for which a server is busy: arrival rate over total service rate, ρ = λ/(c·μ) for c servers", "02", "ρ", also=("utilisation", "rho")),
    Term("wait window", "how long an idle engine waits for company after the first request, before it starts a step", "03", unit="s", also=("window",)),
    Term("waiting time", "the time from arrival to the start of service", "02", "Wq", "s", ("queueing time", "wait")),
    Term("warm-up", "the first calls or requests of a measurement, which are thrown away: memory is handed out, code is compiled, caches and queues fill", "10", also=("warmup",)),
    Term("watermark", "the share of the KV cache in use above which newcomers are kept outside", "05"),
)  # fmt: skip


def glossary(term: str) -> Term:
    """Return the entry of `term`, found by name, symbol or synonym in any case.

    Raises UnknownTermError, a ValueError, with the nearest terms where there is none.

    >>> glossary("rho").name
    'utilization'
    """
    key = term.strip().lower()
    names = {
        key: entry
        for entry in TERMS
        for key in (entry.name.lower(), entry.symbol.lower(), *entry.also)
    }
    if key and key in names:
        return names[key]
    close = difflib.get_close_matches(key, names, n=3)
    hint = f"; near it: {', '.join(sorted({names[c].name for c in close}))}" if close else ""
    raise UnknownTermError(f"term={term!r} is not in the glossary{hint}")
