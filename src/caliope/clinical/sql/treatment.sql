-- Fluids, vasopressors and urine in each window. Fluid and urine are in mL per four hours, however long a window is.

-- Intravenous fluid in mL of isotonic fluid: hypertonic fluids count more, hypotonic ones less.
CREATE OR REPLACE TABLE fluid_doses AS
WITH given AS (
    SELECT i.icustay_id, i.starttime, i.endtime,
           i.amount * f.tonicity * CASE WHEN getvariable('grams_as_ml') THEN u.published_ml ELSE u.ml END AS ml,
           CASE WHEN i.amount < 0 THEN 'negative'
                WHEN i.amount IS NULL THEN 'a rate without an amount'
                WHEN u.ml IS NULL AND i.amount > 0 THEN 'unknown unit' END AS fault
    FROM infusions i JOIN fluids f USING (itemid)
    LEFT JOIN units u ON u.unit = coalesce(i.amountuom, 'ml')
    WHERE i.fault IS NULL AND (i.status IS DISTINCT FROM 'rewritten' OR getvariable('rewritten_fluids'))
)
SELECT * FROM given;

CREATE OR REPLACE TABLE window_fluids AS
WITH bolus AS (
    SELECT d.icustay_id, unnest(window_of(epoch_us(d.starttime), epoch_us(r.origin))) AS step, d.ml
    FROM fluid_doses d JOIN records r USING (icustay_id) WHERE d.fault IS NULL AND d.endtime = d.starttime
),
running AS (
    -- A running fluid is spread evenly over the time it ran.
    SELECT d.icustay_id, w.step,
           d.ml * epoch(least(d.endtime, w.ends) - greatest(d.starttime, w.starts)) / epoch(d.endtime - d.starttime) AS ml
    FROM fluid_doses d JOIN windows w ON w.icustay_id = d.icustay_id AND d.starttime < w.ends AND d.endtime > w.starts
    WHERE d.fault IS NULL AND d.endtime > d.starttime
)
SELECT icustay_id, step, sum(ml::DECIMAL(18, 6))::DOUBLE * 4 / getvariable('window_hours') AS input_4hourly
FROM (SELECT * FROM bolus UNION ALL SELECT * FROM running) GROUP BY icustay_id, step;

-- Vasopressors in micrograms/kg/min of norepinephrine.
CREATE OR REPLACE TABLE vasopressor_doses AS
WITH weighed AS (
    SELECT i.*, v.drug, v.equivalent, m.value::DOUBLE AS last_weight
    FROM (SELECT * FROM infusions WHERE fault IS NULL AND status IS DISTINCT FROM 'rewritten') i
    JOIN vasopressors v USING (itemid)
    ASOF LEFT JOIN (SELECT icustay_id, time, max(value) AS value FROM measurements
                    WHERE variable = 'Weight_kg' AND fault IS NULL GROUP BY ALL) m
        ON m.icustay_id = i.icustay_id AND i.starttime >= m.time
),
rated AS (
    SELECT *, CASE WHEN getvariable('everyone_80_kg') THEN 80 ELSE coalesce(last_weight, 80) END AS weight,
           replace(rateuom, '/', '') AS unit
    FROM weighed
)
SELECT icustay_id, itemid, drug, starttime, endtime,
       CASE
           -- Above 0.2 units a minute would be lethal: such a rate is read as units an hour.
           WHEN drug = 'vasopressin' AND (rate > 0.2 OR unit IN ('unitshour', 'uhr')) THEN equivalent * rate / 60
           WHEN drug = 'vasopressin' AND unit IN ('unitsmin', 'umin') THEN equivalent * rate
           WHEN drug <> 'vasopressin' AND unit = 'mcgkgmin' THEN equivalent * rate
           WHEN drug <> 'vasopressin' AND unit = 'mcgmin' THEN equivalent * rate / weight
       END AS dose,
       CASE WHEN rate < 0 THEN 'negative'
            WHEN rate IS NULL THEN 'an amount without a rate'
            WHEN dose IS NULL THEN 'unknown unit'
            -- Ten times what is called refractory shock: a slip of the pen.
            WHEN dose > 10 THEN 'above 10 micrograms/kg/min' END AS fault
FROM rated;

-- The largest and the median rate that ran in the window.
CREATE OR REPLACE TABLE window_vasopressors AS
WITH running AS (
    SELECT d.icustay_id, w.step, d.dose
    FROM vasopressor_doses d JOIN windows w ON w.icustay_id = d.icustay_id AND d.starttime < w.ends AND d.endtime > w.starts
    WHERE d.fault IS NULL AND d.endtime > d.starttime
    UNION ALL
    SELECT d.icustay_id, unnest(window_of(epoch_us(d.starttime), epoch_us(r.origin))), d.dose
    FROM vasopressor_doses d JOIN records r USING (icustay_id) WHERE d.fault IS NULL AND d.endtime = d.starttime
)
SELECT icustay_id, step, max(dose) AS max_dose_vaso, median(dose) AS median_dose_vaso FROM running GROUP BY icustay_id, step;

-- Urine in mL: what was flushed into the bladder is taken off what comes out of it, in that window or in later ones.
CREATE OR REPLACE TABLE window_urine AS
WITH placed AS (
    SELECT o.icustay_id, unnest(window_of(epoch_us(o.charttime), epoch_us(r.origin))) AS step, u.sign * o.number AS ml, u.counted,
           u.sign < 0 AS flushed_in
    FROM (SELECT DISTINCT * FROM outputs WHERE fault IS NULL) o
    JOIN urine_items u USING (itemid) JOIN records r USING (icustay_id)
),
summed AS (
    SELECT icustay_id, step, coalesce(sum(ml) FILTER (counted = 'during'), 0) AS net,
           coalesce(sum(ml) FILTER (counted = 'before'), 0) AS preadmission,
           count(*) FILTER (counted = 'during' AND NOT flushed_in) AS times_charted
    FROM placed GROUP BY icustay_id, step
),
running AS (SELECT *, sum(net) OVER stay AS balance FROM summed WINDOW stay AS (PARTITION BY icustay_id ORDER BY step)),
-- Urine so far is the largest balance so far: fluid that is still in the bladder is no urine taken back.
made AS (SELECT *, greatest(max(balance) OVER stay, 0) AS so_far FROM running WINDOW stay AS (PARTITION BY icustay_id ORDER BY step))
SELECT icustay_id, step, (so_far - coalesce(lag(so_far) OVER stay, 0))::DOUBLE AS output_window,
       output_window * 4 / getvariable('window_hours') AS output_4hourly,
       output_window + preadmission::DOUBLE AS with_preadmission, times_charted
FROM made WINDOW stay AS (PARTITION BY icustay_id ORDER BY step);
