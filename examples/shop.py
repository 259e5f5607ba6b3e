"""A shop shows each visitor one of three banners. It thinks of fewer discounts for loyal customers.

Action 0 is news, 1 a discount, 2 a bundle. The log says who saw what and who bought; nobody wrote down with which
probability a banner was chosen. The visitors are made up, so that the answer is known, and stands at the end.

Run: python examples/shop.py [visitors]
"""

import sys

import numpy as np
import polars as pl
from scipy.special import expit, softmax

import caliope as cal


def banner_probabilities(loyal, basket):
    """How the shop chooses, which the log does not say."""
    return softmax(np.stack([0.2 * loyal, 0.4 + 0.8 * loyal, 0.6 * basket], axis=1), axis=1)


def sale_probabilities(loyal, basket):
    """A discount sells most to those who are not loyal."""
    return expit(np.stack([-1.2 + loyal, -0.6 + 0.3 * loyal, -1.0 + 0.7 * basket], axis=1))


def visits(n, rng):
    """A log with one row a visit."""
    loyal, basket = rng.normal(size=n), rng.normal(size=n)
    shown = (banner_probabilities(loyal, basket).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    bought = rng.random(n) < sale_probabilities(loyal, basket)[np.arange(n), shown]
    columns = {"visit": np.arange(n), "loyal": loyal, "basket": basket, "banner": shown, "bought": bought}
    return pl.DataFrame(columns).with_columns(pl.col("bought").cast(pl.Float64))


def fewer_discounts(states):
    """Weights of the banners: to a loyal customer the odds of a discount are a third of what they are now."""
    loyal = states[:, 0] > 0
    return np.stack([np.ones(len(states)), np.where(loyal, 1 / 3, 1.0), np.ones(len(states))], axis=1)


def main(n: int = 4000) -> None:
    log = visits(n, np.random.default_rng(0))
    data = cal.read_table(log, episode="visit", action="banner", reward="bought", states=["loyal", "basket"])
    found = cal.audit(data, cal.tilt(cal.practice, fewer_discounts), rng=0)
    print(found)

    loyal, basket = np.random.default_rng(1).normal(size=(2, 1_000_000))
    now, sells = banner_probabilities(loyal, basket), sale_probabilities(loyal, basket)
    new = now * fewer_discounts(loyal[:, None])
    new /= new.sum(axis=1, keepdims=True)
    print("\nThe truth, which a shop does not have:")
    print(
        f"{(now * sells).sum(axis=1).mean():.3f} now, {(new * sells).sum(axis=1).mean():.3f} with fewer discounts."
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
