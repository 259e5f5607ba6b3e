-- Presumed infection (Sepsis-3): an antibiotic and a culture close to each other; the onset is the earlier of the two.

-- Antibiotics: systemic antibacterials by name (or, as published, a list of codes).
CREATE OR REPLACE TABLE antibiotics AS
SELECT DISTINCT o.subject_id, o.hadm_id, o.icustay_id, o.time
FROM orders o
WHERE o.fault IS NULL
  AND CASE WHEN getvariable('antibiotic_codes') THEN o.gsn IN (SELECT gsn FROM antibiotic_gsn)
           ELSE EXISTS (SELECT 1 FROM antibiotic_names n WHERE contains(o.drug, n.name))
                AND NOT regexp_matches(o.drug, 'ophth|opht\.| oint|cream|drops|enema|irrig|lock|desensitiz|inhal')
                AND coalesce(o.route NOT IN (SELECT route FROM local_routes), true) END;

-- Cultures: samples in the microbiology tables, and cultures charted at the bedside.
CREATE OR REPLACE TABLE cultures AS
SELECT DISTINCT subject_id, hadm_id, icustay_id, time FROM specimens WHERE fault IS NULL
UNION
SELECT DISTINCT c.subject_id, c.hadm_id, c.icustay_id, c.charttime
FROM charted c JOIN items i USING (itemid)
WHERE i.source_table = 'chartevents' AND i.variable = 'culture' AND c.fault IS NULL
  -- "tip cultured: 0" says that the tip was not cultured.
  AND (i.reading IS DISTINCT FROM 'tip' OR getvariable('wrong_items') OR coalesce(c.number, 1) <> 0);

-- Which stay an event belongs to: as written; else the nearest within two days; else the only one there is.
CREATE OR REPLACE TABLE infection_events AS
WITH events AS (
    SELECT 'antibiotic' AS kind, * FROM antibiotics UNION ALL SELECT 'culture', * FROM cultures
),
candidates AS (
    SELECT e.kind, e.time, e.icustay_id AS written, s.icustay_id, s.intime,
           e.subject_id AS whose, e.hadm_id AS admission,
           greatest(epoch(s.intime - e.time), epoch(e.time - s.outtime), 0) AS distance,
           count(*) OVER (PARTITION BY e.kind, e.time, e.subject_id, e.hadm_id, e.icustay_id) AS choices
    FROM events e
    JOIN stays s ON CASE WHEN e.icustay_id IS NOT NULL THEN s.icustay_id = e.icustay_id
                         WHEN e.hadm_id IS NOT NULL THEN s.hadm_id = e.hadm_id
                         ELSE s.subject_id = e.subject_id END
)
SELECT kind, arg_min(icustay_id, (distance, intime, icustay_id)) AS icustay_id, time
FROM candidates
WHERE written IS NOT NULL OR distance <= 48 * 3600 OR choices = 1
GROUP BY kind, time, whose, admission, written;

-- The first antibiotic whose nearest culture was taken at most 24 h after it, or at most 72 h before it.
CREATE OR REPLACE TABLE infections AS
WITH nearest AS (
    SELECT a.icustay_id, a.time AS antibiotic, arg_min(c.time, (abs(epoch(c.time - a.time)), c.time)) AS culture
    FROM (SELECT DISTINCT icustay_id, time FROM infection_events WHERE kind = 'antibiotic') a
    JOIN (SELECT DISTINCT icustay_id, time FROM infection_events WHERE kind = 'culture') c USING (icustay_id)
    GROUP BY a.icustay_id, a.time
),
near AS (
    SELECT *, CASE WHEN culture >= antibiotic AND culture <= antibiotic + INTERVAL 24 HOUR THEN antibiotic
                   WHEN culture <= antibiotic AND culture >= antibiotic - INTERVAL 72 HOUR THEN culture END AS onset
    FROM nearest
)
SELECT icustay_id, arg_min(onset, antibiotic) AS onset, min(antibiotic) AS antibiotic, arg_min(culture, antibiotic) AS culture
FROM near WHERE onset IS NOT NULL GROUP BY icustay_id;
