"""The bus: one SQLite file per home with what no cloud can keep. Imports settings, identity and core only.

| module | holds |
|---|---|
| `db` | transactions |
| `opening`, `failures` | every state a file can be in, and SQLite's errors made ours |
| `schema` | the tables, as additive migrations |
| `doorbell` | waking the other processes after a commit |
| `registry` | names and the sandboxes behind them |
| `rows` | the registry's rows, and finding the one a person means |
| `leases` | what one live process at a time may do |
| `events` | who changed what |
| `jobs` | which sandbox runs a job, and how it ended |
| `tokens` | endpoint tokens shared by all processes |
| `contexts` | control planes by name |
| `outputs` | ARNs that setting up the infrastructure left |
| `seed` | adopting the state files of `asb` |
"""
