"""Entry point of ``python -m course``; the commands themselves live in ``course.cli``."""

from course.cli import main

if __name__ == "__main__":
    main()
