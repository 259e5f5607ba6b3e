"""The paper's figures and tables, and what we measured beside them: one module per result, resumable after a kill."""
