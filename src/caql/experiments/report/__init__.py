"""Reading finished runs back: statistics, tables, figures, one page."""
