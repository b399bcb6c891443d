"""The handle that users hold on a run, and what only it does.

`handle` lists every method of `Run`. The modules beside it read a run (`reading`, `finding`, `checkpoint`, `outputs`,
`streams`) or drive one by hand (`claim`, `manual_step`, `manual_run`).
"""
