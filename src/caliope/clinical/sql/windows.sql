-- The record of each stay in windows, of four hours by default, from a day before the onset of infection to two days after.

-- Adults with presumed infection, the record that belongs to it, and the origin of its windows.
CREATE OR REPLACE TABLE records AS
WITH limits AS (
    SELECT s.icustay_id, s.subject_id, s.intime, s.outtime, i.onset,
           i.onset - hours(CASE WHEN getvariable('wide_windows') THEN 29 ELSE getvariable('hours_before') END) AS earliest,
           i.onset + hours(CASE WHEN getvariable('wide_windows') THEN 53 ELSE getvariable('hours_after') END) AS latest
    FROM stays s JOIN infections i USING (icustay_id)
    WHERE s.age >= getvariable('minimal_age') * 365.25
),
charts AS (
    SELECT l.icustay_id, min(c.charttime) AS first_chart
    FROM limits l JOIN charted c USING (icustay_id)
    WHERE c.fault IS NULL AND c.charttime >= l.earliest AND c.charttime <= l.latest
    GROUP BY l.icustay_id
),
labs AS (
    SELECT l.icustay_id, min(r.known_at) AS first_lab
    FROM limits l JOIN lab_results r USING (subject_id)
    WHERE r.fault IS NULL AND r.known_at >= greatest(l.earliest, l.intime - INTERVAL 24 HOUR)
      AND r.known_at <= least(l.latest, l.outtime + INTERVAL 24 HOUR)
    GROUP BY l.icustay_id
),
spans AS (
    SELECT l.icustay_id, l.subject_id, l.intime, l.outtime, l.onset,
           -- Outside the ICU nobody recorded treatment, so the record keeps to the stay.
           CASE WHEN getvariable('ward_rows') THEN least(c.first_chart, f.first_lab)
                ELSE greatest(l.earliest, l.intime) END AS origin,
           CASE WHEN getvariable('ward_rows') THEN least(l.latest, l.outtime + INTERVAL 24 HOUR)
                ELSE least(l.latest, l.outtime) END AS final,
           c.first_chart
    FROM limits l LEFT JOIN charts c USING (icustay_id) LEFT JOIN labs f USING (icustay_id)
)
SELECT *, CASE WHEN getvariable('wide_windows') THEN least(final, origin + INTERVAL 80 HOUR) ELSE final END AS ends
FROM spans WHERE first_chart IS NOT NULL AND origin IS NOT NULL;

-- Window 0 begins at the origin; those before it serve the SOFA score, which looks back two days before onset.
CREATE OR REPLACE TABLE windows AS
SELECT icustay_id, step, origin + hours(getvariable('window_hours') * step) AS starts,
       origin + hours(getvariable('window_hours') * (step + 1)) AS ends,
       step >= 0 AND origin + hours(getvariable('window_hours') * step) < record_ends AS recorded,
       -- A window of which less than half was spent in the ICU says little about what was done in it.
       step >= 0 AND origin + hours(getvariable('window_hours') * (step + 0.5)) <= record_ends AS treated,
       starts >= onset - INTERVAL 48 HOUR AND starts < onset + INTERVAL 24 HOUR AS scored
FROM (
    SELECT icustay_id, origin, onset, ends AS record_ends,
           unnest(generate_series(
               least(0, CAST(floor(epoch(onset - INTERVAL 48 HOUR - origin) / (3600 * getvariable('window_hours'))) AS BIGINT)),
               greatest(CAST(ceil(epoch(greatest(ends, onset + INTERVAL 24 HOUR) - origin) / (3600 * getvariable('window_hours'))) AS BIGINT) - 1, 0))) AS step
    FROM records
);
