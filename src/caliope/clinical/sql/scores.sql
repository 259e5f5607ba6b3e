-- SOFA, SIRS and shock index in each window (Vincent 1996, Bone 1992).

-- Urine so far, from the first charted drop to the end of the window.
CREATE OR REPLACE TABLE urine_totals AS
SELECT w.icustay_id, w.step, coalesce(sum(t.with_preadmission::DECIMAL(18, 6)), 0)::DOUBLE AS output_total
FROM windows w LEFT JOIN window_urine t ON t.icustay_id = w.icustay_id AND t.step <= w.step
GROUP BY w.icustay_id, w.step;

CREATE OR REPLACE TABLE step_scores AS
WITH joined AS (
    SELECT s.*, s.paO2 / s.FiO2_1 AS PaO2_FiO2, s.HR / s.SysBP AS Shock_Index,
           coalesce(v.max_dose_vaso, 0) AS vaso, coalesce(u.output_4hourly, 0) AS output_4hourly, t.output_total,
           coalesce(u.times_charted, 0) > 0 OR getvariable('uncharted_urine_scores') AS urine_counts,
           w.starts, w.recorded, w.treated, w.scored
    FROM step_states s
    JOIN windows w USING (icustay_id, step)
    JOIN urine_totals t USING (icustay_id, step)
    LEFT JOIN window_vasopressors v USING (icustay_id, step)
    LEFT JOIN window_urine u USING (icustay_id, step)
),
points AS (
    SELECT *,
           -- Lungs: three and four points only on a ventilator.
           CASE WHEN PaO2_FiO2 >= 400 THEN 0 WHEN PaO2_FiO2 >= 300 THEN 1 WHEN PaO2_FiO2 >= 200 THEN 2
                WHEN mechvent < 1 AND NOT getvariable('unsupported_lung_points') THEN 2
                WHEN PaO2_FiO2 >= 100 THEN 3 ELSE 4 END AS lungs,
           -- Coagulation.
           CASE WHEN Platelets_count >= 150 THEN 0 WHEN Platelets_count >= 100 THEN 1 WHEN Platelets_count >= 50 THEN 2
                WHEN Platelets_count >= 20 THEN 3 ELSE 4 END AS coagulation,
           -- Liver.
           CASE WHEN Total_bili < 1.2 THEN 0 WHEN Total_bili < 2 THEN 1 WHEN Total_bili < 6 THEN 2
                WHEN Total_bili < 12 THEN 3 ELSE 4 END AS liver,
           -- Circulation: any vasopressor three points, more than 0.1 four.
           CASE WHEN vaso > 0.1 THEN 4 WHEN vaso > 0 THEN 3 WHEN MeanBP < 65 AND getvariable('low_pressure_two_points') THEN 2
                WHEN MeanBP < 70 THEN 1 ELSE 0 END AS circulation,
           -- Brain.
           CASE WHEN GCS > 14 THEN 0 WHEN GCS > 12 THEN 1 WHEN GCS > 9 THEN 2 WHEN GCS > 5 THEN 3 ELSE 4 END AS brain,
           -- Kidneys: creatinine, or urine of less than 500 and 200 mL a day.
           greatest(
               CASE WHEN Creatinine < 1.2 THEN 0 WHEN Creatinine < 2 THEN 1 WHEN Creatinine < 3.5 THEN 2
                    WHEN Creatinine < 5 THEN 3 ELSE 4 END,
               CASE WHEN urine_counts AND output_4hourly < 34 THEN 4
                    WHEN urine_counts AND output_4hourly < 84 THEN 3 ELSE 0 END) AS kidneys,
           -- As published, a value on a limit belongs to no class and the whole score becomes zero.
           getvariable('sofa_gaps') AND (PaO2_FiO2 = 400 OR Platelets_count = 150 OR Total_bili = 12
               OR (Creatinine = 5 AND NOT (urine_counts AND output_4hourly < 84))) AS gap
    FROM joined
)
SELECT *,
       CASE WHEN gap THEN 0 ELSE lungs + coagulation + liver + circulation + brain + kidneys END AS SOFA,
       CAST(Temp_C >= 38 OR Temp_C <= 36 AS INTEGER) + CAST(HR > 90 AS INTEGER)
           + CAST(RR >= 20 OR paCO2 <= 32 AS INTEGER) + CAST(WBC_count >= 12 OR WBC_count < 4 AS INTEGER) AS SIRS
FROM points;
