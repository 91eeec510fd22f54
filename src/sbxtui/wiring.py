"""The only module that builds services and adapters, for a face.

Each service is built when it is first used, so that a verb imports only what it runs.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from sbxtui.core.model import Context
from sbxtui.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbxtui.core.errors import StoreUnwritable
    from sbxtui.services.alarms import Alarms
    from sbxtui.services.awake import KeepAwake
    from sbxtui.services.budgets import Budgets
    from sbxtui.services.cloudlogs import CloudLogs
    from sbxtui.services.costs import Costs
    from sbxtui.services.defaults import LaunchDefaults
    from sbxtui.services.files import Files
    from sbxtui.services.forward.desk import PortDesk
    from sbxtui.services.forward.forwards import Forwards
    from sbxtui.services.guests import Guests
    from sbxtui.services.inventory import Inventories
    from sbxtui.services.joblist import JobLists
    from sbxtui.services.jobs import Jobs
    from sbxtui.services.jobwatch import JobWatch
    from sbxtui.services.launch import Launcher
    from sbxtui.services.lives import Lives
    from sbxtui.services.logs import Logs
    from sbxtui.services.lookout import Lookout
    from sbxtui.services.looks import Looks
    from sbxtui.services.metrics import Metrics
    from sbxtui.services.network import Networks
    from sbxtui.services.oneshot import OneShots
    from sbxtui.services.planes import ControlPlanes
    from sbxtui.services.ports import Ports
    from sbxtui.services.reasons import Reasons
    from sbxtui.services.sandboxes import Sandboxes
    from sbxtui.services.secrets import Secrets
    from sbxtui.services.shell import Shells
    from sbxtui.services.snapshots import Snapshots
    from sbxtui.services.sync.desk import SyncDesk
    from sbxtui.services.sync.syncs import Syncs
    from sbxtui.services.tokens import TokenService
    from sbxtui.services.troubles import Troubles
    from sbxtui.services.watch import Watch
    from sbxtui.store.clients import Clients
    from sbxtui.store.contexts import Contexts
    from sbxtui.store.db import Store
    from sbxtui.store.events import Events
    from sbxtui.store.links import Links
    from sbxtui.store.registry import Registry
    from sbxtui.store.seed import SeedReport


class Services:
    """Everything a face can do, for one context and one actor. Close it when the face ends.

    Args:
        settings: Resolved settings.
        actor: Who acts, as events show it: `cli:you`, `tui:you`, `mcp:client#pid`.
        context_name: The context chosen by flag; empty for the one that counts.
    """

    def __init__(self, settings: Settings, *, actor: str, context_name: str = "") -> None:
        self.settings = settings
        self.actor = actor
        self._context_name = context_name

    def close(self) -> None:
        """Close the store."""
        if "store" in self.__dict__:
            self.store.close()

    @cached_property
    def store(self) -> Store:
        """The store of this home, opened."""
        from sbxtui.store.db import Store

        return Store.open(self.settings.home)

    @property
    def unsaved(self) -> Mapping[str, StoreUnwritable]:
        """What was done and could not be written down, and why: on a full disk."""
        return self.store.unsaved if "store" in self.__dict__ else {}

    def adopt_seed(self) -> SeedReport:
        """Take over what `asb` left for this context, if it was not taken yet; nothing for a local one."""
        from sbxtui.store.seed import adopt_seed

        return adopt_seed(
            self.store,
            self.context,
            state_file=self.settings.seed_state_file,
            infra_state_file=self.settings.seed_infra_state_file,
            actor=self.actor,
        )

    @cached_property
    def context(self) -> Context:
        """The context all services here act on."""
        return self.planes.context(self._context_name)

    @cached_property
    def contexts(self) -> Contexts:
        """Known contexts."""
        from sbxtui.store.contexts import Contexts

        return Contexts(self.store)

    @cached_property
    def registry(self) -> Registry:
        """Names and the sandboxes behind them."""
        from sbxtui.store.registry import Registry

        return Registry(self.store)

    @cached_property
    def events(self) -> Events:
        """Who did what."""
        from sbxtui.store.events import Events

        return Events(self.store)

    @cached_property
    def planes(self) -> ControlPlanes:
        """Control planes by context."""
        from sbxtui.services.planes import ControlPlanes

        return ControlPlanes(self.settings, self.contexts)

    @cached_property
    def inventories(self) -> Inventories:
        """Lists of sandboxes."""
        from sbxtui.services.inventory import Inventories

        return Inventories(self.settings.home, self.planes, self.registry, self.reasons, self.lives)

    @cached_property
    def lives(self) -> Lives:
        """The books of what sandboxes do."""
        from sbxtui.services.lives import Lives

        return Lives(self.planes, self.registry, self.troubles)

    @cached_property
    def troubles(self) -> Troubles:
        """What somebody should hear of."""
        from sbxtui.services.troubles import Troubles

        return Troubles(self.registry, self.links, self.settings.watch)

    @cached_property
    def alarms(self) -> Alarms:
        """Telling people of it."""
        from sbxtui.services.alarms import Alarms

        return Alarms(self.settings.home, self.events, self.settings.watch.hook, self.lookout)

    @cached_property
    def lookout(self) -> Lookout:
        """Looking for it."""
        from sbxtui.services.lookout import Lookout

        seen = (self.inventories, self.jobs, self.metrics, self.troubles)
        return Lookout(self.settings.home, self.context, self.planes, self.registry, *seen)

    @cached_property
    def costs(self) -> Costs:
        """What sandboxes cost."""
        from sbxtui.services.costs import Costs
        from sbxtui.store.jobs import JobIndex

        return Costs(self.planes, JobIndex(self.store))

    @cached_property
    def budgets(self) -> Budgets:
        """What sandboxes may cost."""
        from sbxtui.services.budgets import Budgets

        asked = (self.planes, self.inventories, self.sandboxes)
        return Budgets(self.settings.home, *asked, self.registry, self.links, self.events, self.actor)

    @cached_property
    def keep_awake(self) -> KeepAwake:
        """Sandboxes that are kept awake on purpose."""
        from sbxtui.services.awake import KeepAwake

        written = (self.links, self.events, self.actor)
        return KeepAwake(self.settings.home, self.context, self.planes, self.guests, self.lookout, *written)

    @cached_property
    def reasons(self) -> Reasons:
        """Why sandboxes ended, and what was killed in them."""
        from sbxtui.services.reasons import Reasons

        return Reasons(self.settings.home, self.registry)

    @cached_property
    def tokens(self) -> TokenService:
        """Endpoint tokens, minted when needed."""
        from sbxtui.services.tokens import TokenService

        return TokenService(self.settings, self.context, self.planes, self.store)

    @cached_property
    def guests(self) -> Guests:
        """Connections to guests."""
        from sbxtui.services.guests import Guests

        return Guests(self.settings, self.context, self.planes, self.tokens)

    @cached_property
    def defaults(self) -> LaunchDefaults:
        """What a launch uses where nothing is named."""
        from sbxtui.services.defaults import launch_defaults
        from sbxtui.store.outputs import Outputs

        return launch_defaults(self.settings, self.context, Outputs(self.store))

    @cached_property
    def launcher(self) -> Launcher:
        """Making sandboxes."""
        from sbxtui.services.launch import Launcher

        by = (self.planes, self.registry, self.guests, self.secrets, self.actor)
        return Launcher(self.settings, self.defaults, self.context, *by)

    @cached_property
    def sandboxes(self) -> Sandboxes:
        """The life of sandboxes."""
        from sbxtui.services.sandboxes import Sandboxes

        return Sandboxes(self.context, self.planes, self.registry, self.events, self.guests, self.troubles, self.actor)

    @cached_property
    def jobs(self) -> Jobs:
        """Running commands."""
        from sbxtui.services.jobs import Jobs
        from sbxtui.store.jobs import JobIndex

        return Jobs(self.guests, self.registry, JobIndex(self.store), self.actor)

    @cached_property
    def job_lists(self) -> JobLists:
        """Jobs of several sandboxes."""
        from sbxtui.services.joblist import JobLists

        return JobLists(self.context, self.inventories, self.registry, self.jobs)

    @cached_property
    def job_watch(self) -> JobWatch:
        """Following the jobs of a sandbox."""
        from sbxtui.services.jobwatch import JobWatch

        return JobWatch(self.settings.home, self.job_lists, self.jobs, self.troubles, self.looks)

    @cached_property
    def logs(self) -> Logs:
        """What sandboxes say."""
        from sbxtui.services.logs import Logs

        return Logs(self.settings.home, self.context, self.planes, self.guests, self.jobs)

    @cached_property
    def cloud_logs(self) -> CloudLogs:
        """What the platform keeps of it."""
        from sbxtui.services.cloudlogs import CloudLogs

        return CloudLogs(self.context, self.planes)

    @cached_property
    def metrics(self) -> Metrics:
        """What sandboxes use."""
        from sbxtui.services.metrics import Metrics
        from sbxtui.store.samples import Samples

        noted = (Samples(self.settings.home.state_dir / "samples"), self.troubles)
        asked = (self.inventories, self.registry, self.jobs, self.guests)
        return Metrics(self.context, self.planes, *asked, *noted, self.looks)

    @cached_property
    def looks(self) -> Looks:
        """Which sandboxes may be asked without being kept awake by it."""
        from sbxtui.services.looks import Looks

        return Looks(self.context, self.planes, self.links)

    @cached_property
    def shells(self) -> Shells:
        """Pseudo-shells: lines that share a folder and variables."""
        from sbxtui.services.shell import Shells

        return Shells(self.guests, self.jobs.notes, self.actor)

    @cached_property
    def networks(self) -> Networks:
        """What sandboxes may reach."""
        from sbxtui.services.network import Networks

        return Networks(self.context, self.planes, self.registry, self.events, self.actor)

    @cached_property
    def secrets(self) -> Secrets:
        """What requests of sandboxes may carry without their knowing it."""
        from sbxtui.services.secrets import Secrets

        return Secrets(self.context, self.planes, self.events, self.actor)

    @cached_property
    def snapshots(self) -> Snapshots:
        """Copies of sandboxes, and sandboxes from them."""
        from sbxtui.services.snapshots import Snapshots

        return Snapshots(self.context, self.planes, self.events, self.launcher, self.actor)

    @cached_property
    def watch(self) -> Watch:
        """Looking at the sandboxes again and again."""
        from sbxtui.services.watch import Watch

        return Watch(self.settings.home, self.inventories)

    @cached_property
    def one_shots(self) -> OneShots:
        """Sandboxes that live for one command."""
        from sbxtui.services.oneshot import OneShots

        return OneShots(self.context.name, self.launcher, self.sandboxes, self.registry, self.jobs)

    @cached_property
    def files(self) -> Files:
        """Files of sandboxes."""
        from sbxtui.services.files import Files

        return Files(self.guests, self.events, self.actor)

    @cached_property
    def clients(self) -> Clients:
        """Clients of our MCP servers."""
        from sbxtui.store.clients import Clients

        return Clients(self.store)

    @cached_property
    def links(self) -> Links:
        """What shall be kept true between this machine and sandboxes."""
        from sbxtui.store.links import Links

        return Links(self.store)

    @cached_property
    def syncs(self) -> Syncs:
        """Folders kept equal with sandboxes."""
        from sbxtui.services.sync.syncs import Syncs

        return Syncs(self.settings.home, self.guests, self.links, self.actor)

    @cached_property
    def forwards(self) -> Forwards:
        """Ports of sandboxes on this machine."""
        from sbxtui.services.forward.forwards import Forwards

        return Forwards(self.settings.home, self.guests, self.links, self.ports, self.actor)

    @cached_property
    def ports(self) -> Ports:
        """What listens inside sandboxes."""
        from sbxtui.services.ports import Ports

        return Ports(self.settings.home, self.guests, self.jobs, self.events, self.actor)

    @cached_property
    def port_desk(self) -> PortDesk:
        """Where ports are looked at and forwarded."""
        from sbxtui.services.forward.desk import PortDesk

        return PortDesk(self.settings.home, self.registry, self.forwards, self.ports, self.reserved_ports)

    @property
    def reserved_ports(self) -> Mapping[int, str]:
        """Ports of a sandbox that are not forwarded, and what they are."""
        return {self.settings.hook_port: "the platform's hook port", self.settings.agent_port: "its guest's own"}

    @cached_property
    def sync_desk(self) -> SyncDesk:
        """Where syncs are looked at and decided on."""
        from sbxtui.services.sync.desk import SyncDesk

        return SyncDesk(self.settings.home, self.syncs)
