"""`python -m router`: the command line."""

from router.cli import main

if __name__ == "__main__":
    main()
