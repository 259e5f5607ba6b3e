"""A whole audit in Python: a shop shows each visitor one of three banners, and considers fewer discounts.

The log has the banner that each visitor saw, and whether the visitor bought. The probability of each banner was not
logged. The visitors are simulated, so that the true answer is known; it is printed at the end.

Run: python examples/shop.py [visitors]
"""

import sys

import numpy as np
import polars as pl
from scipy.special import expit, softmax

import caliope as cal


def banner_probabilities(loyal, basket):
    """Return how the shop chooses a banner; this is not in the log."""
    return softmax(
        np.stack([0.2 * loyal, 0.4 + 0.8 * loyal, 0.6 * basket], axis=1), axis=1
    )


def sale_probabilities(loyal, basket):
    """Return the chance of a sale with each banner; a discount sells most to visitors who are not loyal."""
    return expit(
        np.stack([-1.2 + loyal, -0.6 + 0.3 * loyal, -1.0 + 0.7 * basket], axis=1)
    )


def simulate_visits(n, rng):
    """Return a log with one row per visit."""
    loyal, basket = rng.normal(size=n), rng.normal(size=n)
    shown = (
        banner_probabilities(loyal, basket).cumsum(axis=1) < rng.random((n, 1))
    ).sum(axis=1)
    bought = rng.random(n) < sale_probabilities(loyal, basket)[np.arange(n), shown]
    columns = {
        "visit": np.arange(n),
        "loyal": loyal,
        "basket": basket,
        "banner": shown,
        "bought": bought,
    }
    return pl.DataFrame(columns).with_columns(pl.col("bought").cast(pl.Float64))


def fewer_discounts(states):
    """Return weights of the banners: for a loyal visitor the odds of a discount are a third of what they are now."""
    loyal = states[:, 0] > 0
    return np.stack(
        [np.ones(len(states)), np.where(loyal, 1 / 3, 1.0), np.ones(len(states))],
        axis=1,
    )


def main(n: int = 4000) -> None:
    log = simulate_visits(n, np.random.default_rng(0))
    data = cal.read_table(
        log,
        episode="visit",
        action="banner",
        reward="bought",
        states=["loyal", "basket"],
    )
    data = data.replace(unit="visit", action_names=["news", "discount", "bundle"])
    # What no log tells: the change was not learnt on these visits, and both columns were known before the banner.
    print(
        cal.audit(
            data,
            cal.tilt(cal.practice, fewer_discounts),
            learnt_on="no",
            recorded_before="all",
            rng=0,
        )
    )

    loyal, basket = np.random.default_rng(1).normal(size=(2, 1_000_000))
    now, sells = banner_probabilities(loyal, basket), sale_probabilities(loyal, basket)
    new = now * fewer_discounts(loyal[:, None])
    new /= new.sum(axis=1, keepdims=True)
    before, after = (now * sells).sum(axis=1).mean(), (new * sells).sum(axis=1).mean()
    print("\nThe truth, which is known only in a simulation:")
    print(f"{before:.3f} now, {after:.3f} with fewer discounts.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
