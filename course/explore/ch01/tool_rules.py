"""How each tool comes to each of its figures, in a few words; the rules as code are in
``course.serving.conventions``.
"""

from __future__ import annotations

from typing import Final

# What most tools do; the table below holds what is different.
_USUAL: Final = {
    "ttft": "first content − sent",
    "percentile": "linear interpolation",
    "tpot": "(last content − first content)/(n − 1), one value a request",
    "itl": "every gap between two chunks",
    "e2e": "last content − sent",
    "served": "successes",
    "tokens": "tokens of the successes",
    "window": "the stopwatch",
    "good": "an answer of one token keeps the limit on TPOT",
}
_TO_STREAM_END: Final = {
    "tpot": "(end of the stream − first content)/(n − 1), one value a request",
    "e2e": "end of the stream − sent",
}
_UNTIL_LAST_END: Final = "the time from first sending to last end, failures included"
_UNTIL_LAST_CONTENT: Final = "the time from first sending to last content"
_UNTIL_LAST_QUERY: Final = (
    "the time from the first intended sending to the last token of what was scheduled last"
)
_ONE_A_REQUEST: Final = "(last content − first content)/(n − 1), one value a request"
_ONE_TOKEN_IS_BAD: Final = "an answer of one token has no ITL and is not good"

_RULES: Final[dict[str, dict[str, str]]] = {
    "vllm": {},
    "vllm-0.6": _TO_STREAM_END,
    "sglang": _TO_STREAM_END | {"itl": "a gap before k tokens is k gaps of a k-th each"},
    "sglang-openai": _TO_STREAM_END,
    "guidellm": {
        "tpot": "(last content − sent)/n, so with the TTFT in it, weighted by tokens",
        "itl": "(last content − first content)/(n − 1) a request, weighted by its gaps",
        "percentile": "the smallest value that so many stay at or below",
        "e2e": "end of the stream − sent",
        "window": _UNTIL_LAST_END,
        "good": _ONE_TOKEN_IS_BAD,
    },
    "aiperf": {"itl": _ONE_A_REQUEST, "window": _UNTIL_LAST_CONTENT, "good": _ONE_TOKEN_IS_BAD},
    "genai-perf": {
        "itl": _ONE_A_REQUEST,
        "window": _UNTIL_LAST_CONTENT,
        "served": "all requests, failures too",
        "good": "the i-th TTFT is judged with the i-th ITL of a shorter list",
    },
    "inference-perf": {
        "ttft": "first content − sent, without the answers of one token",
        "itl": "every gap between two chunks, and k − 1 gaps of 0 for k tokens in one",
        "e2e": "end of the stream − sent",
        "window": _UNTIL_LAST_END,
        "good": "an answer of one token has no TTFT here and is not good",
    },
    "llmperf": {
        "itl": "(last content − sent)/(chunks + 1) a request, so with the TTFT in it",
        "e2e": "end of the stream − sent",
        "tokens": "tokens of the successes, one more for each",
    },
    "hf": {
        "itl": "the mean gap a request, 0 for an answer in one chunk",
        "e2e": "end of the stream − sent",
        "window": "the time from the sending of the request that ended first to the last end",
    },
    "mlperf": {
        "ttft": "first content − intended sending",
        "percentile": "the value at place N·p of the sorted list, rounded down",
        "tpot": "(last − first content)/(n − 1), 0 for an answer of one token",
        "e2e": "last content − intended sending",
        "served": "the successes less one",
        "tokens": "the tokens less one",
        "window": _UNTIL_LAST_QUERY,
    },
}

_PARTS: Final[dict[str, str]] = {
    "ttft_mean_s": "{ttft}",
    "ttft_p90_s": "{ttft}; {percentile}",
    "tpot_mean_s": "{tpot}",
    "itl_mean_s": "{itl}",
    "itl_p50_s": "{itl}; {percentile}",
    "itl_p99_s": "{itl}; {percentile}",
    "e2e_mean_s": "{e2e}",
    "requests_per_s": "{served}, divided by {window}",
    "output_tokens_per_s": "{tokens}, divided by {window}",
    "goodput_per_s": "{good}; divided by {window}",
}


def rule_of(tool: str, metric: str) -> str:
    """Return how a tool of `conventions.CONVENTIONS` comes to a figure, a field of `Reported`.

    >>> rule_of("llmperf", "itl_mean_s")
    '(last content − sent)/(chunks + 1) a request, so with the TTFT in it'
    """
    return _PARTS[metric].format(**(_USUAL | _RULES[tool]))
