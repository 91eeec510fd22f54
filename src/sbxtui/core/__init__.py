"""What every layer agrees on: values, errors, names, filters, harmless text.

Pure: the standard library only, no I/O, no clock, no environment. Imports nothing else of sbxtui.
"""
