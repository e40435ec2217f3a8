"""The paper's tables and figures: specs as data, a sweep that runs them, a report that reads the results."""
