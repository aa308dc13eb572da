"""Predict the rate of a training on more GPUs from rates that were measured on few."""
