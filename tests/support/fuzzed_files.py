"""What can happen to the file of a table, and to what is asked of it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from support.fuzzed_columns import _pick
from support.fuzzing import Damage, Table, as_parquet

Rng = np.random.Generator


# -- CSV --


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """What CSV can hold: nested columns and bytes as text, durations as numbers."""
    frame = frame.with_columns(pl.selectors.duration().dt.total_seconds())
    nested = [name for name, kind in frame.schema.items() if kind.is_nested() or kind == pl.Binary]
    return frame.with_columns(pl.Series(name, [str(x) for x in frame[name].to_list()]) for name in nested)


def _as_csv(
    change: Callable[[str, Rng], str | bytes], name: str = "log.csv"
) -> Callable[[Table, Rng], Table]:
    def damage(table: Table, rng: Rng) -> Table:
        def write(frame: pl.DataFrame, folder: Path) -> Path:
            text = change(frame.write_csv(), np.random.default_rng(seed))
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
            return folder / name

        seed = int(rng.integers(2**31))
        return replace(table, frame=_flat(table.frame), write=write)

    return damage


def _as_other_csv(change: Callable[[str, Rng], str | bytes]) -> Callable[[Table, Rng], Table]:
    """Text that says something else: what it says is what Python's own reader finds in it."""

    def damage(table: Table, rng: Rng) -> Table:
        text = change(_flat(table.frame).write_csv(), rng)
        content = text if isinstance(text, bytes) else text.encode()
        found = _by_python(content.decode(errors="replace"))
        said = replace(table, frame=found if found is not None else pl.DataFrame())
        return replace(said, write=lambda frame, folder: _written(folder / "log.csv", content))

    return damage


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _by_python(text: str) -> pl.DataFrame | None:
    """Every cell as text; None where a line has a cell too many or the text is no table."""
    try:
        lines = [line for line in csv.reader(StringIO(text, newline=""), strict=True) if line]
    except csv.Error:
        return None
    if not lines or any(len(line) > len(lines[0]) for line in lines) or len(set(lines[0])) < len(lines[0]):
        return None
    columns = zip_longest(*lines, fillvalue=None)
    return pl.DataFrame({name: pl.Series(values, dtype=pl.String) for name, *values in columns})


def _unreadable(change: Callable[[Table, Rng], Table]) -> Callable[[Table, Rng], Table]:
    return lambda table, rng: replace(change(table, rng), readable=False)


def _quoted(text: str, rng: Rng) -> str:
    frame = pl.read_csv(text.encode(), infer_schema=False)
    return frame.write_csv(quote_style="always")


def _cell_of_text(text: str, rng: Rng) -> str:
    """One cell of the text replaced by what people write there."""
    odd = "NA N/A null NULL nan NaN inf -inf ? . - 1,5 +1 1e0 1. 01 0x1 1_000 ١ 1.0.0 true True #N/A 1;2 '1' 1e999"
    odd_cells = (*odd.split(), " 1", "1 ", '"', '""', "\x00", "\t", "")
    lines = text.split("\n")
    if len(lines) < 3:
        return text
    row = int(rng.integers(1, len(lines) - 1))
    cells = lines[row].split(",")
    cells[int(rng.integers(len(cells)))] = _pick(rng, odd_cells)
    lines[row] = ",".join(cells)
    return "\n".join(lines)


def _with_index(text: str, rng: Rng) -> str:
    lines = text.rstrip("\n").split("\n")
    return "\n".join([f",{lines[0]}", *(f"{i},{line}" for i, line in enumerate(lines[1:]))])


def _line_damaged(text: str, rng: Rng) -> str:
    lines = text.split("\n")
    row, kind = int(rng.integers(0, max(1, len(lines) - 1))), int(rng.integers(7))
    if kind == 0:
        lines[row] += ",1"
    elif kind == 1:
        lines[row] = lines[row].rpartition(",")[0]
    elif kind == 2:
        lines.insert(row, lines[0])
    elif kind == 3:
        lines.insert(row, "# a comment")
    elif kind == 4:
        lines[row] = lines[row].replace(",", ",,", 1)
    elif kind == 5:
        lines[row] = lines[row].replace(",", ',"', 1)
    else:
        lines = lines[1:]
    return "\n".join(lines)


def _cut_gzip(text: str, rng: Rng) -> bytes:
    return gzip.compress(text.encode())[: int(rng.integers(20, 300))]


def _garbled(text: str, rng: Rng) -> bytes:
    content = bytearray(text.encode())
    for place in rng.integers(0, len(content), _pick(rng, (1, 5, 50))):
        content[place] = rng.integers(256)
    return bytes(content)


def _header_twice(table: Table, rng: Rng) -> Table:
    """A second column of the name of one that is used, with other numbers."""
    names = [name for name in table.used if name.isidentifier()]

    def again(text: str, rng: Rng) -> str:
        lines = text.rstrip("\n").split("\n")
        return "\n".join([f"{lines[0]},{_pick(rng, names)}", *(f"{line},1" for line in lines[1:])]) + "\n"

    return _as_csv(again if names else lambda text, rng: "")(table, rng)


# -- Parquet --


def _parquet(**how: Any) -> Callable[[Table, Rng], Table]:
    def write(frame: pl.DataFrame, folder: Path) -> Path:
        if how.get("use_pyarrow"):  # which has no whole numbers of 128 bits
            frame = frame.cast({pl.Int128: pl.Int64, pl.UInt128: pl.UInt64})
        frame.write_parquet(folder / "log.pq", **how)
        return folder / "log.pq"

    return lambda table, rng: replace(table, write=write)


def _by_pandas(table: Table, rng: Rng) -> Table:
    def write(frame: pl.DataFrame, folder: Path) -> Path:
        try:
            frame.to_pandas().sample(frac=1, random_state=0).sort_index().to_parquet(
                folder / "log.parquet", index=True
            )
        except Exception:  # what pandas cannot hold
            return as_parquet(frame, folder)
        return folder / "log.parquet"

    return replace(table, write=write)


def _in_parts(table: Table, rng: Rng) -> Table:
    cut, as_glob, csv = rng.random(), rng.random() < 0.5, rng.random() < 0.4

    def write(frame: pl.DataFrame, folder: Path) -> Path:
        inside = folder / "parts"
        inside.mkdir()
        at = max(1, int(cut * frame.height))
        for number, part in enumerate(x for x in (frame[:at], frame[at:]) if x.height or not frame.height):
            if csv:
                (inside / f"part{number}.csv").write_text(_flat(part).write_csv())
            else:
                part.write_parquet(inside / f"part{number}.parquet")
        return inside / "*.csv" if csv else inside / "part?.parquet" if as_glob else inside

    return replace(table, write=write)


def _bytes(change: Callable[[bytes, Rng], bytes], name: str = "log.parquet") -> Callable[[Table, Rng], Table]:
    def damage(table: Table, rng: Rng) -> Table:
        def write(frame: pl.DataFrame, folder: Path) -> Path:
            content = as_parquet(frame, folder).read_bytes()
            (folder / name).write_bytes(change(content, np.random.default_rng(seed)))
            return folder / name

        seed = int(rng.integers(2**31))
        return replace(table, write=write)

    return damage


def flipped(content: bytes, rng: Rng) -> bytes:
    found = bytearray(content)
    tail = rng.random() < 0.5  # where the description of the columns lies
    for place in rng.integers(
        len(found) - len(found) // 4 if tail else 0, len(found), _pick(rng, (1, 3, 20))
    ):
        found[place] = rng.integers(256)
    return bytes(found)


def fewer_than_none(content: bytes, rng: Rng) -> bytes:
    """The header of a page says that it has a negative number of values; polars aborts there."""
    headers = [at + 2 for at in range(4, len(content)) if content[at : at + 2] == b",\x15"]
    found = bytearray(content)
    if not headers:  # of a table without rows
        return content
    found[_pick(rng, headers)] |= 1  # odd numbers stand for negative ones
    return bytes(found)


# -- requests --

# What may be given for each option, with spaces between; nothing at all is given now and then.
OPTIONS: dict[str, str] = {
    "--gamma": "1 0.5 0 -0.1 1.1 nan inf x 1e-320",
    "--level": "0.9 0.5 0.49 1 0.9999999999 nan -1 95",
    "--seed": "1 -1 2147483648 4294967296 1180591620717411303424 x 1.5",
    "--draws": "20 19 -5 0 x 1000000000000",
    "--fit-steps": "100 99 0 1000000000000000000 x",
    "--n-actions": "3 2 1 0 -1 4 30 100000000000 x",
    "--models": "frequencies neighbours,neighbours forest; , oracle none",
    "--by": "unit severity severity:1,2 age age:50 severity:2,1 unit:1 patient p0: : nothing severity:nan "
    "hour:0,inf severity:1,1 alive:1e400 b:0.1:0.2",
    "--states": "severity severity,severity dose alive patient unit hour,age , severity..age p0..p999999999999 b "
    "nothing x0..x3",
    "--target-columns": "p0..p2 p0,p1 p0,p1,p1 p2..p0 p0..p3 severity p0..p99999999 b",
    "--recommended": "advice unit b hour dose nothing alive age",
    "--propensity": "b p0 unit severity nothing alive",
    "--soften": "0.5 0 1 nan -1 x 1e-320 0.9999999999999999",
    "--terminated": "alive unit severity nothing hour b",
    "--time": "hour age unit alive patient nothing severity",
    "--episode": "patient unit age hour dose nothing alive",
    "--action": "dose advice severity age unit alive hour nothing",
    "--reward": "alive age unit dose nothing b patient",
    "--policy": "caliope:practice caliope : caliope: os:getcwd json:dumps no.such:x ..:x caliope:main numpy:nan "
    "builtins:len math:pi",
    "--model": "none.skops / . /dev/null",
    "--out": "/nowhere/x.html x.pdf / .",
}


def _options(table: Table, rng: Rng) -> Table:
    names = rng.choice(list(OPTIONS), int(rng.integers(1, 3)), replace=False).tolist()
    given = dict(table.options)
    for name in names:
        if name in ("--recommended", "--policy", "--model") and rng.random() < 0.7:
            given.pop("--target-columns", None)
        given[name] = _pick(rng, (*OPTIONS[name].split(), ""))
    return replace(table, options=given, readable=False)


def _study(table: Table, rng: Rng) -> str:
    """A study file that says what the options say."""
    lines = [
        f"{name[2:]} = {json.dumps(value)}" for name, value in table.options.items() if name != "--soften"
    ]
    lines += [f"soften = {table.options['--soften']}"] if "--soften" in table.options else []
    return "\n".join(['log = "log.parquet"', *lines]) + "\n"


def _as_study(change: Callable[[str, Rng], str | bytes]) -> Callable[[Table, Rng], Table]:
    def damage(table: Table, rng: Rng) -> Table:
        def write(frame: pl.DataFrame, folder: Path) -> Path:
            as_parquet(frame, folder)
            (folder / "study.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
            return folder / "study.toml"

        content = change(_study(table, rng), rng)
        return replace(table, write=write, in_study=True)

    return damage


def _line_of_study(text: str, rng: Rng) -> str:
    values = "1 -1 nan inf '' 'x' [] ['x'] [1] {} true 1979-05-27 'p0..p2' 1e999 99999999999999999999999999 [['a']] 'ü'"
    names = "log gamma seed states time action draws models by n_actions n-actions out level model policy"
    others = (
        "target-columns soften trust_trees tables Gamma fit_steps propensity terminated quiet [evaluate]\nlog"
    )
    name = _pick(rng, [*names.split(), *others.split(" ")])
    value = _pick(rng, [*values.split(), "' '", '"\\u0000"', "0x10", "", "=", "'../log.parquet'"])
    lines = [line for line in text.split("\n") if not line.startswith(f"{name} =")]
    return "\n".join([*lines, f"{name} = {value}"])


def _text_damaged(text: str, rng: Rng) -> bytes:
    return _garbled(text, rng) if rng.random() < 0.5 else text.encode()[: int(rng.integers(len(text)))]


FILES = (
    Damage("CSV", _as_csv(lambda text, rng: text), "same"),
    Damage("CSV with a byte-order mark", _as_csv(lambda text, rng: "\ufeff" + text), "same"),
    Damage("CSV with CRLF", _as_csv(lambda text, rng: text.replace("\n", "\r\n")), "same"),
    Damage("CSV with both", _as_csv(lambda text, rng: "\ufeff" + text.replace("\n", "\r\n")), "same"),
    Damage("CSV, everything in quotation marks", _as_csv(_quoted), "same"),
    Damage("CSV without the last newline", _as_csv(lambda text, rng: text.rstrip("\n")), "same"),
    Damage("CSV with empty lines at its end", _as_csv(lambda text, rng: text + "\n\n"), "right"),
    Damage("CSV packed", _as_csv(lambda text, rng: gzip.compress(text.encode()), "log.csv.gz"), "same"),
    Damage("CSV packed, and called .csv", _as_csv(lambda text, rng: gzip.compress(text.encode())), "same"),
    Damage("CSV in capitals", _as_csv(lambda text, rng: text, "LOG.CSV"), "same"),
    Damage("CSV with an index", _as_csv(_with_index), "same"),
    Damage("CSV with Mac line ends", _unreadable(_as_csv(lambda text, rng: text.replace("\n", "\r"))), "refused"),
    Damage("CSV with semicolons", _as_csv(lambda text, rng: text.replace(",", ";")), "right"),
    Damage("CSV with tabs", _as_csv(lambda text, rng: text.replace(",", "\t")), "right"),
    Damage("CSV with spaces", _as_csv(lambda text, rng: text.replace(",", ", ")), "refused"),
    Damage("CSV in UTF-16", _as_csv(lambda text, rng: text.encode("utf-16")), "refused"),
    Damage("CSV in UTF-16, no mark", _as_csv(lambda text, rng: text.encode("utf-16-le")), "refused"),
    Damage("CSV without a header", _as_csv(lambda text, rng: text.partition("\n")[2]), "refused"),
    Damage("CSV, a name twice", _header_twice, "refused"),
    Damage("CSV, an odd cell", _as_other_csv(_cell_of_text), "right"),
    Damage("CSV, an odd line", _as_other_csv(_line_damaged), "right"),
    Damage("CSV, bytes changed", _as_other_csv(_garbled), "right"),
    Damage("CSV, cut off", _as_other_csv(lambda text, rng: text[: int(rng.integers(len(text)))]), "right"),
    Damage("CSV packed, cut off", _as_csv(_cut_gzip), "refused"),
    Damage("CSV called .parquet", _as_csv(lambda text, rng: text, "log2.parquet"), "refused"),
    Damage("CSV called .txt", _as_csv(lambda text, rng: text, "log.txt"), "refused"),
    Damage("an empty CSV file", _as_csv(lambda text, rng: ""), "refused"),
    Damage("CSV, a header alone", _as_csv(lambda text, rng: text.split("\n")[0] + _pick(rng, ("", "\n"))), "refused"),
    Damage("Parquet in small groups", _parquet(row_group_size=5), "same"),
    Damage("Parquet, not packed", _parquet(compression="uncompressed", statistics=False), "same"),
    Damage("Parquet by pyarrow", _parquet(use_pyarrow=True, compression="snappy"), "right"),
    Damage("Parquet by pandas", _by_pandas, "right"),
    Damage("several files", _in_parts, "right"),
    Damage("Parquet, cut off", _bytes(lambda content, rng: content[: int(rng.integers(len(content)))]), "refused"),
    Damage("Parquet, bytes changed", _unreadable(_bytes(flipped)), "any"),
    Damage("Parquet, a page of fewer than no values", _unreadable(_bytes(fewer_than_none)), "any"),
    Damage("Parquet called .csv", _bytes(lambda content, rng: content, "log.csv"), "refused"),
    Damage("Parquet packed", _bytes(lambda content, rng: gzip.compress(content), "log.parquet"), "refused"),
    Damage("noise called Parquet", _bytes(lambda content, rng: rng.bytes(int(rng.integers(2000)))), "refused"),
    Damage("noise called CSV", _bytes(lambda content, rng: rng.bytes(int(rng.integers(2000))), "log.csv"), "refused"),
    Damage("noise called .csv.gz", _bytes(lambda content, rng: rng.bytes(2000), "log.csv.gz"), "refused"),
)  # fmt: skip

ASKED = (
    Damage("odd options", _options, "any"),
    Damage("a study file", _as_study(lambda text, rng: text), "same"),
    Damage("a study file, an odd line", _unreadable(_as_study(_line_of_study)), "any"),
    Damage("a study file, damaged", _unreadable(_as_study(_text_damaged)), "any"),
)
