-- Corrupt rows, by table and fault: none is dropped in silence.

CREATE OR REPLACE TABLE quality AS
SELECT 'icustays' AS source_table, fault AS problem, count(*) AS rows FROM icu_stays WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'chartevents', fault, count(*) FROM charted WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'chartevents', 'charted more than a day outside its ICU stay', count(*)
    FROM charted c JOIN stays s USING (icustay_id)
    WHERE c.fault IS NULL AND c.charttime NOT BETWEEN s.intime - INTERVAL 1 DAY AND s.outtime + INTERVAL 1 DAY HAVING count(*) > 0
UNION ALL SELECT 'chartevents', 'of no ICU stay', count(*)
    FROM charted c ANTI JOIN icu_stays s USING (icustay_id) WHERE c.fault IS NULL HAVING count(*) > 0
UNION ALL SELECT 'chartevents', 'unknown oxygen device', count(*)
    FROM charted c JOIN items i USING (itemid) ANTI JOIN devices d ON d.value = lower(trim(c.value))
    WHERE i.source_table = 'chartevents' AND i.variable = 'Interface' AND c.fault IS NULL AND c.value IS NOT NULL HAVING count(*) > 0
UNION ALL SELECT 'labevents', fault, count(*) FROM lab_results WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'prescriptions', fault, count(*) FROM orders WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'microbiologyevents', fault, count(*) FROM specimens WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT source_table, fault, count(*) FROM infusions WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'fluids', fault, count(*) FROM fluid_doses WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'vasopressors', fault, count(*) FROM vasopressor_doses WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'outputevents', fault, count(*) FROM outputs WHERE fault IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'chartevents', variable || ' outside the limits', count(*)
    FROM charted c JOIN items i USING (itemid) JOIN variables v USING (variable)
    WHERE i.source_table = 'chartevents' AND i.variable NOT IN ('mechvent', 'Interface') AND c.fault IS NULL
      AND in_unit(variable, i.reading, c.number) NOT BETWEEN v.low AND v.high GROUP BY ALL
UNION ALL SELECT 'labevents', variable || ' outside the limits', count(*)
    FROM lab_results l JOIN items i USING (itemid) JOIN variables v USING (variable)
    WHERE i.source_table = 'labevents' AND l.fault IS NULL AND l.number NOT BETWEEN v.low AND v.high GROUP BY ALL
UNION ALL SELECT source_table, 'the same row again, in the records', CAST(sum(copies - 1) AS BIGINT)
    FROM measurements WHERE copies > 1 GROUP BY ALL
UNION ALL SELECT 'patients', 'the same patient again', count(*) - count(DISTINCT subject_id)
    FROM raw_patients WHERE subject_id IS NOT NULL HAVING count(*) > count(DISTINCT subject_id)
UNION ALL SELECT 'admissions', 'the same admission again', count(*) - count(DISTINCT hadm_id)
    FROM raw_admissions WHERE hadm_id IS NOT NULL HAVING count(*) > count(DISTINCT hadm_id)
UNION ALL SELECT 'outputevents', 'the same row again', count(*) - count(DISTINCT (icustay_id, itemid, charttime, number))
    FROM outputs WHERE fault IS NULL HAVING count(*) > count(DISTINCT (icustay_id, itemid, charttime, number))
UNION ALL FROM rejected
UNION ALL SELECT source_table, 'table missing: ' || without, 0 FROM missing_tables
ORDER BY ALL;
