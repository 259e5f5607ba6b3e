-- MIMIC-III in the words that the stages share.

CREATE OR REPLACE VIEW raw_patients AS SELECT *, NULL AS anchor_age, NULL AS anchor_year FROM source_patients;
CREATE OR REPLACE VIEW raw_admissions AS FROM source_admissions;
CREATE OR REPLACE VIEW raw_icustays AS FROM source_icustays;
CREATE OR REPLACE VIEW raw_chartevents AS FROM source_chartevents;
CREATE OR REPLACE VIEW raw_labevents AS SELECT *, NULL AS storetime FROM source_labevents;
CREATE OR REPLACE VIEW raw_prescriptions AS SELECT *, startdate AS starttime FROM source_prescriptions;
CREATE OR REPLACE VIEW raw_microbiologyevents AS FROM source_microbiologyevents;
CREATE OR REPLACE VIEW raw_procedureevents AS FROM source_procedureevents_mv;
CREATE OR REPLACE VIEW raw_outputevents AS FROM source_outputevents;
CREATE OR REPLACE VIEW raw_diagnoses AS SELECT subject_id, hadm_id, seq_num, icd9_code AS icd_code, '9' AS icd_version FROM source_diagnoses_icd;

-- MetaVision says from when to when something ran, CareVue only when it was charted.
CREATE OR REPLACE VIEW raw_inputevents AS
SELECT 'inputevents_mv' AS source_table, icustay_id, itemid, starttime, endtime, amount, amountuom, rate, rateuom, statusdescription
FROM source_inputevents_mv
UNION ALL
SELECT 'inputevents_cv', icustay_id, itemid, charttime, charttime, amount, amountuom, rate, rateuom, NULL
FROM source_inputevents_cv;
