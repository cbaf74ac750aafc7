"""Where the pods of some nodes would go if these were gone."""
