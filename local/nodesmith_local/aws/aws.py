"""AWS for one or more clusters, in this process: moto's server with our seam, and a furnished account."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from types import TracebackType
from typing import Any

# Without EC2's thousand public images, which no node boots, describing images takes 9 ms instead of 700.
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"

from moto.dynamodb.responses import DynamoHandler
from moto.moto_api._internal import moto_api_backend
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.s3.responses import S3Response

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm
from nodesmith.model.nodeclasses.status import Unresolved
from nodesmith.registration import default_node_role
from nodesmith_formats.localsystem.clients import local_client
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws.account import Endpoint, Network, create_resources, make_instance_profile, make_role
from nodesmith_local.aws.attributevalues import attribute_values_in_one_go
from nodesmith_local.aws.instances.eventbus import PublishedEvents, announce_state
from nodesmith_local.aws.instances.kubelet import Kubelets
from nodesmith_local.aws.instances.machines import MotoMachines
from nodesmith_local.aws.instances.nodes import Machine
from nodesmith_local.aws.instances.pools import Pools
from nodesmith_local.aws.instances.reclaiming import Reclaims
from nodesmith_local.aws.instances.stages import USUAL, Delays
from nodesmith_local.aws.locking import in_turns
from nodesmith_local.aws.seam import Ec2Seam
from nodesmith_local.aws.selectedimages import publish_selected
from nodesmith_local.aws.services import timed_by
from nodesmith_local.aws.serving import answered_in_process, lasting_connections
from nodesmith_local.aws.shortcuts import shortcuts
from nodesmith_local.aws.strict import StrictAws
from nodesmith_local.backends.objects import Objects
from nodesmith_local.functions.lambdas import Lambdas
from nodesmith_local.functions.traceheaders import trace_headers_are_kept

DEFAULT_VERSION = "1.34"
_ONE_AT_A_TIME = threading.Lock()
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


class LocalAws:
    """One region of AWS on a local port, furnished for a cluster named `cluster`. A context manager.

    `endpoint` is the cluster's API server; `ip_family` is that of all clusters; `no_capacity` holds patterns in the
    syntax of `pools.parse_pattern`. moto keeps one state per process, so only one LocalAws can run at a time, and
    starting it resets that state. Raises Rejected for a region or a pool that does not exist, RuntimeError for a second
    instance.
    """

    def __init__(
        self,
        region: str,
        *,
        cluster: str,
        endpoint: Endpoint,
        port: int = 0,
        clock: LocalClock | None = None,
        catalog: Catalog | None = None,
        version: str = DEFAULT_VERSION,
        zones: Sequence[str] = (),
        no_capacity: Iterable[str] = (),
        role: str = "",
        ip_family: str = "ipv4",
    ) -> None:
        self.region = region
        self.cluster = cluster
        self.version = version
        self.ip_family = ip_family
        self.endpoint = endpoint
        self.clock = clock or LocalClock()
        self.catalog = catalog or embedded_catalog(region)
        self.zones = tuple(zones) or _zones_of(self.catalog)
        self.role = role or default_node_role(cluster)
        self.pools = Pools(no_capacity, self.catalog)
        self.seam = Ec2Seam(self.catalog, self.pools, now=self.clock.now)
        self.strict = StrictAws(self.clock.now)
        self.reclaims = Reclaims(self.clock.now)
        self.own_events = PublishedEvents()
        self.lambdas = Lambdas()
        self.networks: dict[str, Network] = {}
        """Networks by cluster, the first cluster first."""
        self.roles: dict[str, str] = {}
        """The nodes' role by cluster."""
        self._endpoints: dict[str, Endpoint] = {}
        self.client: Callable[[str], Any] = cache(self._connect)
        """Returns the boto3 client of a service here."""
        self._server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
        self._running = ExitStack()

    def __enter__(self) -> LocalAws:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving an empty but furnished account."""
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        if not _ONE_AT_A_TIME.acquire(blocking=False):
            raise RuntimeError("another LocalAws runs in this process, and moto keeps one state for both")
        with ExitStack() as stack:
            stack.callback(_ONE_AT_A_TIME.release)
            stack.enter_context(timed_by(self.clock.now))
            stack.enter_context(self.seam)
            stack.enter_context(self.strict)
            stack.enter_context(shortcuts())
            stack.enter_context(in_turns(DynamoHandler))
            stack.enter_context(in_turns(S3Response, "key_response"))
            stack.enter_context(attribute_values_in_one_go())
            stack.enter_context(self.lambdas.answering())
            stack.enter_context(trace_headers_are_kept())
            stack.enter_context(self.reclaims.listening())
            stack.enter_context(self.own_events.listening())
            with lasting_connections():
                self._server.start()
            stack.callback(self._server.stop)
            stack.enter_context(answered_in_process(*self._server.get_host_and_port()))
            moto_api_backend.reset()
            self.join(self.cluster, self.endpoint, self.role)
            self._running = stack.pop_all()

    def join(self, cluster: str, endpoint: Endpoint, role: str = "") -> None:
        """Furnish the account for a cluster: its own VPC, a role for its nodes, and an EKS cluster with zonal shift."""
        role = role or default_node_role(cluster)
        self.roles[cluster] = role
        self._endpoints[cluster] = endpoint
        self.strict.shifts.register(cluster, self.region)
        self.networks[cluster] = create_resources(
            self.client, cluster, self.region, self.zones, self.version, endpoint, role, self.ip_family
        )

    @property
    def network(self) -> Network:
        """The network of the first cluster."""
        return self.networks[self.cluster]

    def stop(self) -> None:
        """Stop serving."""
        self._running.close()

    @property
    def url(self) -> str:
        """The URL of every AWS service."""
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that direct an AWS SDK, in any process, to this server."""
        return {
            **_CREDENTIALS,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            # Otherwise DynamoDB requests go to a host name built from the account id.
            "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
        }

    def _connect(self, service: str) -> Any:
        return local_client(service, self.region, self.url)

    def ensure_role(self, name: str) -> None:
        """Create a node role that a manifest names, so that manifests of a real cluster work here."""
        make_role(self.client("iam"), name)

    def ensure_instance_profile(self, name: str) -> None:
        """Create an instance profile that a manifest names, so that manifests of a real cluster work here."""
        make_instance_profile(self.client("iam"), name)

    def ensure_image(self, term: AMISelectorTerm) -> None:
        """Publish the images that a manifest selects; do nothing for a term that can have no image."""
        with suppress(Unresolved):
            publish_selected(self.region, self.version, term)

    def ensure_tags(self, subnets: Mapping[str, str], groups: Mapping[str, str], cluster: str = "") -> None:
        """Tag a cluster's subnets and security group as manifests select them; the default is the first cluster."""
        network = self.networks[cluster or self.cluster]
        for resources, tags in (
            ([*network.subnets.values()], subnets),
            ([network.security_group_id], groups),
        ):
            if tags:
                tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
                self.client("ec2").create_tags(Resources=resources, Tags=tag_list)

    def kubelets(
        self, nodes: Objects, delays: Delays = USUAL, *, kwok: bool = False, cluster: str = ""
    ) -> Kubelets:
        """Return the simulation that lets a cluster's instances join it; the default is the first cluster.

        An instance belongs to the cluster that its tag names, or to the first cluster if no such cluster is here.
        """
        name = cluster or self.cluster

        def of(tagged: str) -> bool:
            return (tagged if tagged in self.networks else self.cluster) == name

        return Kubelets(
            MotoMachines(self.region, of),
            nodes,
            self.catalog,
            endpoint=self._endpoints[name].url,
            version=self.version,
            announce=partial(self._announce, self.client("events")),
            reclaims=self.reclaims,
            delays=delays,
            kwok=kwok,
        )

    def _announce(self, events: Any, machine: Machine, state: str) -> None:
        """Send EC2's event for a machine's change of state."""
        announce_state(events, self.region, machine.id, state, self.clock.now())


def _zones_of(catalog: Catalog) -> tuple[str, ...]:
    zones = sorted({offering.zone for offerings in catalog.offerings.values() for offering in offerings})
    if not zones:
        raise Rejected(
            f"catalogue of {catalog.region or 'no region'}: no instance type is offered in any zone"
        )
    return tuple(zones)
