-- What is known at the end of each window.

-- The mean of what was charted in the window; sums are exact, so that the order of rows cannot matter.
CREATE OR REPLACE TABLE window_means AS
WITH placed AS (
    SELECT m.icustay_id, m.variable, m.time, m.value,
           unnest(window_of(epoch_us(m.time), epoch_us(r.origin))) AS step
    FROM measurements m JOIN records r USING (icustay_id) WHERE m.fault IS NULL
)
SELECT icustay_id, variable, step, max(time) AS last_time, count(*) AS n,
       CASE variable WHEN 'mechvent' THEN max(value)::DOUBLE
                     WHEN 'Interface' THEN arg_max(value, (time, value))::DOUBLE
                     ELSE sum(value)::DOUBLE / count(*) END AS value,
       -- Ventilated at any time of the window is ventilated; but who was extubated in it is not so after it.
       CASE variable WHEN 'mechvent' THEN arg_max(value, (time, -value))::DOUBLE END AS final
FROM placed GROUP BY icustay_id, variable, step;

-- What follows from other values of the same window where it was not charted itself.
CREATE OR REPLACE TABLE window_values AS
WITH wide AS (
    SELECT icustay_id, step,
           max(value) FILTER (variable = 'SysBP') AS sys, max(value) FILTER (variable = 'MeanBP') AS mean,
           max(value) FILTER (variable = 'DiaBP') AS dia, max(value) FILTER (variable = 'GCS') AS gcs,
           max(value) FILTER (variable = 'RASS') AS rass, max(value) FILTER (variable = 'Hb') AS hb,
           max(value) FILTER (variable = 'Ht') AS ht, max(value) FILTER (variable = 'Total_bili') AS bili,
           max(value) FILTER (variable = 'Direct_bili') AS direct, max(last_time) AS last_time
    FROM window_means
    WHERE variable IN ('SysBP', 'MeanBP', 'DiaBP', 'GCS', 'RASS', 'Hb', 'Ht', 'Total_bili', 'Direct_bili')
    GROUP BY icustay_id, step
),
derived AS (
    -- Mean pressure is a third systolic and two thirds diastolic.
    SELECT icustay_id, 'DiaBP' AS variable, step, last_time, (3 * mean - sys) / 2 AS value FROM wide WHERE dia IS NULL
    UNION ALL SELECT icustay_id, 'MeanBP', step, last_time, (sys + 2 * dia) / 3 FROM wide WHERE mean IS NULL
    UNION ALL SELECT icustay_id, 'SysBP', step, last_time, 3 * mean - 2 * dia FROM wide WHERE sys IS NULL
    -- The coma scale from the sedation scale (Ely, JAMA 2003).
    UNION ALL SELECT icustay_id, 'GCS', step, last_time,
        CASE WHEN rass >= -0.5 THEN 15 WHEN rass >= -1.5 THEN 14 WHEN rass >= -2.5 THEN 12
             WHEN rass >= -3.5 THEN 11 WHEN rass >= -4.5 THEN 6 ELSE 3 END
        FROM wide WHERE gcs IS NULL AND rass IS NOT NULL
    -- Haemoglobin from haematocrit, total from direct bilirubin: regressions of the AI Clinician code.
    UNION ALL SELECT icustay_id, 'Hb', step, last_time, (ht - 1.216) / 2.862 FROM wide WHERE hb IS NULL
    UNION ALL SELECT icustay_id, 'Total_bili', step, last_time, (direct + 0.1752) / 0.6934 FROM wide WHERE bili IS NULL
)
SELECT icustay_id, variable, step, last_time, value, coalesce(final, value) AS later FROM window_means
UNION ALL
-- What follows from possible values may be impossible.
SELECT d.icustay_id, d.variable, d.step, d.last_time, d.value, d.value
FROM derived d JOIN variables v USING (variable) WHERE d.value BETWEEN v.low AND v.high;

-- Between measurements the last value holds, for as long as a clinician would still call it current; then it is only carried.
CREATE OR REPLACE TABLE held AS
SELECT w.icustay_id, w.step, v.variable,
       CASE WHEN x.step = w.step THEN 'measured'
            WHEN epoch(w.ends - x.last_time) <= 3600 * v.hold_hours THEN 'held'
            WHEN v.carried = 1 AND epoch(w.ends - x.last_time) <= 7 * 86400 THEN 'carried'
       END AS origin,
       CASE WHEN x.step = w.step THEN x.value ELSE x.later END AS value
FROM windows w
CROSS JOIN variables v
ASOF LEFT JOIN window_values x
    ON x.icustay_id = w.icustay_id AND x.variable = v.variable AND w.step >= x.step;
