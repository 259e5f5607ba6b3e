"""Kill commands at random moments and start them again: the end must be that of an undisturbed run.

Run: python -m benchmarks.kills [--kills 100] [--seed 0] [--only cohort]

``evaluate``, ``compare``, the paper's Figure 1 and ``cohort`` are each killed (SIGKILL) a quarter of the times, five
times in the same folder before they may end. No result may be half written after a kill, and in the end every number
is that of the run that nobody disturbed. Kills that met a finished command are not counted: others take their place.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.killing import JOBS, Job, finish, kill_and_finish, moments_of

IN_A_ROW = 5


def kill_often(job: Job, kills: int, seed: int) -> tuple[int, int, list[str]]:
    """Kills, runs that ended too early to be killed, and faults."""
    with tempfile.TemporaryDirectory() as name:
        whole, seconds, fault = finish(job, Path(name) / "whole")
        if fault:
            return 0, 0, [f"{job.name}, undisturbed: {fault}"]
        done, late, faults, round_ = 0, 0, [], 0
        while done < kills and not faults and round_ < kills:  # where every kill came too late, it ends
            moments = moments_of(1000 * seed + round_, min(IN_A_ROW, kills - done))
            came = kill_and_finish(job, Path(name) / f"round{round_}", moments, whole=whole, seconds=seconds)
            done, late, faults, round_ = (
                done + came.kills,
                late + came.too_late,
                [*faults, *came.faults],
                round_ + 1,
            )
            print(f"{job.name}: {done} of {kills} kills, {late} too late, {len(faults)} faults", flush=True)
    return done, late, faults


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="In all.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=JOBS, help="One of the commands.")
    given = parser.parse_args()
    jobs = [JOBS[given.only]] if given.only else list(JOBS.values())
    found = {job.name: kill_often(job, -(-given.kills // len(jobs)), given.seed) for job in jobs}
    faults = [fault for _, _, of_one in found.values() for fault in of_one]
    for name, (done, _, of_one) in found.items():
        print(f"{name:<12}{done:>5} kills{len(of_one):>5} faults")
    print("\n".join(faults))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
