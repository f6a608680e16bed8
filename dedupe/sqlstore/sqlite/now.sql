-- Expression: the machine's clock, milliseconds since 1970, the same throughout a statement. Rounded: the
-- seconds are a floating point number.
CAST(round(unixepoch('subsec') * 1000) AS integer)
