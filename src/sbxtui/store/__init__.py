"""The bus: one SQLite file per home with what no cloud can keep. Imports settings and core only."""
