-- Raw tables as the later stages read them: typed columns, and for each corrupt row the fault that keeps it out.

-- One row an ICU stay: who, when, and how it ended.
CREATE OR REPLACE TABLE icu_stays AS
WITH patients AS (
    -- A patient or an admission that is written twice counts once; where the two differ, neither is believed.
    SELECT *, try_cast(subject_id AS BIGINT) AS patient, count(*) OVER (PARTITION BY patient) > 1 AS contradictory
    FROM (SELECT DISTINCT * FROM raw_patients)
    QUALIFY row_number() OVER (PARTITION BY patient ORDER BY gender, dob, anchor_age, anchor_year, dod) = 1
),
admissions AS (
    SELECT *, try_cast(hadm_id AS BIGINT) AS admission, count(*) OVER (PARTITION BY admission) > 1 AS contradictory
    FROM (SELECT DISTINCT * FROM raw_admissions)
    QUALIFY row_number() OVER (PARTITION BY admission ORDER BY admittime, dischtime, deathtime, hospital_expire_flag, subject_id) = 1
),
typed AS (
    SELECT try_cast(i.subject_id AS BIGINT) AS subject_id, try_cast(i.hadm_id AS BIGINT) AS hadm_id,
           try_cast(i.icustay_id AS BIGINT) AS icustay_id,
           try_cast(i.intime AS TIMESTAMP) AS intime, try_cast(i.outtime AS TIMESTAMP) AS outtime,
           try_cast(a.admittime AS TIMESTAMP) AS admittime, try_cast(a.dischtime AS TIMESTAMP) AS dischtime,
           try_cast(p.dod AS TIMESTAMP) AS dod, try_cast(a.deathtime AS TIMESTAMP) AS deathtime,
           try_cast(a.hospital_expire_flag AS INTEGER) AS expired,
           p.dod AS dod_written, a.deathtime AS death_written,
           p.contradictory OR a.contradictory AS contradictory,
           upper(p.gender) AS sex,
           -- MIMIC-III gives the birth, MIMIC-IV the age in one year.
           coalesce(epoch(try_cast(i.intime AS TIMESTAMP) - try_cast(p.dob AS TIMESTAMP)) / 86400,
                    365.25 * (try_cast(p.anchor_age AS DOUBLE) + year(try_cast(i.intime AS TIMESTAMP))
                              - try_cast(p.anchor_year AS INTEGER))) AS age_days
    FROM raw_icustays i
    LEFT JOIN admissions a ON a.admission = try_cast(i.hadm_id AS BIGINT)
    LEFT JOIN patients p ON p.patient = try_cast(i.subject_id AS BIGINT)
),
ended AS (
    -- NULL where nothing tells the outcome, or the flag and the time of death tell two.
    SELECT * EXCLUDE (dod, deathtime, expired, dod_written, death_written),
           (dod IS NULL AND dod_written IS NOT NULL) OR (deathtime IS NULL AND death_written IS NOT NULL) AS unreadable_death,
           CASE WHEN expired = 1 THEN true WHEN expired = 0 AND deathtime IS NULL THEN false
                WHEN expired IS DISTINCT FROM 0 AND deathtime IS NOT NULL THEN true END AS died_in_hospital,
           coalesce(dod, deathtime, CASE WHEN expired = 1 THEN dischtime END) AS dod
    FROM typed
)
SELECT *,
       CASE WHEN icustay_id IS NULL OR subject_id IS NULL THEN 'no number of stay or patient'
            WHEN row_number() OVER (PARTITION BY icustay_id ORDER BY intime, outtime, hadm_id, subject_id, age_days, died_in_hospital) > 1
                THEN 'the same stay twice'
            WHEN intime IS NULL OR outtime IS NULL THEN 'no time of arrival or departure'
            WHEN outtime <= intime THEN 'left before arrival'
            WHEN admittime IS NULL THEN 'no admission to hospital'
            WHEN age_days IS NULL OR age_days < 0 OR sex NOT IN ('M', 'F') OR sex IS NULL
                THEN 'no age or sex'
            WHEN contradictory THEN 'patient or admission written twice, with a difference'
            WHEN dischtime IS NULL THEN 'no time of discharge'
            WHEN unreadable_death THEN 'unreadable time of death'
            WHEN died_in_hospital IS NULL THEN 'no outcome'
       END AS fault
FROM ended;

-- When each admission ended: what was coded then can be known afterwards.
CREATE OR REPLACE TABLE admission_ends AS
SELECT try_cast(hadm_id AS BIGINT) AS hadm_id, max(try_cast(dischtime AS TIMESTAMP)) AS dischtime
FROM raw_admissions GROUP BY ALL;

-- Everything charted at the bedside that a dictionary names.
CREATE OR REPLACE TABLE charted AS
WITH wanted AS (
    SELECT itemid, bool_or(reading IN ('mode', 'device', 'extubation', 'charted', 'tip', 'text')) AS worded
    FROM items WHERE source_table = 'chartevents' GROUP BY itemid
),
typed AS (
    SELECT try_cast(c.subject_id AS BIGINT) AS subject_id, try_cast(c.hadm_id AS BIGINT) AS hadm_id,
           try_cast(c.icustay_id AS BIGINT) AS icustay_id, w.itemid,
           try_cast(c.charttime AS TIMESTAMP) AS charttime,
           CASE WHEN w.worded THEN c.value END AS value, w.worded,
           try_cast(c.valuenum AS DOUBLE) AS number, c.valuenum AS written,
           c.value IS NULL AND c.valuenum IS NULL AS empty, try_cast(c.error AS INTEGER) AS error
    FROM raw_chartevents c JOIN wanted w ON w.itemid = try_cast(c.itemid AS INTEGER)
)
SELECT subject_id, hadm_id, icustay_id, itemid, charttime, value, try_cast(number AS DECIMAL(18, 6)) AS number,
       CASE WHEN error = 1 THEN 'marked as an error'
            WHEN charttime IS NULL THEN 'no time'
            WHEN empty THEN 'nothing written'
            WHEN worded THEN NULL
            WHEN written IS NULL THEN 'words where a number belongs'
            WHEN try_cast(number AS DECIMAL(18, 6)) IS NULL THEN 'no number'
       END AS fault
FROM typed;

-- Results of the laboratory, and when they could be known.
CREATE OR REPLACE TABLE lab_results AS
WITH typed AS (
    SELECT try_cast(l.subject_id AS BIGINT) AS subject_id, i.itemid, i.variable = 'specimen' AS specimen,
           try_cast(l.charttime AS TIMESTAMP) AS charttime,
           try_cast(l.storetime AS TIMESTAMP) AS storetime, l.value, l.valuenum AS written,
           try_cast(try_cast(l.valuenum AS DOUBLE) AS DECIMAL(18, 6)) AS number
    FROM raw_labevents l JOIN items i ON i.source_table = 'labevents' AND i.itemid = try_cast(l.itemid AS INTEGER)
)
SELECT subject_id, itemid, charttime,
       -- A result is known when it was stored; MIMIC-III does not say when that was.
       CASE WHEN storetime IS NOT NULL THEN greatest(storetime, charttime)
            ELSE charttime + hours(getvariable('lab_delay_hours')) END AS known_at,
       specimen, CASE WHEN specimen THEN value END AS value, number,
       CASE WHEN charttime IS NULL THEN 'no time'
            WHEN specimen THEN NULL
            WHEN written IS NULL THEN 'words where a number belongs'
            WHEN number IS NULL THEN 'no number'
       END AS fault
FROM typed;

-- Drug orders.
CREATE OR REPLACE TABLE orders AS
WITH typed AS (
    SELECT try_cast(subject_id AS BIGINT) AS subject_id, try_cast(hadm_id AS BIGINT) AS hadm_id,
           try_cast(icustay_id AS BIGINT) AS icustay_id, try_cast(starttime AS TIMESTAMP) AS time,
           lower(drug) AS drug, gsn, upper(route) AS route
    FROM raw_prescriptions
)
SELECT *, CASE WHEN time IS NULL THEN 'no time' END AS fault FROM typed;

-- Samples sent for culture; where the hour is missing, the day.
CREATE OR REPLACE TABLE specimens AS
SELECT try_cast(subject_id AS BIGINT) AS subject_id, try_cast(hadm_id AS BIGINT) AS hadm_id,
       NULL::BIGINT AS icustay_id,
       coalesce(try_cast(charttime AS TIMESTAMP), try_cast(chartdate AS TIMESTAMP)) AS time,
       CASE WHEN coalesce(try_cast(charttime AS TIMESTAMP), try_cast(chartdate AS TIMESTAMP)) IS NULL
            THEN 'no time' END AS fault
FROM raw_microbiologyevents;
INSERT INTO specimens
SELECT NULL, NULL, try_cast(icustay_id AS BIGINT), try_cast(starttime AS TIMESTAMP),
       CASE WHEN try_cast(starttime AS TIMESTAMP) IS NULL THEN 'no time' END
FROM raw_procedureevents
WHERE try_cast(itemid AS INTEGER) IN
    (SELECT itemid FROM items WHERE source_table = 'procedureevents' AND variable = 'culture');

-- What ran into the patient: from one time to another, or at a time.
CREATE OR REPLACE TABLE infusions AS
WITH typed AS (
    SELECT source_table, try_cast(icustay_id AS BIGINT) AS icustay_id, try_cast(itemid AS INTEGER) AS itemid,
           try_cast(starttime AS TIMESTAMP) AS starttime, try_cast(endtime AS TIMESTAMP) AS endtime,
           try_cast(amount AS DOUBLE) AS amount, amount AS amount_written, lower(trim(amountuom)) AS amountuom,
           try_cast(rate AS DOUBLE) AS rate, rate AS rate_written, lower(trim(rateuom)) AS rateuom,
           lower(statusdescription) AS status
    FROM raw_inputevents
    WHERE try_cast(itemid AS INTEGER) IN (SELECT itemid FROM fluids UNION SELECT itemid FROM vasopressors)
)
SELECT source_table, icustay_id, itemid, starttime, endtime, amount, amountuom, rate, rateuom, status,
       CASE WHEN icustay_id IS NULL THEN 'no number of stay'
            WHEN starttime IS NULL OR endtime IS NULL THEN 'no time'
            WHEN endtime < starttime THEN 'ended before it began'
            WHEN amount_written IS NULL AND rate_written IS NULL THEN 'nothing written'
            WHEN amount_written IS NOT NULL AND NOT coalesce(isfinite(amount), false) THEN 'no number'
            WHEN rate_written IS NOT NULL AND NOT coalesce(isfinite(rate), false) THEN 'no number'
       END AS fault
FROM typed;

-- What came out of the patient.
CREATE OR REPLACE TABLE outputs AS
WITH typed AS (
    SELECT try_cast(icustay_id AS BIGINT) AS icustay_id, try_cast(itemid AS INTEGER) AS itemid,
           try_cast(charttime AS TIMESTAMP) AS charttime, value AS written,
           try_cast(try_cast(value AS DOUBLE) AS DECIMAL(18, 6)) AS number, try_cast(iserror AS INTEGER) AS error
    FROM raw_outputevents WHERE try_cast(itemid AS INTEGER) IN (SELECT itemid FROM urine_items)
)
SELECT icustay_id, itemid, charttime, number,
       CASE WHEN error = 1 THEN 'marked as an error'
            WHEN charttime IS NULL THEN 'no time'
            WHEN written IS NULL THEN 'nothing written'
            WHEN number IS NULL THEN 'no number'
            WHEN number < 0 THEN 'negative'
            WHEN icustay_id IS NULL THEN 'no number of stay'
       END AS fault
FROM typed;

-- Codes written at discharge.
CREATE OR REPLACE TABLE diagnoses AS
SELECT try_cast(subject_id AS BIGINT) AS subject_id, try_cast(hadm_id AS BIGINT) AS hadm_id,
       try_cast(seq_num AS INTEGER) AS seq_num, upper(trim(icd_code)) AS code,
       try_cast(icd_version AS INTEGER) AS icd_version
FROM raw_diagnoses;
