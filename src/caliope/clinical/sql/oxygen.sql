-- Inspired oxygen where it was not charted: from the device and the flow, or room air where nothing was given.

CREATE OR REPLACE TABLE known AS
WITH supply AS (
    SELECT icustay_id, step,
           max(value) FILTER (variable = 'Interface' AND origin IS NOT NULL) AS device,
           max(value) FILTER (variable = 'O2flow' AND origin IS NOT NULL) AS flow
    FROM held WHERE variable IN ('Interface', 'O2flow') GROUP BY icustay_id, step
),
estimated AS (
    SELECT s.icustay_id, s.step,
           CASE WHEN s.flow IS NULL AND s.device IN (0, 1) THEN 0.21 ELSE o.fio2 END AS fio2
    FROM supply s LEFT JOIN oxygen o ON o.device = s.device AND s.flow > o.above_flow AND s.flow <= o.up_to_flow
)
SELECT h.icustay_id, h.step, h.variable,
       CASE WHEN h.variable = 'FiO2_1' AND h.origin IS DISTINCT FROM 'measured' AND h.origin IS DISTINCT FROM 'held'
                 AND e.fio2 IS NOT NULL THEN 'estimated'
            -- As published nothing is carried beyond its hold: the gap is filled from other rows.
            WHEN h.origin = 'carried' AND getvariable('nearest_row_imputation') THEN NULL
            ELSE h.origin END AS origin,
       CASE WHEN h.variable = 'FiO2_1' AND h.origin IS DISTINCT FROM 'measured' AND h.origin IS DISTINCT FROM 'held'
                 AND e.fio2 IS NOT NULL THEN e.fio2
            WHEN h.origin IS NULL OR (h.origin = 'carried' AND getvariable('nearest_row_imputation')) THEN NULL
            ELSE h.value END AS value
FROM held h LEFT JOIN estimated e USING (icustay_id, step)
WHERE h.variable NOT IN ('Interface', 'O2flow', 'RASS', 'Ht', 'Direct_bili');
