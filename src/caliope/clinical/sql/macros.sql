-- Small words that the stages share.

CREATE OR REPLACE MACRO hours(x) AS to_microseconds(CAST(x * 3600000000 AS BIGINT));

-- The length of a window in microseconds.
CREATE OR REPLACE MACRO window_length() AS 3600000000 * getvariable('window_hours');

-- The window in which something happened, in microseconds; as published, a limit belongs to both sides.
CREATE OR REPLACE MACRO window_of(time, origin) AS
    CASE WHEN getvariable('closed_windows') AND (time - origin) % window_length() = 0
         THEN [CAST(floor((time - origin) / window_length()) AS BIGINT), CAST(floor((time - origin) / window_length()) AS BIGINT) - 1]
         ELSE [CAST(floor((time - origin) / window_length()) AS BIGINT)] END;

-- A number in the unit of its variable. Fahrenheit in a Celsius item and percent in a fraction are common slips.
CREATE OR REPLACE MACRO in_unit(variable, reading, number) AS
    CASE WHEN reading = 'lb' THEN number * 0.45359237
         WHEN variable = 'Temp_C' AND number > 70 THEN (number - 32) / 1.8
         WHEN variable = 'FiO2_1' AND number > 1 THEN number / 100
         WHEN variable = 'SpO2' AND number <= 150 THEN least(number, 100)
         ELSE number END;
