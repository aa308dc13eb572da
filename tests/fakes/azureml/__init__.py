"""A stand-in for Azure Machine Learning (written last)."""
