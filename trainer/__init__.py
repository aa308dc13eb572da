"""Holds what runs inside the containers: training programs and their shared parts."""
