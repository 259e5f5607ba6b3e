-- No gaps: what was never measured is taken to be normal (or the median of the training patients).

CREATE OR REPLACE TABLE fillings AS
SELECT v.variable, CASE WHEN getvariable('fill') = 'median' THEN coalesce(m.median, v.normal) ELSE v.normal END AS value
FROM variables v
LEFT JOIN (
    SELECT k.variable, median(k.value) AS median
    FROM known k JOIN windows w USING (icustay_id, step) JOIN stays s USING (icustay_id)
    WHERE s.training AND w.recorded AND k.origin IS NOT NULL GROUP BY k.variable
) m USING (variable);

CREATE OR REPLACE TABLE step_states AS
PIVOT (SELECT k.icustay_id, k.step, k.variable, coalesce(k.value, f.value) AS value FROM known k JOIN fillings f USING (variable))
ON variable IN ('Albumin', 'Arterial_BE', 'Arterial_lactate', 'Arterial_pH', 'BUN', 'CO2_mEqL', 'Calcium', 'Chloride',
    'Creatinine', 'DiaBP', 'FiO2_1', 'GCS', 'Glucose', 'HCO3', 'HR', 'Hb', 'INR', 'Ionised_Ca', 'Magnesium', 'MeanBP', 'PT',
    'PTT', 'Platelets_count', 'Potassium', 'RR', 'SGOT', 'SGPT', 'Sodium', 'SpO2', 'SysBP', 'Temp_C', 'Total_bili',
    'WBC_count', 'Weight_kg', 'mechvent', 'paCO2', 'paO2')
USING first(value) GROUP BY icustay_id, step;
