"""
From raw tables to a cohort
===========================

The sepsis cohort is built from the raw tables of MIMIC-III or MIMIC-IV, which only accredited readers have. This
example makes tables of the same form with made-up patients. The generator belongs to the tests: run the example in a
clone of the repository.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import caliope as cal

sys.path.insert(0, str(Path.cwd().parent / "tests"))  # from the folder of the examples
from support.synthetic_mimic.generate import generate_mimic

folder = Path(tempfile.mkdtemp())
made = generate_mimic(folder / "tables", 60, layout="mimic3", rng=0)
print({name: made.rows[name] for name in ("patients", "chartevents", "labevents")})

# %%
# ``caliope cohort mimic3`` does the same from the command line.

cohort = cal.clinical.build_cohort(folder / "tables")
print(cohort)
data = cal.clinical.to_trajectories(cohort.rows)
print(data)

# %%
# 25 actions: five levels of fluids by five of vasopressors.

counts = np.bincount(data.actions, minlength=25).reshape(5, 5)
figure, axis = plt.subplots(figsize=(4.2, 3.6))
image = axis.imshow(counts / counts.sum(), origin="lower", cmap="Blues")
axis.set(
    xlabel="vasopressors, level", ylabel="fluids, level", title="share of the decisions"
)
figure.colorbar(image)
