"""A made-up cohort in a file, as caliope cohort writes them."""

import numpy as np
import polars as pl

from caliope.clinical._databases import features


def write_cohort(path, *, stays=40, training=30):
    """Stays of four steps with random measurements; the first are for training, every other has no vasopressors."""
    rng, n = np.random.default_rng(0), 4 * stays
    fluids, treated = rng.integers(5, size=n), np.repeat(np.arange(stays) % 2 == 1, 4)
    vasopressors = treated * rng.integers(1, 5, size=n)
    columns = {
        name: rng.integers(2, size=n) if kind == "binary" else rng.gamma(4.0, size=n)
        for name, kind in features()
    }
    columns |= {
        "icustay_id": np.repeat(np.arange(stays), 4),
        "bloc": np.tile(np.arange(1, 5), stays),
        "SOFA": rng.integers(24, size=n).astype(float),
        "action": 5 * fluids + vasopressors,
        "iv_level": fluids,
        "vaso_level": vasopressors,
        "max_dose_vaso": rng.random(n),
        "input_4hourly": rng.random(n),
        "never_vasopressor": ~treated,
        "training": np.repeat(np.arange(stays) < training, 4),
        "died": np.zeros(n, dtype=bool),
        "reward": rng.normal(size=n),
    }
    pl.DataFrame(columns).write_parquet(path)
    return path
