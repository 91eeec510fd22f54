"""The bus: one SQLite file per home with what no cloud can keep. Imports settings, identity and core only.

| module | holds |
|---|---|
| `db` | opening the file, transactions, foreign errors made ours |
| `schema` | the tables, as additive migrations |
| `doorbell` | waking the other processes after a commit |
| `registry` | names and the sandboxes behind them |
| `leases` | what one live process at a time may do |
| `events` | who changed what |
| `tokens` | endpoint tokens shared by all processes |
| `contexts` | control planes by name |
| `outputs` | ARNs that setting up the infrastructure left |
| `seed` | adopting the state files of `asb` |
"""
