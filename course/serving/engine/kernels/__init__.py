"""The compiled loops and the records that pass into them; no checks and no objects live here."""
