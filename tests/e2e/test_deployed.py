"""The functions as deployed, by themselves: what the template says is what happens, and what it forbids is found."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.credentials import Credentials as BotoCredentials
from moto import mock_aws

from nodesmith.adapters.ekstoken import eks_token
from nodesmith.model.schema.crds import custom_resource_definitions
from nodesmith_cli.local.apiserver import ApiServer
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud import LocalAws
from nodesmith_cli.local.cloud.account import Endpoint
from nodesmith_cli.local.eventsource import EventSource
from nodesmith_cli.local.invoker import EventSources
from nodesmith_cli.local.queuetime import queues_run_on
from tests import builders
from tests.e2e.deployed import Deployed, Faults, resources
from tests.e2e.deployed.access import Authenticator, Credentials
from tests.e2e.deployed.assembly import Assembly, synthesised
from tests.e2e.deployed.faults import Mortal, faulty_queues
from tests.e2e.deployed.functions import DeployedFunction, FunctionCode, InvocationFailed, read_function
from tests.e2e.deployed.mappings import event_sources, ticks
from tests.e2e.deployed.stacks import CLUSTER, Stacks
from tests.infra.templates import Template
from tests.served import created
from tests.world import pod_manifest

NAME, REGION = "nodesmith-local", "us-east-1"
CA_BUNDLE = base64.b64encode(b"plain HTTP").decode()
MAPPING = "AWS::Lambda::EventSourceMapping"
QUEUE = "AWS::SQS::Queue"
Edit = Callable[[str], str]


@pytest.fixture(scope="module")
def assembly() -> Assembly:
    return synthesised(NAME, REGION)


def changed(kind: str, named: str, **properties: Any) -> Edit:
    """Change properties of the resources of a type whose logical id begins so; None takes one away."""

    def edit(text: str) -> str:
        template = json.loads(text)
        found = [
            each
            for id_, each in template["Resources"].items()
            if each["Type"] == kind and id_.startswith(named)
        ]
        assert found
        for each in found:
            each["Properties"] = {
                key: value for key, value in {**each["Properties"], **properties}.items() if value is not None
            }
        return json.dumps(template)

    return edit


def unchanged(text: str) -> str:
    return text


def cluster_template(assembly: Assembly, edit: Edit = unchanged) -> Template:
    text = edit(assembly.cluster_template())
    return Stacks.read(
        assembly.account_template(), text, REGION, "https://sqs.us-east-1.amazonaws.com"
    ).cluster


def eventually(what: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Queues, mappings and schedules, with functions that are played


class Spy:
    """A function that remembers its batches, gives some messages back, and takes its time."""

    concern = "lifecycle"

    def __init__(self, gives_back: str = "", takes_seconds: float = 0) -> None:
        self.gives_back, self.takes_seconds = gives_back, takes_seconds
        self.batches: list[list[str]] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, event: Mapping[str, Any]) -> Any:
        with self._lock:
            self.batches.append([record["body"] for record in event["Records"]])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.takes_seconds)
        with self._lock:
            self.at_once -= 1
        failed = [r["messageId"] for r in event["Records"] if r["body"] == self.gives_back]
        return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION, aws_access_key_id="local", aws_secret_access_key="local")


class Queues:
    """A template's queues, with a spy for lifecycle."""

    def __init__(self, template: Template, spy: Spy, clock: LocalClock) -> None:
        self.spy = spy
        resources.make(CLUSTER, template, client, REGION)
        self.sqs = client("sqs")
        mappings = template.of_type("Lambda::EventSourceMapping")
        only = {id_: each for id_, each in mappings.items() if each["FunctionName"].endswith("-lifecycle")}
        kept = {**{i: r for i, r in template.resources.items() if i not in mappings}}
        kept |= {id_: template.resources[id_] for id_ in only}
        functions: Any = {"lifecycle": spy}
        sources = event_sources(
            replace(template, resources=kept), functions, lambda _: self.sqs, self.url, clock
        )
        self.source: EventSource = sources["lifecycle"]

    def url(self, arn: str) -> str:
        return str(self.sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"])

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url(f"nodesmith-{NAME}-lifecycle"), MessageBody=body)

    def waiting(self, suffix: str = "") -> int:
        kinds = ("", "NotVisible", "Delayed")
        names = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
        url = self.url(f"nodesmith-{NAME}-lifecycle{suffix}")
        found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@pytest.fixture
def clock() -> Iterator[LocalClock]:
    clock = LocalClock(1000)
    with mock_aws(), queues_run_on(clock):
        yield clock


def test_a_batch_is_as_large_as_the_mapping_says(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    queues = Queues(cluster_template(assembly, changed(MAPPING, "Lifecycle", BatchSize=2)), spy, clock)
    queues.send("a", "b", "c")

    queues.source.poll()
    queues.source.poll()

    assert sorted(map(len, spy.batches)) == [1, 2]


def test_a_batching_window_collects_what_comes_within_it(assembly: Assembly, clock: LocalClock) -> None:
    spy = Spy()
    edit = changed(MAPPING, "Lifecycle", MaximumBatchingWindowInSeconds=300)
    queues = Queues(cluster_template(assembly, edit), spy, clock)
    queues.send("a")
    poll = threading.Thread(target=queues.source.poll)
    poll.start()
    time.sleep(0.1)
    queues.send("b")
    poll.join()

    assert spy.batches == [["a", "b"]]


def test_what_a_function_gives_back_comes_again_when_the_queue_says_so(
    assembly: Assembly, clock: LocalClock
) -> None:
    spy = Spy(gives_back="bad")
    queues = Queues(cluster_template(assembly), spy, clock)
    queues.send("good", "bad")

    queues.source.poll()
    assert queues.source.poll() == 0
    clock.sleep(361)
    queues.source.poll()

    assert [sorted(batch) for batch in spy.batches] == [["bad", "good"], ["bad"]]


def test_without_report_batch_item_failures_what_is_given_back_is_lost(
    assembly: Assembly, clock: LocalClock
) -> None:
    spy = Spy(gives_back="bad")
    edit = changed(MAPPING, "Lifecycle", FunctionResponseTypes=None)
    queues = Queues(cluster_template(assembly, edit), spy, clock)
    queues.send("bad")

    queues.source.poll()

    assert queues.waiting() == 0


@pytest.mark.parametrize("receives", [5, 2])
def test_a_message_goes_to_the_dead_letters_after_as_many_receives_as_the_queue_allows(
    assembly: Assembly, clock: LocalClock, receives: int
) -> None:
    dead = f"arn:aws:sqs:{REGION}:123456789012:nodesmith-{NAME}-lifecycle-dead"
    policy = {"deadLetterTargetArn": dead, "maxReceiveCount": receives}
    edit = unchanged if receives == 5 else changed(QUEUE, "LifecycleQueue", RedrivePolicy=policy)
    spy = Spy(gives_back="poison")
    queues = Queues(cluster_template(assembly, edit), spy, clock)
    queues.send("poison")

    for _ in range(receives + 1):
        queues.source.poll()
        clock.sleep(361)

    assert len(spy.batches) == receives
    assert (queues.waiting(), queues.waiting("-dead")) == (0, 1)


@pytest.mark.parametrize("allowed", [2, 3])
def test_no_more_invocations_are_under_way_than_the_mapping_allows(
    assembly: Assembly, clock: LocalClock, allowed: int
) -> None:
    spy = Spy(takes_seconds=0.3)
    edit = changed(MAPPING, "Lifecycle", BatchSize=1, ScalingConfig={"MaximumConcurrency": allowed})
    queues = Queues(cluster_template(assembly, edit), spy, clock)
    queues.send(*"abcdefgh")
    stopping = threading.Event()
    polling = EventSources(queues.sqs, {"lifecycle": queues.source}, (), clock, stopping)

    polling.start()
    eventually(lambda: len(spy.batches) == 8)
    stopping.set()
    polling.join()

    assert spy.most_at_once == allowed


def received(queues: Queues, faults: Faults, *bodies: str) -> list[str]:
    """Send to a faulty queue and give what comes out of it, in order."""
    queues.spy.batches.clear()
    with faulty_queues(faults, {f"nodesmith-{NAME}-lifecycle"}):
        queues.send(*bodies)
    while queues.waiting():
        queues.source.poll()
    return [body for batch in queues.spy.batches for body in batch]


def test_a_faulty_queue_delivers_everything_twice(assembly: Assembly, clock: LocalClock) -> None:
    queues = Queues(cluster_template(assembly), Spy(), clock)
    assert sorted(received(queues, Faults(duplicate=True), *"abc")) == list("aabbcc")


def test_a_shuffled_queue_delivers_in_the_order_of_its_seed(assembly: Assembly, clock: LocalClock) -> None:
    queues = Queues(cluster_template(assembly), Spy(), clock)
    orders = [received(queues, Faults(seed=seed, shuffle=True), *"abcdefg") for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list("abcdefg")


def test_ticks_are_those_of_the_schedules(assembly: Assembly) -> None:
    def every_seconds(edit: Edit) -> dict[str, float]:
        found = ticks(cluster_template(assembly, edit), str)
        return {tick.queue_url.rpartition("-")[2]: tick.every_seconds for tick in found}

    now = every_seconds(unchanged)
    rare = every_seconds(
        changed("AWS::Scheduler::Schedule", "Tickerreadiness", ScheduleExpression="rate(2 hours)")
    )
    assert now == {"provisioning": 60, "lifecycle": 60, "readiness": 300, "observation": 60}
    assert rare == {**now, "readiness": 7200}


@pytest.mark.parametrize(
    ("kind", "named", "property_"),
    [(MAPPING, "Lifecycle", "FilterCriteria"), (QUEUE, "LifecycleQueue", "FifoQueue")],
)
def test_what_would_be_passed_over_is_refused(
    assembly: Assembly, clock: LocalClock, kind: str, named: str, property_: str
) -> None:
    template = cluster_template(assembly, changed(kind, named, **{property_: True}))
    with pytest.raises(ValueError, match=property_):
        Queues(template, Spy(), clock)


def test_a_resource_of_a_type_that_is_not_known_here_is_refused(
    assembly: Assembly, clock: LocalClock
) -> None:
    text = assembly.cluster_template().replace("AWS::CloudWatch::Dashboard", "AWS::SNS::Topic")
    with pytest.raises(ValueError, match="AWS::SNS::Topic"):
        Queues(cluster_template(assembly, lambda _: text), Spy(), clock)


# Processes, with handlers of our own in the places of the real ones

PROBE = """
import importlib, os, time

def handler(event, context):
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "raise" in event:
        raise KeyError(event["raise"])
    found = {}
    for name in event.get("import", ()):
        try:
            found[name] = importlib.import_module(name).__file__
        except ModuleNotFoundError:
            found[name] = ""
    return {"pid": os.getpid(), "modules": found, "environment": dict(os.environ),
            "left": context.get_remaining_time_in_millis() / 1000, "arn": context.invoked_function_arn}
"""


@contextmanager
def probe(
    code: FunctionCode, folder: Path, clock: LocalClock, *, snapshots: bool = False
) -> Iterator[DeployedFunction]:
    """Give the function with another handler: everything else is as deployed."""
    task = folder / "task"
    task.mkdir(parents=True)
    (task / "handler.py").write_text(PROBE)
    own = replace(code, task=task)
    function = DeployedFunction(own, {}, folder / code.concern, clock, snapshots=snapshots)
    yield function
    function.close()


def function_code(assembly: Assembly, concern: str, edit: Edit = unchanged) -> FunctionCode:
    template = cluster_template(assembly, edit)
    (id_,) = (
        id_
        for id_, each in template.of_type("Lambda::Function").items()
        if each["FunctionName"].endswith(f"-{concern}")
    )
    return read_function(template, id_, assembly, REGION)


def test_everything_is_imported_from_the_layers_and_nothing_from_this_environment(
    assembly: Assembly, folder: Path
) -> None:
    wanted = {"import": ["nodesmith", "boto3", "aws_lambda_powertools", "kubernetes", "pytest", "moto"]}
    with probe(function_code(assembly, "lifecycle"), folder, LocalClock()) as function:
        modules = function(wanted)["modules"]
    layers = {name: Path(path).parents[2].name.partition(".")[0] for name, path in modules.items() if path}
    assert layers == dict.fromkeys(["nodesmith", "boto3", "aws_lambda_powertools", "kubernetes"], "asset")


def test_provisioning_has_no_kubernetes_client(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        modules = function({"import": ["nodesmith", "kubernetes"]})["modules"]
    assert modules["nodesmith"]
    assert modules["kubernetes"] == ""


def test_a_function_sees_the_templates_variables_and_lambdas_own_and_nothing_of_this_process(
    assembly: Assembly, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    template = cluster_template(assembly)
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        answer = function({})
    found = answer["environment"]
    stated = template.function("provisioning")["Environment"]["Variables"]
    assert {name: found[name] for name in stated} == stated
    assert found["AWS_REGION"] == REGION
    assert found["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "1769"
    assert answer["arn"].endswith(f":function:nodesmith-{NAME}-provisioning")
    others = found.keys() - stated.keys()
    assert {n for n in others if not n.startswith(("AWS_", "_", "LC_"))} == {
        *("LAMBDA_TASK_ROOT", "LANG", "PATH", "PYTHONPATH", "TZ")
    }
    assert "AWS_PROFILE" not in found


def test_a_process_is_used_again_and_a_second_one_started_only_while_the_first_is_busy(
    assembly: Assembly, folder: Path
) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        first, again = function({})["pid"], function({})["pid"]
        busy = threading.Thread(target=function, args=[{"sleep": 2}])
        busy.start()
        time.sleep(0.2)
        second = function({})["pid"]
        busy.join()
    assert first == again != second


def test_a_function_that_raises_fails_and_its_process_goes_on(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        first = function({})["pid"]
        with pytest.raises(InvocationFailed, match="KeyError: 'a bug'"):
            function({"raise": "a bug"})
        assert function({})["pid"] == first


def test_a_function_is_killed_when_its_time_is_up(assembly: Assembly, folder: Path) -> None:
    code = function_code(
        assembly, "provisioning", changed("AWS::Lambda::Function", "Provisioning", Timeout=1)
    )
    with probe(code, folder, LocalClock()) as function:
        first = function({})
        assert 0.5 < first["left"] <= 1
        with pytest.raises(InvocationFailed, match=r"Task timed out after 1\.00 seconds"):
            function({"sleep": 30})
        assert function({})["pid"] != first["pid"]


def test_a_killed_function_goes_on_from_its_snapshot_as_if_it_had_been_started(
    assembly: Assembly, folder: Path
) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock(), snapshots=True) as function:
        answers = [function({"import": ["nodesmith"]})]
        for _ in range(2):
            assert function.kill()
            answers.append(function({"import": ["nodesmith"]}))
            with pytest.raises(InvocationFailed, match="KeyError"):
                function({"raise": "a bug"})
    assert len({answer.pop("pid") for answer in answers}) == 3
    for answer in answers:
        answer["environment"].pop("AWS_LAMBDA_RUNTIME_API")
        answer.pop("left")
    assert answers[0] == answers[1] == answers[2]
    assert "KeyError" in (folder / "provisioning" / "002.log").read_text()


def test_a_killed_function_fails_and_starts_anew(assembly: Assembly, folder: Path) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        assert not function.kill()
        first = function({})["pid"]
        killer = threading.Timer(0.3, function.kill)
        killer.start()
        with pytest.raises(InvocationFailed, match="ExitError"):
            function({"sleep": 30})
        assert function({})["pid"] != first


def test_as_many_invocations_as_the_faults_say_end_with_a_killed_process(
    assembly: Assembly, folder: Path
) -> None:
    with probe(function_code(assembly, "provisioning"), folder, LocalClock()) as function:
        mortal, failed = Mortal(function), 0
        mortal.endanger(Faults(seed=3, kills=2))
        for _ in range(10):
            try:
                mortal({"sleep": 0.3})
            except InvocationFailed:
                failed += 1
    assert failed == mortal.killed == 2


def test_a_function_goes_by_the_faster_clock_of_the_process_that_starts_it(
    assembly: Assembly, folder: Path
) -> None:
    clock = LocalClock(1000, start=datetime(2030, 1, 1, tzinfo=UTC))
    code = replace(function_code(assembly, "provisioning"), timeout_seconds=60_000)
    with probe(code, folder, clock) as function:
        (folder / "task" / "handler.py").write_text(
            "from nodesmith import parts\ndef handler(event, context): return parts.now().isoformat()\n"
        )
        before = clock.now()
        told = datetime.fromisoformat(function({}))
        after = clock.now()
    assert before < told < after


# Everything together, with the functions that are deployed


@contextmanager
def deployed(folder: Path, speed: float, edit: Edit = unchanged) -> Iterator[Deployed]:
    """Give a running deployment beside an API server with a NodePool and a pending pod."""
    clock = LocalClock(speed)
    with (
        queues_run_on(clock),
        ApiServer(0, custom_resource_definitions(), now=clock.now) as api,
        LocalAws(
            REGION,
            cluster=NAME,
            endpoint=Endpoint(api.url, CA_BUNDLE),
            clock=clock,
            zones=(f"{REGION}a",),
        ) as aws,
    ):
        _populate(api)
        with Deployed(aws, folder / "functions", clock, edit=edit) as deployment:
            yield deployment


def _populate(api: ApiServer) -> None:
    terms = [{"tags": {"karpenter.sh/discovery": NAME}}]
    nodeclass = builders.nodeclass_manifest(
        role=f"KarpenterNodeRole-{NAME}", subnetSelectorTerms=terms, securityGroupSelectorTerms=terms
    )
    created(api.store, "ec2nodeclasses", nodeclass)
    created(api.store, "nodepools", builders.nodepool_manifest())
    pod = pod_manifest("web")
    pod["spec"]["containers"][0]["image"] = "web"
    created(api.store, "pods", pod)


def test_a_pod_gets_its_node_by_the_roles_of_the_template_and_each_call_is_granted(folder: Path) -> None:
    with deployed(folder, speed=10) as deployment:
        eventually(lambda: "ec2:CreateFleet" in deployment.calls().get("provisioning", ()))
        eventually(lambda: "dynamodb:PutItem" in deployment.calls().get("lifecycle", ()))
        calls = deployment.calls()
        users = {
            concern: deployment.authenticate(token(signer=deployment._credentials[concern]))
            for concern in deployment.functions
        }
        assert deployment.ungranted() == []
        assert {source.failures for source in deployment.sources.values()} == {0}, _errors(deployment)
    assert {"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "dynamodb:PutItem"} <= calls["provisioning"]
    assert {"iam:CreateInstanceProfile", "iam:PassRole", "ssm:GetParameter"} <= calls["readiness"]
    assert {"s3:ListBucket", "s3:PutObject", "eks:DescribeCluster"} <= calls["observation"]
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage"} <= calls["lifecycle"]
    assert calls["ticks"] == {"sqs:SendMessage"}
    groups = {concern: user and user[1] for concern, user in users.items()}
    assert groups == {
        "provisioning": None,
        "lifecycle": ("nodesmith:writer",),
        "readiness": ("nodesmith:writer",),
        "observation": ("nodesmith:reader",),
    }


def test_a_call_without_a_grant_is_found_with_the_resource_and_what_nobody_calls_is_listed(
    folder: Path,
) -> None:
    def other_partition(text: str) -> str:
        return text.replace(f'"CLUSTER#{NAME}"', '"CLUSTER#other"').replace(
            '"eks:DescribeCluster"', '"eks:ListClusters"'
        )

    with deployed(folder, speed=10, edit=other_partition) as deployment:
        eventually(lambda: "eks:DescribeCluster" in deployment.calls().get("observation", ()))
        eventually(lambda: "dynamodb:Query" in deployment.calls().get("provisioning", ()))
        ungranted, unused = deployment.ungranted(), deployment.unused()
    cluster = f"arn:aws:eks:{REGION}:123456789012:cluster/{NAME}"
    table = f"arn:aws:dynamodb:{REGION}:123456789012:table/nodesmith"
    assert f"observation: eks:DescribeCluster on {cluster}" in ungranted
    assert f"provisioning: dynamodb:Query on {table}" in ungranted
    assert "observation: eks:ListClusters" in unused
    assert not [each for each in unused if "logs:" in each or "sqs:ReceiveMessage" in each]


def _errors(deployment: Deployed) -> dict[str, str]:
    return {concern: source.last_error for concern, source in deployment.sources.items()}


def test_what_a_killed_function_was_working_on_comes_again(folder: Path) -> None:
    def one_message_soon_again(text: str) -> str:
        once = changed("AWS::Scheduler::Schedule", "Tickerobservation", ScheduleExpression="rate(1 day)")
        return changed(QUEUE, "ObservationQueue", VisibilityTimeout=60)(once(text))

    with deployed(folder, speed=20, edit=one_message_soon_again) as deployment:
        source = deployment.sources["observation"]
        eventually(lambda: deployment.kill("observation"))  # while it starts
        eventually(lambda: source.failures > 0)
        assert "ExitError" in source.last_error
        eventually(lambda: "s3:PutObject" in deployment.calls().get("observation", ()))


# Tokens

ROLE = "arn:aws:iam::123456789012:role/cluster-lifecycle"
SIGNER = Credentials(ROLE, "nodesmith-local-lifecycle", "ASIALIFECYCLE", "secret", "session token/+=")


def token(cluster: str = NAME, signer: Credentials = SIGNER, region: str = REGION) -> str:
    return eks_token(BotoCredentials(signer.access_key, signer.secret, signer.token), cluster, region)


def authenticator(assembly: Assembly, later: timedelta = timedelta(), role: str = ROLE) -> Authenticator:
    edit = changed("AWS::EKS::AccessEntry", "Lifecycle", PrincipalArn=role)
    known = {SIGNER.access_key: SIGNER}
    return Authenticator(
        cluster_template(assembly, edit), NAME, known.get, now=lambda: datetime.now(UTC) + later
    )


def test_a_functions_token_makes_it_a_member_of_the_group_of_its_access_entry(assembly: Assembly) -> None:
    assert authenticator(assembly).authenticate(token()) == (
        "arn:aws:sts::123456789012:assumed-role/cluster-lifecycle/nodesmith-local-lifecycle",
        ("nodesmith:writer",),
    )


@pytest.mark.parametrize(
    "presented",
    [
        "",
        "k8s-aws-v1.",
        "k8s-aws-v1.bm8gdXJs",
        "k8s-aws-v2." + token().partition(".")[2],
        token(cluster="another"),
        token(signer=replace(SIGNER, secret="guessed")),
        token(signer=replace(SIGNER, access_key="ASIAUNKNOWN")),
    ],
    ids=["none", "prefix", "no URL", "other prefix", "other cluster", "wrong secret", "unknown key"],
)
def test_a_token_that_does_not_count_is_nobodys(assembly: Assembly, presented: str) -> None:
    assert authenticator(assembly).authenticate(presented) is None


def test_a_token_counts_for_fifteen_minutes(assembly: Assembly) -> None:
    assert authenticator(assembly, timedelta(minutes=14)).authenticate(token())
    assert authenticator(assembly, timedelta(minutes=16)).authenticate(token()) is None


def test_a_role_without_an_access_entry_is_not_let_in(assembly: Assembly) -> None:
    elsewhere = authenticator(assembly, role=ROLE + "-of-another")
    assert elsewhere.authenticate(token()) is None
