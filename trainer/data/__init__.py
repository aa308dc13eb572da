"""Holds programs that make and change data sets, and the file formats they share; no framework."""
