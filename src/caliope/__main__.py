"""``python -m caliope`` is the command ``caliope``."""

from caliope.cli import main

if __name__ == "__main__":
    main(prog_name="caliope")
