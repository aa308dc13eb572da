"""The program that starts each rank: standard library only, Python 3.9."""
