"""Entry point of ``python -m course``; the commands themselves live in ``course.cli``.

Any Python 3 can read this file, and the doctor needs no package: both can say what is missing.
"""

import sys

from course.machine import OLDEST, dotted


def run() -> int:
    """Run the command line, the doctor by itself; an exit status where that could not be."""
    if sys.version_info < OLDEST:
        own, oldest = dotted(sys.version_info[:3]), dotted(OLDEST)
        print(f"error: this is Python {own}, and the course needs {oldest} or newer")
        return 2
    if sys.argv[1:2] == ["doctor"] and set(sys.argv[2:]) <= {"--allow-root"}:
        from course import doctor

        return doctor.main(sys.argv[2:])
    try:
        from course.cli import main
    except ModuleNotFoundError as error:
        if (error.name or "course").startswith("course"):
            raise
        print(f"error: the package {error.name} is missing; `python -m course doctor` says more")
        return 2
    main()
    return 0


if __name__ == "__main__":
    sys.exit(run())
