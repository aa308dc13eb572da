"""Holds what training programs share, whatever their framework; standard library only."""
