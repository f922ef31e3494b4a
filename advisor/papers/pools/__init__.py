"""Jobs on spot traces of several zones and types, by the rule that chooses pools live."""
