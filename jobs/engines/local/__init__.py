"""Runs jobs as gangs of processes on this machine."""
