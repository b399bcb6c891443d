"""Figures that anyone can measure again: `make bench`. Ratios are taken within one run, since machines are noisy."""
