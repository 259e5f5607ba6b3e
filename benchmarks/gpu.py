"""Neighbours, networks and fitted Q on a GPU against the CPU.

Run: python -m benchmarks.gpu [--points 250000] [--device cuda] [--only neighbours]

It needs PyTorch and NumPy; what else is missing on the machine is said, and what needs it is left out. The status is 1
if the neighbours are not those of a comparison in float64.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

K, D, CLUSTERS, NOISE = 150, 198, 713, 0.4
FEATURES, ACTIONS, LENGTH, EPOCHS, ROUNDS = 60, 25, 8, 4, 3
GOAL = 0.3  # seconds for 250,000 points among themselves
SAME = 1e-6  # relative
WANTED = ("faiss", "sklearn", "lazy_loader", "narwhals", "polars", "threadpoolctl", "joblib")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=250_000)
    parser.add_argument("--sample", type=int, default=1_000, help="queries compared with the CPU")
    parser.add_argument("--steps", type=int, default=200_000, help="decisions that networks are fitted to")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", choices=("neighbours", "networks"))
    chosen = parser.parse_args()
    say_where(chosen.device)
    right = True
    if chosen.only in (None, "neighbours"):
        right = neighbours(chosen.points, chosen.sample, chosen.device)
    if chosen.only in (None, "networks"):
        for part in (behaviour_network, fitted_values):
            try:
                part(chosen.steps, chosen.device)
            except ModuleNotFoundError as error:
                print(f"left out, {error.name} is missing here: {part.__doc__}")
    return int(not right)


# -- the machine --------------------------------------------------------------------------------------------


def say_where(device: str) -> None:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else f"{os.cpu_count()} cores"
    print(f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}, NumPy {np.__version__}; {name}")
    missing = [each for each in WANTED if importlib.util.find_spec(each) is None]
    print(f"missing here: {', '.join(missing) or 'nothing'}", flush=True)
    use_sources()


def use_sources() -> None:
    """Let modules be imported one by one: the packages' own files want what may be missing."""
    source = Path(__file__).resolve().parent.parent / "src" / "caliope"
    for name in ("caliope", "caliope.behaviour", "caliope.values"):
        package = types.ModuleType(name)
        package.__path__ = [str(source.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package


def seconds(call: Callable[[], Any], device: str, *, repeats: int = 3) -> float:
    """Return the shortest of several times, after one for warming up."""
    times = []
    for _ in range(repeats + 1):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


# -- neighbours ---------------------------------------------------------------------------------------------


def make_points(n: int) -> Any:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLUSTERS, D), dtype=np.float32)
    noise = rng.standard_normal((n, D), dtype=np.float32)
    return centres[rng.integers(CLUSTERS, size=n)] + np.float32(NOISE) * noise


def neighbours(n: int, sample: int, device: str) -> bool:
    from caliope.behaviour._torch_search import TorchIndex

    points = make_points(n)
    index = TorchIndex(points, device)
    build = seconds(lambda: TorchIndex(points, device).nearest(points[:1], K), device, repeats=1)
    index.nearest(points[:1], K)
    print(f"\n{n} points of {D} columns among themselves, k = {K}; index made in {build:.2f} s")
    rate, here = product_rate(index, device), torch.tensor(points, device=device)
    alone = seconds(lambda: self_join(index, here), device)
    whole = seconds(lambda: index.nearest(points, K), device, repeats=1)
    for what, time_ in (("on the device", alone), ("from and to NumPy", whole)):
        share = 2e-12 * n * n * D / time_ / rate
        print(f"{what:<20}{time_:8.3f} s{n / time_:12,.0f} queries/s{share:8.2f} of the product rate")
    if n == 250_000:
        print(f"{'reached' if alone <= GOAL else 'MISSED '} the goal of {GOAL} s")
    steps(index, here, device)
    return exactness(index, points, sample)


def self_join(index: Any, points: Any) -> None:
    with torch.inference_mode():
        for part in points.split(index.table.rows_at_once(K)):
            index.table.nearest(part, K)


def product_rate(index: Any, device: str) -> float:
    """Print the rates of plain products of the same shape, in 1e12 operations per second; return the best."""
    table = index.table
    rows = min(table.rows_at_once(K), len(index.points))
    full = torch.zeros((len(table.rounded), D), device=device)
    halves = table.rounded.half()
    calls: dict[str, Callable[[], Any]] = {"float32": lambda: full[:rows] @ full.T}
    if device.startswith("cuda"):
        calls["tf32"] = calls["float32"]
        calls["half"] = lambda: halves[:rows] @ halves.T
    found = {}
    for name, call in calls.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        found[name] = 2e-12 * rows * len(full) * D / seconds(call, device)
    torch.backends.cuda.matmul.allow_tf32 = False
    print("products: " + ", ".join(f"{name} {rate:.1f}" for name, rate in found.items()) + " TFLOP/s")
    return max(found.values())


def steps(index: Any, points: Any, device: str) -> None:
    """Print how long the steps of a search take, for all queries."""
    table, n = index.table, len(points)
    part = points[: table.rows_at_once(K)]
    fetched, times = table.fetch(K), n / len(part)
    with torch.inference_mode():
        rounded = (part * table.scale).half()
        _, candidates = table.candidates(rounded, fetched)
        calls = {
            "product": lambda: table.multiply(rounded),
            "candidates": lambda: table.candidates(rounded, fetched),
            "ranking": lambda: table.rank(part, candidates, K),
            "search": lambda: table.search(part, K, fetched),
        }
        took = {name: times * seconds(call, device) for name, call in calls.items()}
        certain = table.search(part, K, fetched)[2]
    took["candidates"] -= took["product"]
    print("steps: " + ", ".join(f"{name} {t:.3f} s" for name, t in took.items()))
    print(f"certain at the first look: {certain.float().mean():.4%}, {len(part)} queries at once")


def exactness(index: Any, points: Any, sample: int) -> bool:
    """Compare a sample with distances in float64 on the CPU, and with FAISS where it is installed."""
    asked = np.random.default_rng(1).choice(len(points), min(sample, len(points)), replace=False)
    squared, ids = index.nearest(points[asked], K)
    true, true_ids = in_float64(points[asked], points)
    worst = float(np.max(np.abs(squared - true) / np.maximum(true, 1e-9)))
    print(f"{len(asked)} queries beside float64: distances differ by at most {worst:.1e}", end="")
    print(f" (stated {SAME:.0e}), {same_ids(ids, true_ids):.5%} of the ids are the same")
    if importlib.util.find_spec("faiss"):
        from caliope.behaviour._search import Exact

        exact = Exact(device="cpu").build(points)
        start = time.perf_counter()
        cpu = exact.nearest(points[asked], K)
        rate = len(asked) / (time.perf_counter() - start)
        print(f"FAISS: {rate:,.0f} queries/s, {same_ids(ids, cpu[1]):.5%} of the ids are the same")
    return worst <= SAME


def in_float64(queries: Any, points: Any) -> tuple[Any, Any]:
    x = points.astype(np.float64)
    norm, out = (x**2).sum(axis=1), []
    for start in range(0, len(queries), 100):
        q = queries[start : start + 100].astype(np.float64)
        near = np.argpartition(norm - 2 * q @ x.T, K + 32, axis=1)[:, : K + 32]
        squared = ((x[near] - q[:, None]) ** 2).sum(axis=2)
        order = np.lexsort((near, squared), axis=1)[:, :K]
        out.append([np.take_along_axis(each, order, axis=1) for each in (squared, near)])
    return tuple(np.concatenate(each) for each in zip(*out, strict=True))


def same_ids(a: Any, b: Any) -> float:
    return float(np.mean([len(np.intersect1d(x, y)) / K for x, y in zip(a, b, strict=True)]))


# -- networks -----------------------------------------------------------------------------------------------


def make_log(n: int) -> tuple[Any, Any, Any]:
    """Make states, actions with their probabilities, and the trajectories of the rows."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((n, FEATURES), dtype=np.float32)
    scores = (
        np.tanh(states @ rng.standard_normal((FEATURES, 32)) / 4) @ rng.standard_normal((32, ACTIONS)) / 3
    )
    actions = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return states, actions, np.arange(n) // LENGTH


def behaviour_network(n: int, device: str) -> None:
    """Fit the behaviour network on the CPU and on the device."""
    from caliope.behaviour._torch_network import TorchNetworkPolicy

    states, actions, groups = make_log(n)
    print(f"\nbehaviour network, {n} decisions, {FEATURES} features, {ACTIONS} actions, batches of 256")
    found = []
    for where, seed in (("cpu", 0), (device, 0), (device, 1)):
        settings = {"dropout": 0.0, "device": where, "random_state": seed}
        few = TorchNetworkPolicy(max_epochs=1, **settings)
        few.fit(states[:4096], actions[:4096], groups=groups[:4096])
        start = time.perf_counter()
        model = TorchNetworkPolicy(max_epochs=EPOCHS, patience=EPOCHS, **settings)
        model.fit(states, actions, groups=groups)
        took = (time.perf_counter() - start) / EPOCHS
        found.append(model.predict_proba(states[:10_000]))
        alone = seconds(lambda m=model: m.predict_proba(states), where, repeats=1)
        print(
            f"{where:<6}seed {seed}{took:8.3f} s per epoch, held-out log loss {min(model.losses_):.5f}",
            end="",
        )
        print(f", {n / alone:,.0f} predictions/s")
    devices, seeds = (np.abs(a - b).mean() for a, b in itertools.pairwise(found))
    print(f"mean difference of probabilities: {devices:.1e} between devices, {seeds:.1e} between seeds")


def fitted_values(n: int, device: str) -> None:
    """Fit the values of a target with a network, on the CPU and on the device."""
    from caliope._trajectories import Trajectories
    from caliope.values._fqe import fitted_q
    from caliope.values._torch_regression import TorchNetworkRegressor

    states, actions, _ = make_log(n)
    rng = np.random.default_rng(1)
    rewards = np.tanh(states[:, 0]) + (actions == 3) + 0.1 * rng.standard_normal(n)
    data = Trajectories(states, actions, rewards, np.append(np.arange(0, n, LENGTH), n), n_actions=ACTIONS)
    target = rng.dirichlet(np.ones(ACTIONS), n)
    print(f"\nfitted Q with a network, {n} decisions, {ROUNDS} rounds of {EPOCHS} epochs, batches of 512")
    found = []
    for where, seed in (("cpu", 0), (device, 0), (device, 1)):
        network = TorchNetworkRegressor(max_epochs=EPOCHS, patience=EPOCHS, device=where, random_state=seed)
        start = time.perf_counter()
        values = fitted_q(data, target, network, gamma=0.9, n_iterations=ROUNDS)
        took = (time.perf_counter() - start) / ROUNDS
        found.append(values.q_all(states[:10_000]))
        print(f"{where:<6}seed {seed}{took:8.3f} s per round, value {values.trace[-1].value:.5f}")
    devices, seeds = (np.abs(a - b).mean() / found[0].std() for a, b in itertools.pairwise(found))
    print(
        f"mean difference of values by their spread: {devices:.1e} between devices, {seeds:.1e} between seeds"
    )


if __name__ == "__main__":
    sys.exit(main())
