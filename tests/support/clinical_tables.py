"""A tiny made-up hospital: raw tables of a few stays, small enough to check with a pencil."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime, timedelta

ARRIVAL = datetime(2150, 1, 2, 8)
"""When the patient of :func:`typical` comes to the ICU, and so the origin of the windows."""

COLUMNS = {
    "patients": "subject_id gender dob dod",
    "admissions": "subject_id hadm_id admittime dischtime deathtime hospital_expire_flag",
    "icustays": "subject_id hadm_id icustay_id intime outtime",
    "chartevents": "subject_id hadm_id icustay_id itemid charttime value valuenum valueuom error",
    "labevents": "subject_id hadm_id itemid charttime value valuenum",
    "prescriptions": "subject_id hadm_id icustay_id startdate drug gsn route",
    "microbiologyevents": "subject_id hadm_id chartdate charttime",
    "outputevents": "icustay_id itemid charttime value iserror",
    "inputevents_mv": "icustay_id itemid starttime endtime amount amountuom rate rateuom statusdescription",
    "inputevents_cv": "icustay_id itemid charttime amount amountuom rate rateuom",
    "diagnoses_icd": "subject_id hadm_id seq_num icd9_code",
    "procedureevents_mv": "icustay_id itemid starttime",
}
HR, SYS, MEAN, DIA, RR, SPO2, TEMP_F = 220045, 220179, 220181, 220180, 220210, 220277, 223761
WEIGHT, FIO2, PEEP, LACTATE, CREATININE, PLATELETS, BILIRUBIN = (
    226512,
    223835,
    220339,
    50813,
    50912,
    51265,
    50885,
)
PO2, SODIUM, FOLEY, NOREPINEPHRINE, SALINE = 50821, 50983, 226559, 221906, 225158


def at(hours: float) -> str:
    """A time so many hours after the arrival of the typical patient."""
    return str(ARRIVAL + timedelta(hours=hours))


class Hospital:
    """Rows by table; every method adds some for patient n, whose ICU stay is 100 + n, and returns the hospital."""

    def __init__(self):
        self.rows = {name: [] for name in COLUMNS}

    def add(self, table, **values):
        self.rows[table].append(values)
        return self

    def stay(self, n=1, *, stay=None, admission=None, hours=72.0, arrives=0.0, born="2090-01-01", died=None):
        admission = 10 * n if admission is None else admission
        if not any(row["subject_id"] == n for row in self.rows["patients"]):
            self.add("patients", subject_id=n, gender="M", dob=f"{born} 00:00:00", dod=died)
        self.add(
            "admissions", subject_id=n, hadm_id=admission, admittime=at(arrives - 1),
            dischtime=died or at(arrives + hours + 24), deathtime=died, hospital_expire_flag=int(died is not None),
        )  # fmt: skip
        return self.add(
            "icustays", subject_id=n, hadm_id=admission, icustay_id=stay or 100 + n, intime=at(arrives),
            outtime=at(arrives + hours),
        )  # fmt: skip

    def infected(
        self, n=1, *, antibiotic=0.0, culture=1.0, drug="Vancomycin", route="IV", gsn=None, stay=True
    ):
        """An antibiotic and a culture at so many hours; None for neither; ``stay=False`` where none is written."""
        if antibiotic is not None:
            self.add(
                "prescriptions", subject_id=n, hadm_id=10 * n, icustay_id=100 + n if stay else None,
                startdate=at(antibiotic), drug=drug, gsn=gsn, route=route,
            )  # fmt: skip
        if culture is not None:
            self.add("microbiologyevents", subject_id=n, hadm_id=10 * n, charttime=at(culture))
        return self

    def chart(self, item, hours, value, n=1, *, stay=None, error=None):
        return self.add(
            "chartevents", subject_id=n, hadm_id=10 * n, icustay_id=stay or 100 + n, itemid=item, charttime=at(hours),
            value=value, valuenum=None if isinstance(value, str) else value, error=error,
        )  # fmt: skip

    def lab(self, item, hours, value, n=1):
        return self.add(
            "labevents", subject_id=n, hadm_id=10 * n, itemid=item, charttime=at(hours), value=value,
            valuenum=None if isinstance(value, str) else value,
        )  # fmt: skip

    def infusion(
        self, item, start, end, n=1, *, amount=None, unit="ml", rate=None, per="mL/hour", status="Stopped"
    ):
        return self.add(
            "inputevents_mv", icustay_id=100 + n, itemid=item, starttime=at(start), endtime=at(end), amount=amount,
            amountuom=unit, rate=rate, rateuom=per, statusdescription=status,
        )  # fmt: skip

    def drip(self, rate, start, end, n=1, *, item=NOREPINEPHRINE, per="mcg/kg/min"):
        return self.infusion(item, start, end, n, amount=1, unit="mg", rate=rate, per=per)

    def urine(self, hours, ml, n=1, *, item=FOLEY):
        return self.add("outputevents", icustay_id=100 + n, itemid=item, charttime=at(hours), value=ml)

    def write(self, folder, *, upper=False, ending=".csv.gz", skip=()):
        """Files as PhysioNet ships them: MIMIC-III in capitals, or in small letters like the demo."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in set(COLUMNS) - set(skip):
            columns = COLUMNS[name].split()
            opener = gzip.open if ending.endswith("gz") else open
            path = folder / ((name.upper() if upper else name) + ending)
            with opener(path, "wt", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow([c.upper() for c in columns] if upper else columns)
                for row in self.rows[name]:
                    assert set(row) <= set(columns), f"{name} has no {set(row) - set(columns)}"
                    writer.writerow(["" if row.get(c) is None else row[c] for c in columns])
        return folder


def typical(patients=1):
    """Septic men of 60 in MetaVision: onset on arrival, three days in the ICU, charted every two hours.

    Presumed onset is the antibiotic at hour 0, so the record runs from hour 0 to hour 48: twelve windows, and
    eleven decisions at the hours 4, 8, ..., 44. Platelets of 90 make SOFA 2.
    """
    h = Hospital()
    for n in range(1, patients + 1):
        h.stay(n).infected(n).chart(WEIGHT, 0, 50, n)
        for hour in range(0, 72, 2):
            h.chart(HR, hour, 80 + hour, n).chart(SYS, hour, 120, n).chart(DIA, hour, 60, n).chart(
                MEAN, hour, 80, n
            )
            h.chart(RR, hour, 18, n).chart(SPO2, hour, 97, n).chart(TEMP_F, hour, 98.6, n)
        for hour in (-2, 10, 22, 34, 46):
            h.lab(LACTATE, hour, 4.0, n).lab(PLATELETS, hour, 90, n).lab(CREATININE, hour, 1.0, n).lab(
                SODIUM, hour, 140, n
            )
    return h


def sparse(patients=1):
    """The same men with hardly anything charted: a heart rate, and platelets of 40 for a SOFA of 3."""
    h = Hospital()
    for n in range(1, patients + 1):
        h.stay(n).infected(n).chart(HR, 0, 80, n).lab(PLATELETS, 0, 40, n)
    return h
