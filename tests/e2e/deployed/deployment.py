"""One cluster's deployment, running: what its template says, played on the imitated AWS."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud import LocalAws
from nodesmith_cli.local.cloud.queues import PolledQueues
from nodesmith_cli.local.eventsource import EventSource
from nodesmith_cli.local.invoker import EventSources
from nodesmith_cli.local.started import Started
from tests.awscalls.requests import Call
from tests.e2e.deployed import resources
from tests.e2e.deployed.access import Authenticator, Credentials, assume
from tests.e2e.deployed.assembly import VPC, synthesised
from tests.e2e.deployed.calls import CallRecord
from tests.e2e.deployed.faults import Faults, Mortal, faulty_queues
from tests.e2e.deployed.functions import DeployedFunction, FunctionCode, read_function
from tests.e2e.deployed.mappings import event_sources, ticks
from tests.e2e.deployed.stacks import ACCOUNT, CLUSTER, Stacks

NOT_RUN = {
    "catalog": "the account's function: its tick would ask AWS's price list; functions read the embedded one"
}
FORWARDER, TICKER, ROUTING = "forwarder", "ticks", "routing"
Edit = Callable[[str], str]


class Deployed(Started):
    """The CDK app for the cluster of `aws`, deployed there, its functions awake. A context manager.

    `folder` takes what the functions print. moto's queues must be on `clock` (`queues_run_on`) by the time messages
    are sent. `context` is what cdk.json says of the cluster; `edit` may change the text of the cluster's template.
    Raises ValueError for anything in the templates that would be passed over.
    """

    def __init__(
        self,
        aws: LocalAws,
        folder: Path,
        clock: LocalClock,
        *,
        faults: Faults = Faults(),  # noqa: B008 frozen
        context: Mapping[str, Any] | None = None,
        edit: Edit = lambda text: text,
    ) -> None:
        self._aws, self._folder, self._clock, self._faults = aws, folder, clock, faults
        self._assembly = synthesised(aws.cluster, aws.region, context)
        cluster = self._assembly.cluster_template().replace(VPC, aws.network.vpc_id)
        stacks = Stacks.read(self._assembly.account_template(), edit(cluster), aws.region, aws.url)
        self.template, self.account = stacks.cluster, stacks.account
        self._credentials: dict[str, Credentials] = {}
        self._stopping = threading.Event()
        self.functions: dict[str, DeployedFunction] = {}
        self._mortals: dict[str, Mortal] = {}
        self._events: EventSources
        self._authenticator: Authenticator
        self._calls: CallRecord

    @property
    def sources(self) -> Mapping[str, EventSource]:
        """The event sources by concern, with their counts."""
        return self._events.sources

    @property
    def outputs(self) -> Mapping[str, str]:
        """The outputs of the cluster's stack."""
        return {name: str(each["Value"]) for name, each in self.template.outputs.items()}

    @property
    def forwarder_environment(self) -> Mapping[str, str]:
        """What EKS Pod Identity gives the forwarder's pod, and the way to AWS."""
        return {**self._aws.environment, **self._credentials[FORWARDER].environment}

    def authenticate(self, token: str) -> tuple[str, tuple[str, ...]] | None:
        """Give user name and groups behind an EKS token, None for one that does not count."""
        return self._authenticator.authenticate(token)

    def kill(self, concern: str) -> bool:
        """Kill those of a function's processes that work, in the middle of it; False when none does."""
        return self.functions[concern].kill()

    def endanger(self, *faults: Faults) -> None:
        """Let functions be killed from now on as these faults say; the queues' faults stay as they were."""
        for mortal in self._mortals.values():
            mortal.endanger(*faults)

    @property
    def killed(self) -> int:
        """How often a function was killed by its faults."""
        return sum(mortal.killed for mortal in self._mortals.values())

    def calls(self) -> Mapping[str, frozenset[str]]:
        """Give the IAM actions that were called: by concern, by the forwarder, by the ticks."""
        return self._calls.called()

    def ungranted(self) -> list[str]:
        """Say what was called without a grant."""
        return self._calls.ungranted()

    def unused(self) -> list[str]:
        """Say what was granted and never called."""
        return self._calls.unused()

    def _start(self, stack: ExitStack) -> None:
        for stack_name, template in ((ACCOUNT, self.account), (CLUSTER, self.template)):
            resources.make(stack_name, template, self._aws.client, self._aws.region)
        self._know_each_other(stack)
        for code in self._code():
            environment = {**self._way(), **self._credentials[code.concern].environment}
            folder = self._folder / code.concern
            self.functions[code.concern] = DeployedFunction(code, environment, folder, self._clock)
        stack.callback(self._close_functions)
        self._wake(stack)

    def _code(self) -> Iterator[FunctionCode]:
        for template in (self.template, self.account):
            for id_ in template.of_type("Lambda::Function"):
                code = read_function(template, id_, self._assembly, self._aws.region)
                if code.concern not in NOT_RUN:
                    yield code

    def _close_functions(self) -> None:
        with ThreadPoolExecutor(len(self.functions)) as pool:
            list(pool.map(DeployedFunction.close, self.functions.values()))

    def _know_each_other(self, stack: ExitStack) -> None:
        """Give every role that acts here its credentials, and record what is done with them."""
        for concern, (role, session) in self._roles().items():
            arn = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{role}"
            self._credentials[concern] = assume(self._aws.client("sts"), arn, session)
        by_key = {each.access_key: (concern, each) for concern, each in self._credentials.items()}
        self._authenticator = Authenticator(
            self.template, self._aws.cluster, lambda key: by_key[key][1] if key in by_key else None
        )
        statements = {
            concern: (self.account if concern == ROUTING else self.template).statements(role)
            for concern, (role, _) in self._roles().items()
        }
        keys = {key: concern for key, (concern, _) in by_key.items()}
        self._calls = CallRecord(keys, statements)
        stack.enter_context(self._calls)

    def _roles(self) -> dict[str, tuple[str, str]]:
        """Give role and session name of all who act by the templates."""
        functions = {
            each["FunctionName"].rpartition("-")[2]: (each["Role"].rpartition("/")[2], each["FunctionName"])
            for template in (self.template, self.account)
            for each in template.of_type("Lambda::Function").values()
        }
        for concern in NOT_RUN:
            del functions[concern]
        forwarder = self.template.only("EKS::PodIdentityAssociation")["RoleArn"].rpartition("/")[2]
        (ticker,) = {
            each["Target"]["RoleArn"].rpartition("/")[2]
            for each in self.template.of_type("Scheduler::Schedule").values()
        }
        return {**functions, FORWARDER: (forwarder, "eks-forwarder"), TICKER: (ticker, "scheduler")}

    def _wake(self, stack: ExitStack) -> None:
        """Let queues and schedules wake the functions, each acting by the role that the template gives it."""
        urls = {
            f"arn:aws:sqs:{self._aws.region}:{DEFAULT_ACCOUNT_ID}:{queue['QueueName']}": self._url(
                queue["QueueName"]
            )
            for template in (self.template, self.account)
            for queue in template.of_type("SQS::Queue").values()
        }
        self._mortals = {concern: Mortal(each) for concern, each in self.functions.items()}
        self.endanger(self._faults)
        sources = {
            name: source
            for template in (self.template, self.account)
            for name, source in event_sources(
                template, self._mortals, self._polled, urls.__getitem__, self._clock
            ).items()
        }
        all_ticks = ticks(self.template, urls.__getitem__)
        fed = {source.arn.rpartition(":")[2] for source in sources.values()}
        stack.enter_context(faulty_queues(self._faults, fed))
        self._events = EventSources(self._ticker(), sources, all_ticks, self._clock, self._stopping)
        stack.callback(self._events.join)
        self._events.start()
        self._thread(stack, self._warm)
        stack.callback(self._stopping.set)

    def _warm(self) -> None:
        """Let the account's schedules invoke their functions, once: an environment lasts here as long as they do."""
        for schedule in self.account.of_type("Scheduler::Schedule").values():
            concern = schedule["Target"]["Arn"].rpartition("-")[2]
            if concern in self.functions:
                self.functions[concern](json.loads(schedule["Target"]["Input"]))

    def _thread(self, stack: ExitStack, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, daemon=True)
        thread.start()
        stack.callback(thread.join, 10)

    def _polled(self, concern: str) -> PolledQueues:
        """Give the queues as Lambda polls them: by the function's role, which must allow it."""
        region = self._aws.region
        context = {"aws:RequestedRegion": region}

        def listen(action: str, arn: str) -> None:
            self._calls.record(concern, [Call(action, arn, context)])

        return PolledQueues(region, listen)

    def _ticker(self) -> Any:
        credentials = self._credentials[TICKER]
        return boto3.client(
            "sqs",
            region_name=self._aws.region,
            endpoint_url=self._aws.url,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret,
            aws_session_token=credentials.token,
        )

    def _url(self, queue: str) -> str:
        return f"{self._aws.url}/{DEFAULT_ACCOUNT_ID}/{queue}"

    def _way(self) -> dict[str, str]:
        """Give what leads a function to this AWS, where Lambda would have nothing to say."""
        names = ("AWS_ENDPOINT_URL", "AWS_ACCOUNT_ID_ENDPOINT_MODE")
        return {name: self._aws.environment[name] for name in names}
