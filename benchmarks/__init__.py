"""Timings as ratios, measured in one run: a number of seconds means nothing on another machine."""
