"""The numbers that the loops know orders, costs and ends of requests by; no code is here."""

FCFS, SJF, PRIORITY, CUSTOM = 0, 1, 2, 3  # orders of the queue
ROOFLINE, LINEAR, PLAIN_PYTHON = 2, 1, 0  # formulas of the cost
FINISHED, REJECTED, TIMED_OUT, CANCELLED, UNFINISHED = 0, 1, 2, 3, 4  # how a request ended
