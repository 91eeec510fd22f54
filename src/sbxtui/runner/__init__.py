"""The runner: one detached process per home that looks after work whose face may die. Imports wiring and below."""
