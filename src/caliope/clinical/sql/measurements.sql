-- Vital signs, laboratory values and ventilation: one unit for each, and nothing outside the limits of physiology.

CREATE OR REPLACE TABLE measurements AS
WITH readings AS (
    SELECT r.icustay_id, i.variable, i.reading, c.charttime AS time, c.number, c.value, 'chartevents' AS source_table,
           v.kind = 'lab' AS laboratory, c.itemid
    FROM charted c JOIN records r USING (icustay_id) JOIN items i USING (itemid) LEFT JOIN variables v USING (variable)
    WHERE c.fault IS NULL AND i.source_table = 'chartevents' AND i.variable <> 'culture'
      AND c.charttime >= r.origin - INTERVAL 9 DAY AND c.charttime < r.onset + INTERVAL 80 HOUR
    UNION ALL
    SELECT r.icustay_id, i.variable, i.reading, l.known_at, l.number, l.value, 'labevents', false, l.itemid
    FROM lab_results l JOIN records r USING (subject_id) JOIN items i USING (itemid)
    WHERE l.fault IS NULL AND i.source_table = 'labevents' AND i.variable <> 'specimen'
      AND l.known_at >= r.origin - INTERVAL 9 DAY AND l.known_at < r.onset + INTERVAL 80 HOUR
      -- A venous sample says nothing about arterial oxygen.
      AND NOT (i.variable IN ('paO2', 'paCO2', 'Arterial_pH', 'Arterial_BE') AND EXISTS (
          SELECT 1 FROM lab_results t WHERE t.specimen AND t.subject_id = l.subject_id
          AND t.charttime = l.charttime AND NOT starts_with(upper(t.value), 'ART')))
),
coma AS (
    -- MetaVision charts the three parts of the coma scale apart.
    SELECT icustay_id, 'GCS' AS variable, NULL AS reading, time, sum(number) AS number, NULL AS value, 'chartevents' AS source_table,
           false AS laboratory, 0 AS itemid
    FROM (SELECT icustay_id, time, variable, max(number) AS number FROM readings
          WHERE variable IN ('GCS_eye', 'GCS_verbal', 'GCS_motor') GROUP BY ALL)
    GROUP BY icustay_id, time HAVING count(*) = 3
),
converted AS (
    SELECT icustay_id, variable, source_table, itemid,
           -- Results of the laboratory that were copied to the bedside chart bear the time of the sample.
           CASE WHEN laboratory THEN time + hours(getvariable('lab_delay_hours'))
                ELSE time END AS time,
           CASE
               WHEN reading = 'charted' THEN CASE WHEN value IS NOT NULL THEN 1 END
               -- Every mode is one of ventilation, but for those in the list.
               WHEN reading = 'mode' THEN CASE WHEN value IN (SELECT mode FROM ventilator_modes)
                   THEN (SELECT ventilated FROM ventilator_modes WHERE mode = r.value) WHEN value IS NOT NULL THEN 1 END
               WHEN reading = 'device' AND variable = 'mechvent' THEN CASE WHEN value = 'Ventilator' THEN 1 END
               WHEN reading = 'extubation' THEN CASE WHEN value IN ('Extubated', 'Self Extubation') THEN 0 END
               WHEN variable = 'Interface' THEN (SELECT code FROM devices d WHERE d.value = lower(trim(r.value)))
               ELSE in_unit(variable, reading, number)
           END AS value
    FROM (SELECT * FROM readings WHERE variable NOT LIKE 'GCS\_%' ESCAPE '\' UNION ALL SELECT * FROM coma) r
)
-- The same row twice counts once.
SELECT c.icustay_id, c.variable, c.time, try_cast(c.value AS DECIMAL(18, 6)) AS value, c.source_table, c.itemid,
       CASE WHEN any_value(c.value NOT BETWEEN v.low AND v.high) THEN 'outside the limits' END AS fault, count(*) AS copies
FROM converted c JOIN variables v USING (variable)
WHERE c.value IS NOT NULL
GROUP BY c.icustay_id, c.variable, c.time, c.value, c.source_table, c.itemid;
