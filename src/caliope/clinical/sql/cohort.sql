-- The cohort: 25 actions, the rewards of Raghu 2017, and the outcome.

-- Limits between the dose levels: those of Raghu 2017, or quartiles of the non-zero doses of the training patients.
CREATE OR REPLACE TABLE cuts AS
WITH given AS (
    SELECT d.input_4hourly, d.max_dose_vaso
    FROM decisions d JOIN fates f USING (icustay_id) JOIN stays s USING (icustay_id) WHERE f.stage = 99 AND s.training
)
SELECT 'iv' AS drug, CASE WHEN getvariable('cuts') = 'refit'
    THEN (SELECT quantile_cont(input_4hourly, [0.25, 0.5, 0.75]) FROM given WHERE input_4hourly > 0)
    ELSE getvariable('iv_cuts') END AS cut
UNION ALL
SELECT 'vaso', CASE WHEN getvariable('cuts') = 'refit'
    THEN (SELECT quantile_cont(max_dose_vaso, [0.25, 0.5, 0.75]) FROM given WHERE max_dose_vaso > 0)
    ELSE getvariable('vaso_cuts') END;

CREATE OR REPLACE TABLE cohort AS
WITH limits AS (
    SELECT any_value(cut) FILTER (drug = 'iv') AS iv, any_value(cut) FILTER (drug = 'vaso') AS vaso FROM cuts
),
followed AS (
    SELECT d.*, s.subject_id, s.hadm_id, s.age, s.gender, s.re_admission, s.elixhauser, s.training, i.onset,
           s.died_in_hospital, s.died_within_90_days,
           CASE WHEN getvariable('outcome') = 'hospital' THEN s.died_in_hospital ELSE s.died_within_90_days END AS died,
           lead(d.SOFA) OVER stay AS next_sofa, lead(d.Arterial_lactate) OVER stay AS next_lactate,
           -- In the whole record, also before the first decision.
           d.icustay_id NOT IN (SELECT v.icustay_id FROM window_vasopressors v JOIN windows w USING (icustay_id, step)
                                WHERE w.recorded AND v.max_dose_vaso > 0) AS never_vasopressor
    FROM decisions d JOIN fates f USING (icustay_id) JOIN stays s USING (icustay_id) JOIN infections i USING (icustay_id)
    WHERE f.stage = 99
    WINDOW stay AS (PARTITION BY d.icustay_id ORDER BY d.step)
),
acted AS (
    -- Level 0 is no dose at all; a dose on a limit belongs to the level above it.
    SELECT f.*,
           CASE WHEN input_4hourly <= 0 THEN 0
                ELSE 1 + CAST(input_4hourly >= iv[1] AS INTEGER) + CAST(input_4hourly >= iv[2] AS INTEGER) + CAST(input_4hourly >= iv[3] AS INTEGER) END AS iv_level,
           CASE WHEN max_dose_vaso <= 0 THEN 0
                ELSE 1 + CAST(max_dose_vaso >= vaso_cut[1] AS INTEGER) + CAST(max_dose_vaso >= vaso_cut[2] AS INTEGER) + CAST(max_dose_vaso >= vaso_cut[3] AS INTEGER) END AS vaso_level
    FROM followed f CROSS JOIN (SELECT iv, vaso AS vaso_cut FROM limits) l
)
SELECT subject_id, hadm_id, icustay_id, bloc, starts AS charttime, decided_at, onset,
       Albumin, Arterial_BE, Arterial_lactate, Arterial_pH, BUN, CO2_mEqL, Calcium, Chloride, Creatinine, DiaBP, FiO2_1, GCS,
       Glucose, HCO3, HR, Hb, INR, Ionised_Ca, Magnesium, MeanBP, PT, PTT, PaO2_FiO2, Platelets_count, Potassium, RR, SGOT,
       SGPT, SIRS::DOUBLE AS SIRS, SOFA::DOUBLE AS SOFA, Shock_Index, Sodium, SpO2, SysBP, Temp_C, Total_bili, WBC_count,
       Weight_kg, age::DOUBLE AS age, elixhauser::DOUBLE AS elixhauser, gender::DOUBLE AS gender, mechvent,
       output_4hourly, output_total, paCO2, paO2, re_admission::DOUBLE AS re_admission,
       max_dose_vaso, median_dose_vaso, input_4hourly,
       iv_level, vaso_level, 5 * iv_level + vaso_level AS action,
       -- Staying ill and getting worse cost; the last step is worth the outcome.
       CASE WHEN next_sofa IS NULL THEN CASE WHEN died THEN -1 ELSE 1 END * getvariable('terminal_reward')
            ELSE -0.025 * CAST(next_sofa = SOFA AND next_sofa > 0 AS INTEGER) - 0.125 * (next_sofa - SOFA)
                 - 2 * tanh(next_lactate - Arterial_lactate) END::DOUBLE AS reward,
       next_sofa IS NULL AS terminated, died, died_in_hospital, died_within_90_days, never_vasopressor, training
FROM acted
ORDER BY icustay_id, bloc;

-- How much of each value was measured in its window, held, carried, estimated or missing before anything was filled in.
CREATE OR REPLACE TABLE missingness AS
SELECT k.variable, count(*) AS rows,
       count(*) FILTER (k.origin = 'measured') / count(*) AS measured,
       count(*) FILTER (k.origin = 'held') / count(*) AS held,
       count(*) FILTER (k.origin = 'carried') / count(*) AS carried,
       count(*) FILTER (k.origin = 'estimated') / count(*) AS estimated,
       count(*) FILTER (k.origin IS NULL) / count(*) AS missing
FROM known k JOIN decisions d USING (icustay_id, step) JOIN fates f USING (icustay_id) WHERE f.stage = 99
GROUP BY k.variable ORDER BY k.variable;
