-- Adults, first or later ICU stay, and what was known of their other illnesses.

-- Illnesses of Elixhauser's thirty groups; of two grades of one illness only the worse counts.
CREATE OR REPLACE TABLE comorbidities AS
WITH meaning AS (
    SELECT DISTINCT d.code, d.icd_version, e.comorbidity
    FROM (SELECT DISTINCT code, icd_version FROM diagnoses WHERE code IS NOT NULL) d
    JOIN elixhauser e ON e.icd_version = d.icd_version AND starts_with(d.code, e.prefix)
),
known AS (
    -- Codes are written after discharge: by default only those of earlier admissions could be known.
    SELECT DISTINCT s.icustay_id, m.comorbidity
    FROM icu_stays s
    JOIN diagnoses d ON d.subject_id = s.subject_id
    JOIN meaning m ON m.code = d.code AND m.icd_version = d.icd_version
    LEFT JOIN admission_ends e ON e.hadm_id = d.hadm_id
    WHERE s.fault IS NULL
      AND CASE WHEN getvariable('discharge_codes') THEN d.hadm_id = s.hadm_id AND d.seq_num <> 1
               ELSE d.hadm_id <> s.hadm_id AND e.dischtime <= s.admittime END
)
SELECT icustay_id, count(*)
       - CAST(bool_or(comorbidity = 'diabetes_complicated') AND bool_or(comorbidity = 'diabetes_uncomplicated') AS INTEGER)
       - CAST(bool_or(comorbidity = 'metastatic_cancer') AND bool_or(comorbidity = 'solid_tumor') AS INTEGER) AS elixhauser
FROM known GROUP BY icustay_id;

-- Ages above 89 are shifted by the database to about 300 years: they become 91.4, their median.
CREATE OR REPLACE TABLE stays AS
WITH ordered AS (
    SELECT *, row_number() OVER (PARTITION BY subject_id ORDER BY intime, icustay_id) > 1 AS again
    FROM icu_stays WHERE fault IS NULL
)
SELECT s.subject_id, s.hadm_id, s.icustay_id, s.intime, s.outtime, s.admittime, s.dischtime, s.dod, s.died_in_hospital,
       CASE WHEN s.age_days > 150 * 365.25 THEN 91.4 * 365.25 ELSE s.age_days END AS age,
       CAST(s.sex = 'F' AS INTEGER) AS gender, CAST(s.again AS INTEGER) AS re_admission,
       coalesce(c.elixhauser, 0) AS elixhauser,
       coalesce(s.dod <= s.intime + INTERVAL 90 DAY, false) AS died_within_90_days,
       coalesce(abs(epoch(s.dod - s.outtime)) < 48 * 3600, false) AS died_near_departure,
       -- A hash of the patient, not of the stay: no patient is on both sides.
       ('0x' || substr(md5(s.subject_id::VARCHAR || ' ' || getvariable('seed')::VARCHAR), 1, 8))::BIGINT
           < getvariable('train_share') * 4294967296 AS training
FROM ordered s LEFT JOIN comorbidities c USING (icustay_id);
