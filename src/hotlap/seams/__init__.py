"""Where a plan meets a running script: one file per seam, and the fitter that gives each setting its place."""
