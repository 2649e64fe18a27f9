"""Results of an experiment: progress reports, analysis, plots."""
