"""Exercise 1.6, GPU utilisation went from 72 % to 91 %: reference, wrong answers and judging."""

from __future__ import annotations

from course.exercises.build import choice_exercise

EXERCISE = choice_exercise(
    "1.6",
    title="GPU utilisation went from 72 % to 91 %",
    question=(
        "The tuning report of 1.4 goes on (its figures do not fit together, as you saw there; "
        "here take them as printed): with batch size 16 instead of 8 the GPU's utilisation, as "
        "nvidia-smi shows it, rose from 72 % to 91 %, output from 850 to 1240 tokens/s, and "
        "P95 TTFT from 1.2 s to 1.8 s. nvidia-smi's figure is the share of time in which at "
        "least one kernel (a program on the GPU) was running. What may you conclude from 91 %?"
    ),
    minutes=4,
    difficulty=2,
    options={
        "a": "About a tenth of the GPU's capacity is left for more users.",
        "b": "The GPU now uses 91 % of its arithmetic units, so the batch of 16 fills them better.",
        "c": "The server has less idle time between its kernels than before. How much more "
        "work the GPU could do, the figure does not say.",
        "d": "TTFT rose because of it: the nearer this figure is to 100 %, the longer a "
        "request has to wait for its turn.",
    },
    right="c",
    wrong={
        "a": (
            "duty-cycle-is-headroom",
            "A GPU that decodes for one user runs a kernel nearly all the time, and could "
            "serve dozens more in the same steps: they share each reading of the weights. "
            "And at 91 % nothing may be left inside the SLO. The figure measures neither.",
        ),
        "b": (
            "duty-cycle-is-arithmetic",
            "A kernel counts as running whatever it does inside. Decode mostly waits for "
            "weights to arrive from memory: the counter may stand at 100 % while a few per "
            "cent of the arithmetic are in use.",
        ),
        "d": (
            "duty-cycle-is-load",
            "A single user who is reading a very long answer brings the figure near 100 %, "
            "and nobody waits. Requests wait when more of them come than the server can take "
            "in, and the figure counts neither: it is time with a kernel running, however "
            "much or little gets done in it.",
        ),
    },
    hints=(
        "What would the counter show for a single user who is reading a very long answer?",
        "One kernel with a tiny piece of work, and one that fills the whole GPU: does the "
        "counter tell them apart?",
    ),
    explanation=(
        "It is a duty cycle: a share of time, not of what could be done. Headroom shows in "
        "attainment and in the number of free seats as the load rises; how well the hardware "
        "is used shows in tokens/s against what memory bandwidth or arithmetic allow."
    ),
)
