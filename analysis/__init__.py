"""What stands behind `analyze.py`, in reading order: `logs` -> `groups`, `stats` -> `tables`, `figures`; beside them
`tokens` (which tokens a teacher pays), `audit` and `forensics` (a paper's own logs), `page` (credit, token by token)
and `check` (README against logs). Reads files, writes files; imports neither torch nor the training code.
"""
