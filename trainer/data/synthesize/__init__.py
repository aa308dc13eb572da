"""Makes data sets to try a training with before the real ones are there."""
