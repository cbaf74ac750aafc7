"""A running deployment of the templates on the simulated AWS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws import LocalAws
from nodesmith_local.composite import Started
from nodesmith_local.functions.asynchronous import AsyncInvocations
from nodesmith_local.functions.invocable import Feed
from nodesmith_local.functions.invoker import Feeds, Schedule
from nodesmith_local.functions.lambdas import send_to_dead_letters
from nodesmith_local.functions.queues import PolledQueues
from tests.awscalls.requests import Call
from tests.e2e.deployed import resources
from tests.e2e.deployed.access import Authenticator, Credentials, assume, assumed
from tests.e2e.deployed.assembly import Account, Assembly, Release, placeholder_vpc, synthesised
from tests.e2e.deployed.calls import CallRecord, Principal
from tests.e2e.deployed.faults import Faults, Mortal, faulty_deliveries, faulty_queues
from tests.e2e.deployed.functions import DeployedFunction, read_function
from tests.e2e.deployed.invocations import aliases, concern_of, invocations, permitted
from tests.e2e.deployed.mappings import event_sources, schedules
from tests.e2e.deployed.stacks import Stacks, role_name
from tests.e2e.deployed.versions import Aliased, Versions
from tests.processes.runtimeapi import RuntimeProcess

NOT_RUN = {"catalog": "its tick would ask AWS's price list; functions read the embedded one"}
FORWARDER, TICKER = "forwarder", "ticks"
Edit = Callable[[str], str]


class Deployed(Started):
    """The CDK app deployed for the clusters of `aws`, with its functions running. A context manager.

    `folder` holds the functions' logs. moto's queues must be on `clock` (`queues_run_on`) by the time messages are
    sent. `options` are the region's options in cdk.json; `edit` may change the text of the region's template. `deploy`
    deploys another release. Raises ValueError for anything in the templates that would be ignored.
    """

    def __init__(
        self,
        aws: LocalAws,
        folder: Path,
        clock: LocalClock,
        *,
        faults: Faults = Faults(),  # noqa: B008 frozen
        options: Mapping[str, Any] | None = None,
        edit: Edit = lambda text: text,
    ) -> None:
        self._aws, self._folder, self._clock, self._faults = aws, folder, clock, faults
        self._options, self._edit = options, edit
        self._versions = Versions(aws.client("lambda"), aws.region)
        self._assembly = self._synthesised(Release())
        self._numbers = self._versions.numbers(edit(self._assembly.region_template()))
        stacks = self._stacks()
        self.template, self.clusters = stacks.region, stacks.clusters
        self._credentials: dict[str, Credentials] = {}
        self._stopping = threading.Event()
        self._mortals: dict[str, Mortal] = {}
        self._events: dict[str, AsyncInvocations] = {}
        self._woken: list[Feeds] = []
        self._authenticators: dict[str, Authenticator] = {}
        self._calls: CallRecord

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """Return the feeds that invoke functions: asynchronous events by alias key, and a queue by its name."""
        return {name: feed for woken in self._woken for name, feed in woken.feeds.items()}

    @property
    def undelivered(self) -> list[str]:
        """Return the events that a rule could not deliver to a function, and why."""
        return list(self._aws.lambdas.undelivered)

    @property
    def outputs(self) -> Mapping[str, str]:
        """Return the outputs of the region's stack."""
        return {name: str(each["Value"]) for name, each in self.template.outputs.items()}

    def forwarder_environment(self, cluster: str = "") -> Mapping[str, str]:
        """Return a forwarder's Pod Identity credentials and AWS's endpoint as variables, by default the only one's."""
        name = cluster or next(iter(self.clusters))
        return {**self._aws.environment, **self._credentials[f"{FORWARDER} {name}"].environment}

    def authenticate(self, token: str, cluster: str = "") -> tuple[str, tuple[str, ...]] | None:
        """Return user name and groups of an EKS token, or None for one that is invalid.

        Without a name the only cluster is asked.
        """
        return self._authenticators[cluster or next(iter(self.clusters))].authenticate(token)

    def is_at_rest(self, alias: str) -> bool:
        """Return whether no function runs by this alias, and Lambda keeps no event for it, retries included."""
        named = [each for each in aliases(self.template, self._aws.region) if each.name == alias]
        return not any(
            self._events[each.key].pending or self._versions.serving(each).at_work() for each in named
        )

    def at_work(self) -> set[RuntimeProcess]:
        """Return the functions' processes that are busy."""
        return self._versions.at_work()

    def kill(self, concern: str) -> bool:
        """Kill a function's busy processes; return False if none is busy."""
        killed = [each.kill() for each in self._versions.of(concern)]
        return any(killed)

    def endanger(self, *faults: Faults) -> None:
        """Have functions killed from now on as these faults say; all other faults stay as they were."""
        for mortal in self._mortals.values():
            mortal.endanger(*faults)

    @property
    def killed(self) -> int:
        """Return how often faults killed a function."""
        return sum(mortal.killed for mortal in self._mortals.values())

    def deploy(self, release: Release) -> None:
        """Deploy another release for the same clusters, as CloudFormation updates an existing stack.

        One function after another is switched, while all keep running. Removed resources are deleted at the end. Raises
        ValueError for a change that is not simulated.
        """
        before, assembly = self.template, self._synthesised(release)
        self._assembly = assembly
        self._numbers = self._versions.numbers(self._edit(assembly.region_template()))
        self.template = self._stacks().region
        resources.update(before, self.template, self._aws.client)
        self._publish()
        self._feed(self._new_events())
        stated = {alias.arn for alias in aliases(self.template, self._aws.region)}
        for each in self._events.values():
            if each.arn not in stated:
                self._aws.lambdas.forget(each.arn)
        resources.clean_up(before, self.template, self._aws.client)

    def calls(self) -> Mapping[str, frozenset[str]]:
        """Return the IAM actions that were called, by concern, `forwarder` or `ticks`."""
        return self._calls.called()

    def ungranted(self) -> list[str]:
        """Return the calls that were made without a grant."""
        return self._calls.ungranted()

    def unused(self) -> list[str]:
        """Return the grants that were never used."""
        return self._calls.unused()

    def _start(self, stack: ExitStack) -> None:
        for name, template in (("region", self.template), *self.clusters.items()):
            resources.make(name, template, self._aws.client, self._aws.region)
        self._know_each_other(stack)
        stack.callback(self._versions.close)
        self._publish()
        self._wake(stack)

    def _synthesised(self, release: Release) -> Assembly:
        account = Account(self._aws.environment, self._versions.live() if release.canary else {})
        return synthesised(list(self._aws.networks), self._aws.region, self._options, release, account)

    def _stacks(self) -> Stacks:
        clusters = dict(self._assembly.cluster_templates())
        for number, (name, network) in enumerate(self._aws.networks.items()):
            clusters[name] = clusters[name].replace(placeholder_vpc(number), network.vpc_id)
        region = self._edit(self._assembly.region_template())
        return Stacks.read(region, clusters, self._aws.region, self._aws.url, self._numbers)

    def _publish(self) -> None:
        self._versions.deploy(self.template, self._numbers, self._run)

    def _run(self, id_: str, number: str) -> DeployedFunction | None:
        """Run a version of a function here, with its own logs."""
        code = read_function(self.template, id_, self._assembly, self._aws.region, number)
        if code.concern in NOT_RUN:
            return None
        environment = {**self._way(), **self._credentials[code.concern].environment}
        return DeployedFunction(code, environment, self._folder / code.concern / number, self._clock)

    def _know_each_other(self, stack: ExitStack) -> None:
        """Create credentials for every role in use, and record the calls made with them."""
        sts, arns = self._aws.client("sts"), self._roles()
        for who, arn in arns.items():
            if who != FORWARDER:
                self._credentials[who] = assume(sts, arn, who)
        for cluster in self.clusters:
            self._credentials[f"{FORWARDER} {cluster}"] = assume(sts, arns[FORWARDER], f"eks-{cluster}")
        for cluster, template in self.clusters.items():
            self._authenticators[cluster] = Authenticator(template, cluster, self._signer)
        ids = {
            role_name("region", id_, each): id_ for id_, each in self.template.of_type("IAM::Role").items()
        }
        statements = {who: self.template.statements(ids[arn.rpartition("/")[2]]) for who, arn in arns.items()}
        self._calls = CallRecord(
            {each.access_key: _principal(who) for who, each in self._credentials.items()},
            {arn: who for who, arn in arns.items()},
            statements,
        )
        stack.enter_context(self._calls)

    def _signer(self, access_key: str) -> Credentials | None:
        """Return the credentials of a session of one of the templates' roles."""
        found = assumed(access_key)
        return found if found is not None and found.role_arn in self._roles().values() else None

    def _roles(self) -> dict[str, str]:
        """Return the ARN of each caller's role in the templates."""
        functions = {
            concern_of(each["FunctionName"]): each["Role"]
            for each in self.template.of_type("Lambda::Function").values()
        }
        for concern in NOT_RUN:
            del functions[concern]
        (forwarder,) = {
            each.only("EKS::PodIdentityAssociation")["RoleArn"] for each in self.clusters.values()
        }
        (ticker,) = {
            each["Target"]["RoleArn"] for each in self.template.of_type("Scheduler::Schedule").values()
        }
        return {**functions, FORWARDER: forwarder, TICKER: ticker}

    def _wake(self, stack: ExitStack) -> None:
        """Connect events, queues and schedules to the functions, each with the role that the template assigns."""
        events = self._new_events()
        may = permitted(self.template)
        self._aws.lambdas.may_pass_on = lambda rule, function: (rule, function) in may
        sources = event_sources(self.template, self._mortals, self._polled, self._url, self._clock)
        due = [
            each for each in schedules(self.template, self._invoke_by_schedule) if each.name not in NOT_RUN
        ]
        stack.enter_context(faulty_queues(self._faults, sources.keys()))
        stack.callback(self._join)
        self._feed({**events, **sources}, due)
        stack.callback(self._stopping.set)

    def _new_events(self) -> dict[str, AsyncInvocations]:
        """Let functions be invoked by the template's aliases, and return the invocations of the new aliases."""
        region = self._aws.region
        stated = [each for each in aliases(self.template, region) if each.concern not in NOT_RUN]
        for alias in stated:
            if alias.key not in self._mortals:
                self._mortals[alias.key] = Mortal(Aliased(alias, self._versions))
                self._mortals[alias.key].endanger(self._faults)
        late = partial(faulty_deliveries, self._faults)
        made = invocations(self.template, region, self._mortals, self._clock, self._bury, late)
        new = {key: each for key, each in made.items() if key not in self._events}
        self._events |= new
        for key in made:
            self._aws.lambdas.know(self._events[key])
        return new

    def _feed(self, feeds: Mapping[str, Feed], due: Iterable[Schedule] = ()) -> None:
        woken = Feeds(feeds, due, self._clock, self._stopping)
        self._woken.append(woken)
        woken.start()

    def _join(self) -> None:
        for each in self._woken:
            each.join()

    def _invoke_by_schedule(self, arn: str, event: Mapping[str, Any]) -> object:
        """Invoke with the schedules' role, which must allow it."""
        self._calls.record(Principal(TICKER), [Call("lambda:InvokeFunction", arn)])
        return self._aws.lambdas.accept(arn, event)

    def _bury(self, concern: str, arn: str, body: str) -> None:
        """Send a function's finally failed event to its queue with the function's role, which must allow it."""
        context = {"aws:RequestedRegion": self._aws.region}
        self._calls.record(Principal(concern), [Call("sqs:SendMessage", arn, context)])
        send_to_dead_letters(self._aws.region, arn, body)

    def _polled(self, concern: str) -> PolledQueues:
        """Return the queues as Lambda polls them, with the function's role, which must allow it."""
        region = self._aws.region
        context = {"aws:RequestedRegion": region}

        def listen(action: str, arn: str) -> None:
            self._calls.record(Principal(concern), [Call(action, arn, context)])

        return PolledQueues(region, listen)

    def _url(self, arn: str) -> str:
        return f"{self._aws.url}/{DEFAULT_ACCOUNT_ID}/{arn.rpartition(':')[2]}"

    def _way(self) -> dict[str, str]:
        """Return the variables that direct a function to this AWS, which Lambda itself would not set."""
        names = ("AWS_ENDPOINT_URL", "AWS_ACCOUNT_ID_ENDPOINT_MODE")
        return {name: self._aws.environment[name] for name in names}


def _principal(who: str) -> Principal:
    """Return the caller of credentials; EKS Pod Identity tags the forwarder's session with the cluster's name."""
    kind, _, cluster = who.partition(" ")
    return Principal(kind, {"aws:PrincipalTag/eks-cluster-name": cluster} if cluster else {})
