-- One row a decision: what was known, what was then given, and how the patient fared.

CREATE OR REPLACE TABLE decisions AS
WITH doses AS (
    SELECT w.icustay_id, w.step, w.starts, w.treated, coalesce(f.input_4hourly, 0) AS input_4hourly,
           coalesce(v.max_dose_vaso, 0) AS max_dose_vaso, coalesce(v.median_dose_vaso, 0) AS median_dose_vaso
    FROM windows w
    LEFT JOIN window_fluids f USING (icustay_id, step)
    LEFT JOIN window_vasopressors v USING (icustay_id, step)
)
SELECT s.*, CAST(s.step + 1 AS INTEGER) AS bloc,
       -- The decision stands between the window of the state and the window of the action.
       CASE WHEN getvariable('same_window_action') THEN s.starts ELSE d.starts END AS decided_at,
       d.input_4hourly, d.max_dose_vaso, d.median_dose_vaso
FROM step_scores s
JOIN doses d ON d.icustay_id = s.icustay_id
    AND d.step = s.step + CASE WHEN getvariable('same_window_action') THEN 0 ELSE 1 END
WHERE s.recorded AND d.treated;
