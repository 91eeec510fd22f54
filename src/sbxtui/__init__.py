"""sbxtui: disposable, isolated machines for code nobody has reviewed.

The package's top level stays empty on purpose: every face imports only what it runs.
"""

from sbxtui._version import __version__

__all__ = ["__version__"]
