-- MIMIC-IV in the words that the stages share.

CREATE OR REPLACE VIEW raw_patients AS SELECT *, NULL AS dob FROM source_patients;
CREATE OR REPLACE VIEW raw_admissions AS FROM source_admissions;
CREATE OR REPLACE VIEW raw_icustays AS SELECT *, stay_id AS icustay_id FROM source_icustays;
CREATE OR REPLACE VIEW raw_chartevents AS SELECT *, stay_id AS icustay_id, NULL AS error FROM source_chartevents;
CREATE OR REPLACE VIEW raw_labevents AS FROM source_labevents;
CREATE OR REPLACE VIEW raw_prescriptions AS SELECT *, NULL AS icustay_id FROM source_prescriptions;
CREATE OR REPLACE VIEW raw_microbiologyevents AS FROM source_microbiologyevents;
CREATE OR REPLACE VIEW raw_procedureevents AS SELECT *, stay_id AS icustay_id FROM source_procedureevents;
CREATE OR REPLACE VIEW raw_outputevents AS SELECT *, stay_id AS icustay_id, NULL AS iserror FROM source_outputevents;
CREATE OR REPLACE VIEW raw_diagnoses AS FROM source_diagnoses_icd;
CREATE OR REPLACE VIEW raw_inputevents AS
SELECT 'inputevents' AS source_table, stay_id AS icustay_id, itemid, starttime, endtime, amount, amountuom, rate, rateuom, statusdescription
FROM source_inputevents;
