"""Where results may be written: never over what they were made from."""

from __future__ import annotations

from pathlib import Path


def check_ending(path: str | Path, ending: str) -> None:
    """Refuse another ending: beside ``cohort.parquet`` lie files of the same name with the endings csv and json."""
    if Path(path).suffix.lower() != ending:
        raise ValueError(f"the file to write must end in {ending}, got {str(path)!r}.")


def check_target(
    path: str | Path, ending: str, *, source: str | Path, keep_stages: str | Path | None = None
) -> None:
    """Refuse a file that cannot be written, or that would replace the source or the stages, before hours of work."""
    check_ending(path, ending)
    target, raw = Path(path).resolve(), Path(source).resolve()
    if target == raw:
        raise ValueError(f"{path} is the source: it would be replaced. Give another name to the result.")
    if keep_stages is not None and target == Path(keep_stages).resolve():
        raise ValueError(f"{path} is the file of the stages too: give two names.")
    if raw in target.parents and target.exists():
        raise ValueError(f"{path} exists already in the folder of the source: write somewhere else.")
    new = not target.exists()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.open("ab").close()
    if new:
        target.unlink()
