"""The first picture: rows as last seen, read in a thread while textual is still being set up."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sbxtui.core.errors import SbxError
from sbxtui.tui.messages import Opening
from sbxtui.wiring import Services

# So long the first frame waits for the cached rows; a store that is locked for longer paints later.
FIRST_FRAME_WAIT_S = 0.15


class FirstLook:
    """Builds the services and reads the cached rows, off the event loop.

    `services` is set before the look is over; an `error` says why there is no `opening`. An empty context name means
    the one that counts.
    """

    def __init__(self, services_factory: Callable[[str], Services], context_name: str = "") -> None:
        self._factory = services_factory
        self._context_name = context_name
        self._done = threading.Event()
        self.services: Services | None = None
        self.opening: Opening | None = None
        self.error: SbxError | None = None
        self._crash: BaseException | None = None

    def at(self, context_name: str) -> FirstLook:
        """A look at another context, not begun."""
        return FirstLook(self._factory, context_name)

    def start(self) -> None:
        """Begin in a thread of its own."""
        threading.Thread(target=self.run, name="first-look", daemon=True).start()

    def run(self) -> None:
        """Look, in the calling thread; what happens is kept, not raised."""
        try:
            services = self.services = self.services or self._factory(self._context_name)
            context = services.context
            self.opening = Opening(
                context, services.inventories.cached(context), services.planes.isolation_words(context)
            )
            self.error = None
        except SbxError as exc:
            self.error = exc
        except BaseException as exc:
            self._crash = exc
            raise
        finally:
            self._done.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the look ended within `timeout_s`; reraises what nobody expected."""
        is_done = self._done.wait(timeout_s)
        if self._crash is not None:
            raise self._crash
        return is_done
