"""Tasks: where they come from and what shape they have."""
