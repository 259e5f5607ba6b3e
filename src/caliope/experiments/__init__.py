"""The paper's figures and tables as experiments that can be run again: one file each, and nothing imports them."""
