"""Files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Give a name beside a file to write to, and move it into place at the end.

    Where writing fails or is interrupted, what stood there before stays, and nothing half written is left. What is no
    regular file, such as ``/dev/stdout``, is written itself.

    Parameters
    ----------
    path : str or Path
        The file to write.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as beside:
    ...         _ = beside.write_text("whole")
    ...     [each.name for each in Path(folder).iterdir()]
    ['a.txt']
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    beside = target.with_name(f".{target.name}.part")
    try:
        yield beside
        beside.replace(target)
    except Exception as error:
        if reason := _reason_of(error):
            raise OSError(f"{path} could not be written ({reason}): {_REMEDY}") from error
        raise
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


_REMEDY = "what stood there before is untouched. Make room, or write to another place."


def _reason_of(error: Exception) -> str:
    """What the system says; polars packs it into errors of its own."""
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return str(error).splitlines()[0] if "(os error " in str(error) else ""
