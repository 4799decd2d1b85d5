"""Pure functions over arrays: grouping, filters, advantages, schedules, and what the losses mean."""
