-- Who leaves the cohort, and why: each stay has one fate, the first reason that applies.

CREATE OR REPLACE TABLE fates AS
WITH score AS (SELECT icustay_id, max(SOFA) AS worst FROM step_scores WHERE scored GROUP BY icustay_id),
extremes AS (
    SELECT s.icustay_id, max(s.output_4hourly) AS urine, max(s.Total_bili) AS bilirubin, max(f.input_4hourly) AS fluid
    FROM step_scores s LEFT JOIN window_fluids f USING (icustay_id, step) WHERE s.recorded GROUP BY s.icustay_id
),
course AS (
    SELECT icustay_id, count(*) AS decisions, max(max_dose_vaso) AS highest, arg_max(max_dose_vaso, step) AS last_dose,
           max(SOFA) AS worst, arg_max(SOFA, step) AS last_sofa, max(decided_at) + hours(getvariable('window_hours')) AS record_end
    FROM decisions GROUP BY icustay_id
),
events AS (
    SELECT icustay_id, bool_or(kind = 'antibiotic') AS antibiotic, bool_or(kind = 'culture') AS culture
    FROM infection_events GROUP BY icustay_id
)
SELECT s.icustay_id, s.subject_id,
       CASE
           WHEN s.age < getvariable('minimal_age') * 365.25 THEN 2
           WHEN NOT coalesce(e.antibiotic, false) THEN 3
           WHEN NOT coalesce(e.culture, false) THEN 4
           WHEN i.onset IS NULL THEN 5
           WHEN r.icustay_id IS NULL THEN 6
           WHEN coalesce(q.worst, 0) < 2 THEN 7
           WHEN x.urine > 12000 * getvariable('short_windows') THEN 8
           WHEN x.bilirubin > 10000 THEN 9
           WHEN x.fluid > 10000 * getvariable('short_windows') THEN 10
           WHEN coalesce(c.decisions, 0) = 0 THEN 11
           WHEN getvariable('exclude_withdrawal') AND s.died_within_90_days AND c.last_dose = 0 AND c.highest > 0.3
                AND c.last_sofa >= c.worst / 2 AND c.decisions < getvariable('full_length') THEN 12
           WHEN getvariable('exclude_died_recorded') AND s.died_near_departure
                AND epoch(s.dischtime - c.record_end) < 24 * 3600 THEN 13
           ELSE 99
       END AS stage
FROM stays s
LEFT JOIN events e USING (icustay_id) LEFT JOIN infections i USING (icustay_id) LEFT JOIN records r USING (icustay_id)
LEFT JOIN score q USING (icustay_id) LEFT JOIN extremes x USING (icustay_id) LEFT JOIN course c USING (icustay_id);
INSERT INTO fates SELECT icustay_id, subject_id, 1 FROM icu_stays WHERE fault IS NOT NULL;

CREATE OR REPLACE TABLE flow AS
WITH reasons(stage, reason) AS (VALUES
    (1, 'impossible or missing dates, age, sex or outcome'), (2, 'too young'), (3, 'no antibiotic'), (4, 'no culture'),
    (5, 'antibiotic and culture too far apart: no presumed infection'), (6, 'nothing charted in the record'),
    (7, 'SOFA below 2: no sepsis'), (8, 'more than ' || 12 * greatest(getvariable('window_hours') // 4, 1) || ' L of urine in '
        || getvariable('window_hours') || ' h'), (9, 'bilirubin above 10000'),
    (10, 'more than ' || 10 * greatest(getvariable('window_hours') // 4, 1) || ' L of fluid in '
        || getvariable('window_hours') || ' h'), (11, 'no decision: less than a window of treatment in the ICU'),
    (12, 'treatment seems to have been withdrawn before death'), (13, 'died while being recorded')),
counted AS (
    SELECT r.stage, r.reason, count(f.stage) AS stays_removed,
           (SELECT count(*) FROM fates a WHERE a.stage >= r.stage) AS stays_in,
           (SELECT count(DISTINCT a.subject_id) FROM fates a WHERE a.stage >= r.stage) AS patients_in,
           (SELECT count(DISTINCT a.subject_id) FROM fates a WHERE a.stage > r.stage) AS patients_out
    FROM reasons r LEFT JOIN fates f ON f.stage = r.stage GROUP BY r.stage, r.reason
)
SELECT stage, reason, stays_in, stays_removed, stays_in - stays_removed AS stays_out, patients_in, patients_out
FROM counted ORDER BY stage;
