"""Made-up tables as people have them: words, categories, gaps, doses and dates; each with a value that is known.

The value of a policy is that of a large simulation under it. ``numeric`` is the same log, coded by hand and without
gaps: what a raw table loses against it is the price of reading it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

WARDS = ("ICU", "surgery", "medicine", "cardiology")
_RARE = ("burns", "eye", "dental", "sleep laboratory")
HOSPITAL = {
    "episode": "stay",
    "time": "charted",
    "action": ["fluid_ml", "norepinephrine"],
    "reward": "alive_at_discharge",
    "states": ["age", "sex", "ward", "ventilated", "lactate", "sodium"],
    "cuts": {"fluid_ml": [0, 500], "norepinephrine": [0]},
}
FLUIDS, PRESSORS = ("none", "some", "much"), ("without", "with")
HOSPITAL_POLICY = [f"p_{fluid}_{pressor}" for fluid in FLUIDS for pressor in PRESSORS]  # codes 0, 1, ..., 5


@dataclass(frozen=True)
class RawLog:
    """A raw table, the same log coded by hand, and the probabilities of the new policy in each row."""

    raw: pl.DataFrame
    numeric: pl.DataFrame


def _softmax(x: np.ndarray) -> np.ndarray:
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _fluids(severity: np.ndarray, icu: np.ndarray) -> np.ndarray:
    return _softmax(
        np.column_stack([0.4 - 0.5 * severity, np.zeros_like(severity), 0.6 * severity + 0.5 * icu - 0.5])
    )


def _combined(fluids: np.ndarray, pressor: np.ndarray) -> np.ndarray:
    """Probabilities of the pairs of both drugs, (n, 6); the second one counts fastest."""
    return (fluids[:, :, None] * np.stack([1 - pressor, pressor], axis=1)[:, None, :]).reshape(
        len(fluids), -1
    )


def _pressor(severity: np.ndarray, icu: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(0.5 - 0.6 * severity - 0.4 * icu))


def _practice(severity: np.ndarray, icu: np.ndarray) -> np.ndarray:
    return _combined(_fluids(severity, icu), _pressor(severity, icu))


def _new(severity: np.ndarray, icu: np.ndarray) -> np.ndarray:
    """Fluids earlier, half of the chance of none moved to some; and the second drug a fifth less often."""
    p = _fluids(severity, icu)
    moved = 0.5 * p[:, 0]
    return _combined(
        np.column_stack([p[:, 0] - moved, p[:, 1] + moved, p[:, 2]]), 0.8 * _pressor(severity, icu)
    )


def hospital(n: int = 400, *, seed: int = 0, new: bool = False, gaps: float = 0.15) -> RawLog:
    """Stays of five decisions about the doses of two drugs; lactate and sodium were not measured each time.

    Practice looks at what was charted: the last lactate measured, and the ward. Where none was measured yet it goes by
    the ward alone.
    """
    rng = np.random.default_rng(seed)
    age, sex = np.round(rng.normal(65, 12, n)), rng.choice(["f", "m"], n)
    ward = np.where(rng.random(n) < 0.03, rng.choice(_RARE, n), rng.choice(WARDS, n, p=[0.3, 0.2, 0.4, 0.1]))
    start = [datetime(2023, 1, 1) + timedelta(hours=int(h)) for h in rng.integers(0, 8760, n)]
    lactate = np.maximum(0.5, rng.normal(2.2, 0.9, n) + 0.5 * (ward == "ICU"))
    seen, health, rows = np.full(n, np.nan), np.zeros(n), []
    policy = _new if new else _practice
    for step in range(5):
        measured = rng.random(n) >= gaps
        seen = np.where(measured, lactate, seen)
        severity = np.where(np.isnan(seen), 0.0, (seen - 2.4) / 0.9)
        p = policy(severity, (ward == "ICU").astype(float))
        code = (rng.random(n)[:, None] > p[:, :-1].cumsum(axis=1)).sum(axis=1)
        action, pressor = np.divmod(code, 2)
        dose = np.where(
            action == 0, 0.0, np.where(action == 1, rng.uniform(50, 500, n), rng.uniform(501, 2000, n))
        )
        norepinephrine = np.where(pressor == 0, 0.0, np.round(rng.gamma(2, 0.05, n) + 0.001, 3))
        unseen, true_sodium = rng.random(n) < gaps, np.round(rng.normal(139, 4, n))
        sodium = np.where(unseen, np.nan, true_sodium)
        fresh = _new(severity, (ward == "ICU").astype(float))
        ventilated = rng.random(n) < 0.3
        rows.append(
            pl.DataFrame(
                {
                    "stay": [f"S-{seed}-{i:05d}" for i in range(n)],
                    "charted": [t + timedelta(hours=4 * step) for t in start],
                    "admitted": [t.date().isoformat() for t in start],
                    "age": age,
                    "sex": sex,
                    "ward": ward,
                    "ventilated": np.where(ventilated, "yes", "no"),
                    "lactate": np.where(measured, np.round(lactate, 2), np.nan),
                    "sodium": sodium,
                    "fluid_ml": np.round(dose, 1),
                    "norepinephrine": norepinephrine,
                    "step": step,
                    **{name: fresh[:, i] for i, name in enumerate(HOSPITAL_POLICY)},
                    "action_code": code,
                    "severity_seen": severity,
                    "not_seen": np.isnan(seen).astype(float),
                    "true_sodium": true_sodium,
                }
            )
        )
        health += np.where(action == 1, 0.25, 0.0) - 0.15 * (lactate - 2.4) - 0.1 * (ward == "ICU")
        health += np.where(pressor == 1, 0.2 * (lactate - 2.4), 0.0)
        lactate = np.maximum(0.5, lactate - 0.2 * (action == 1) + 0.1 * (action == 0) + rng.normal(0, 0.3, n))
    alive = rng.random(n) < 1 / (1 + np.exp(-(1.0 + health)))
    whole = pl.concat(rows).with_columns(
        alive_at_discharge=pl.when(pl.col("step") == 4)
        .then(pl.Series(np.tile(alive.astype(float), 5)))
        .otherwise(None)
    )
    whole = whole.sort("stay", "step").with_columns(pl.col("lactate", "sodium").fill_nan(None))
    helpers = ("step", "action_code", "severity_seen", "not_seen", "true_sodium")
    numeric = whole.select(
        "stay",
        "step",
        "age",
        pl.col("severity_seen", "not_seen"),
        "true_sodium",
        male=(pl.col("sex") == "m").cast(pl.Int8),
        ventilated=(pl.col("ventilated") == "yes").cast(pl.Int8),
        **{name.lower(): (pl.col("ward") == name).cast(pl.Int8) for name in WARDS},
        action=pl.col("action_code"),
        reward=pl.col("alive_at_discharge").fill_null(0.0),
        **{f"p{i}": name for i, name in enumerate(HOSPITAL_POLICY)},
    )
    return RawLog(whole.drop(helpers), numeric)


def hospital_value(n: int = 200_000, *, new: bool = True) -> float:
    """The share that is discharged alive under the new policy, or under practice."""
    return float(hospital(n, seed=999, new=new).raw["alive_at_discharge"].drop_nulls().mean())


SHOP = {
    "episode": None,
    "action": "offer",
    "reward": "bought",
    "states": ["device", "country", "basket", "returning", "newsletter"],
}
_COUNTRIES = ("DE", "FR", "IT", "NL", "AT", "CH")
_OFFERS = ("none", "free shipping", "10% off")
SHOP_POLICY = sorted(f"p_{name}" for name in _OFFERS)  # in the order of the codes


def _offer_practice(basket: np.ndarray, phone: np.ndarray) -> np.ndarray:
    return _softmax(np.column_stack([0.6 - 0.5 * basket, np.zeros_like(basket), 0.5 * basket - 0.3 * phone]))


def shop(n: int = 2000, *, seed: int = 0, new: bool = False, gaps: float = 0.15) -> RawLog:
    """Visits with one decision each, about an offer; no id, one row per visit."""
    rng = np.random.default_rng([seed, 1])
    device = rng.choice(["phone", "desktop", "tablet"], n, p=[0.5, 0.4, 0.1])
    country = rng.choice(_COUNTRIES, n, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    basket = np.round(np.maximum(1.0, rng.normal(35, 12, n)), 2)
    shown = rng.random(n) >= gaps
    seen = np.where(shown, (basket - 35) / 12, 0.0)
    phone = (device == "phone").astype(float)
    p = _offer_practice(seen, phone)
    fresh = np.column_stack([0.5 * p[:, 0], p[:, 1] + 0.5 * p[:, 0], p[:, 2]])
    used = fresh if new else p
    offer = (rng.random(n)[:, None] > used.cumsum(axis=1)).sum(axis=1)
    returning = rng.random(n) < 0.4
    chance = 1 / (
        1 + np.exp(-(-1.2 + 0.5 * (offer == 1) + 0.7 * (offer == 2) - 0.4 * seen + 0.5 * returning))
    )
    raw = pl.DataFrame(
        {
            "visited": [
                (datetime(2024, 3, 1) + timedelta(minutes=3 * i)).strftime("%Y-%m-%d %H:%M") for i in range(n)
            ],
            "device": device,
            "country": country,
            "basket": np.where(shown, basket, np.nan),
            "returning": returning,
            "newsletter": [
                None if hide else x
                for hide, x in zip(rng.random(n) < gaps, rng.choice(["yes", "no"], n), strict=True)
            ],
            "offer": np.array(_OFFERS)[offer],
            "bought": (rng.random(n) < chance).astype(int),
            **{f"p_{name}": fresh[:, i] for i, name in enumerate(_OFFERS)},
        },
        strict=False,
    ).with_columns(pl.col("basket").fill_nan(None))
    numeric = pl.DataFrame(
        {
            "row": np.arange(n),
            "seen": seen,
            "shown": shown.astype(int),
            "phone": phone,
            "returning": returning.astype(int),
            "action": offer,
            "reward": raw["bought"],
            **{f"p{i}": fresh[:, i] for i in range(3)},
        }
    )
    return RawLog(raw, numeric)


def shop_value(n: int = 400_000, *, new: bool = True) -> float:
    """The share of visits that end in a sale under the new policy, or under practice."""
    return float(shop(n, seed=999, new=new).raw["bought"].mean())
