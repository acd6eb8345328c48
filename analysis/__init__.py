"""What stands behind `analyze.py`, in reading order.

    logs, foreign         folders of logs -> runs
    groups, stats         runs -> groups of seeds; outcomes -> intervals and tests
    tables, render        groups -> tables -> CSV, Markdown, LaTeX
    curves, points, draw  groups -> figures
    tokens                token categories, and the teacher's gap in each
    paper                 what the paper prints
    audit, qa, health, forensics, findings      other people's logs against what they printed
    page, credit.*        credit, token by token
    check                 README against the logs

Reads files, writes files; imports neither torch nor the training code.
"""
