"""``caliope evaluate`` and ``caliope calibrate``: the audit from the command line."""
