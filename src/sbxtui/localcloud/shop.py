"""Everything the API is put together of, built once a process in the order in which one needs the other."""

from __future__ import annotations

from collections.abc import Mapping

from sbxtui.localcloud.account import ACCOUNT_ID, REGION, SIZES, Account
from sbxtui.localcloud.bases.api import PREFIX as BASES
from sbxtui.localcloud.bases.api import BaseApi
from sbxtui.localcloud.bases.store import BaseStore
from sbxtui.localcloud.catalog import Catalog, CatalogImage
from sbxtui.localcloud.connectors.api import ConnectorApi
from sbxtui.localcloud.connectors.records import ConnectorStore
from sbxtui.localcloud.egress.policies import PolicyStore
from sbxtui.localcloud.extensions import Extension, Extensions
from sbxtui.localcloud.fleet import Fleet
from sbxtui.localcloud.history import Lagging
from sbxtui.localcloud.images.api import ImageApi
from sbxtui.localcloud.images.builder import Builder
from sbxtui.localcloud.images.network import PREFIX as IMAGES
from sbxtui.localcloud.images.network import BuildNetworks
from sbxtui.localcloud.images.records import ImageStore
from sbxtui.localcloud.images.shelf import ImageShelf
from sbxtui.localcloud.images.tags import TagApi
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.launches import check_build_egress
from sbxtui.localcloud.logsapi import LogsApi
from sbxtui.localcloud.logstore import LogStore
from sbxtui.localcloud.options import Options
from sbxtui.localcloud.origins import with_copies
from sbxtui.localcloud.records import Record, RecordStore
from sbxtui.localcloud.rehearsal.api import PREFIX as FAULTS
from sbxtui.localcloud.rehearsal.api import FaultApi
from sbxtui.localcloud.rehearsal.calls import Rehearsal
from sbxtui.localcloud.rehearsal.rules import RuleBook
from sbxtui.localcloud.routes import Api
from sbxtui.localcloud.runtimes.choose import Choice
from sbxtui.localcloud.s3.api import S3Api
from sbxtui.localcloud.s3.store import ObjectStore
from sbxtui.localcloud.server import Services
from sbxtui.localcloud.snapshots import SnapshotStore
from sbxtui.localcloud.world import World

MAX_DURATION_S = 28_800
# Where nothing has to be as on the platform, nobody waits half a minute for an image to be gone.
_COMFORT_SCALE = 30.0


class Shop:
    """One home's. `world` first, then `services`; `close` gives up the builds of images under way."""

    def __init__(self, options: Options, keys: HomeKeys) -> None:
        self._options = options
        self._keys = keys
        self._lagging = Lagging(options.lag_s)
        self._records = RecordStore(options.local_dir / "sandboxes", self._lagging.note)
        self._objects = ObjectStore(options.local_dir / "s3")
        # Trees may be shared by homes; the folder of a home's sockets is its own.
        own = str(options.sockets).strip("/").replace("/", "-")
        self._store = ImageStore(options.local_dir / "images", options.trees / ".builds" / own)
        self._bases = BaseStore(options.local_dir / "bases", options.trees / ".bases" / own)
        self._account = Account(SIZES.get(options.account_size))
        scale = options.time_scale * (1.0 if options.is_conformant else _COMFORT_SCALE)
        store = ConnectorStore(options.local_dir / "connectors")
        self._connectors = ConnectorApi(store, keys, REGION, ACCOUNT_ID, scale, self._has_connector)
        self._scale = scale
        self.rehearsal = Rehearsal(RuleBook(), self._kill_guest, self._fill_disk)
        self._fleet: Fleet | None = None
        self._shelf: ImageShelf | None = None

    def world(self, choice: Choice, snapshots: SnapshotStore) -> World:
        """What every sandbox shares."""
        options = self._options
        catalog = Catalog(REGION, ACCOUNT_ID, self._keys.created_at, find_built=self._find_built)
        return World(
            records=self._records,
            catalog=with_copies(catalog, self._records, snapshots),
            trees_dir=options.trees,
            sockets_dir=options.sockets,
            time_scale=options.time_scale,
            memory_quota_mib=options.memory_quota_mib,
            runtime=choice.runtime.id,
            default_max_duration_s=MAX_DURATION_S if options.is_conformant else None,
            builds_dir=self._store.trees_dir,
            bases_dir=self._bases.roots_dir,
            check_egress=self._connectors.check_launch,
            account=self._account,
            before_resume=self.rehearsal.before_resume,
        )

    def services(self, fleet: Fleet, world: World, extensions: Mapping[str, Extension]) -> Services:
        """Who answers for each service; what an earlier process left of builds is settled first."""
        self._fleet = fleet
        networks = BuildNetworks(PolicyStore(self._options.local_dir / "build-network"))
        shelf = self._shelf = ImageShelf(
            world.catalog,
            self._store,
            self._account,
            Builder(world, self._store, self._objects, self._bases, networks).build,
            fleet.records,
            check_build_egress,
            self._scale,
        )
        shelf.begin()
        images = ImageApi(world.catalog, shelf, self._keys)
        tags = TagApi(world.catalog, shelf, self._connectors)
        more = {**images.handlers(), **tags.handlers(), **self._connectors.handlers()}
        api = Api(fleet, world, self._keys, self._lagging, images.arn_of, more)
        log_store = LogStore(self._options.local_dir / "logs")
        logs = LogsApi(fleet.records, world.sandbox_dir, shelf.build_logs, log_store)
        bases = BaseApi(self._bases, self._options.trees / ".images", shelf.bases)
        own: dict[str, Extension] = {FAULTS: FaultApi(self.rehearsal.book), BASES: bases, IMAGES: networks}
        beside = Extensions({**own, **extensions})
        return Services(api, beside, logs, S3Api(self._objects, REGION), self.rehearsal)

    async def close(self) -> None:
        """Give up what is being built."""
        if self._shelf is not None:
            await self._shelf.close()

    async def _kill_guest(self, sandbox_id: str) -> None:
        if self._fleet is not None:
            await self._fleet.kill_guest(sandbox_id)

    async def _fill_disk(self, sandbox_id: str) -> None:
        if self._fleet is not None:
            await self._fleet.fill_disk(sandbox_id)

    def _find_built(self, name: str, version: str | None) -> CatalogImage | None:
        return self._shelf.for_launch(name, version) if self._shelf is not None else None

    def _has_connector(self, arn: str) -> bool:
        found: list[Record] = self._fleet.records() if self._fleet is not None else []
        return any(arn in record.egress_connectors for record in found if not record.state.is_gone)
