"""The forwarder as the image starts it: a separate process with settings, probes and signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import urllib3
from moto.server import ThreadedMotoServer

from nodesmith.keys import snapshot_key
from nodesmith.model.functions import Concern, Hint
from nodesmith.observation.decoding import decode
from nodesmith_forwarder.serviceaccount import FOLDER
from nodesmith_local.apiserver import ApiServer as LocalApiServer
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from nodesmith_local.functions.lambdas import Lambdas
from tests.objects.clusters import deployment_pod, rolled
from tests.patience import eventually
from tests.processes.accepted import accepting
from tests.servers.served import CRDS, created, now
from tests.servers.tls import authority, server_context

ROOT = Path(__file__).parents[3]
PYTHONPATH = os.pathsep.join(str(ROOT / part) for part in ("layers/core/python", "forwarder"))
MOVING_MOUNTS = ROOT / "tests" / "e2e" / "incluster" / "mounts"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    urllib3.request("POST", f"{url}/moto-api/reset")  # moto's state belongs to the process
    yield url
    urllib3.request("POST", f"{url}/moto-api/reset")
    server.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def mounted(server: LocalApiServer, folder: Path) -> dict[str, str]:
    """Serve HTTPS, write the volume of a service account, and return the environment of a pod that mounts it."""
    signer, volume = authority(), folder / str(FOLDER).lstrip("/")
    volume.mkdir(parents=True)
    (volume / "ca.crt").write_bytes(signer.pem)
    (volume / "token").write_text("token\n")
    http = server._http
    http.socket = server_context(signer, folder).wrap_socket(http.socket, server_side=True)
    return {
        "KUBERNETES_SERVICE_HOST": "localhost",
        "KUBERNETES_SERVICE_PORT": str(http.server_port),
        "MOUNTS": str(folder),
        "PYTHONPATH": os.pathsep.join((str(MOVING_MOUNTS), PYTHONPATH)),
    }


@pytest.mark.usefixtures("aws")
def test_the_program_runs_until_it_is_signalled_to_stop(tmp_path: Path) -> None:
    bucket, s3, lambdas = deploy(boto3.client, "us-east-1").bucket, boto3.client("s3"), Lambdas()
    provisioning = accepting(lambdas, "us-east-1")[Concern.PROVISIONING]
    log, port, server = tmp_path / "log", free_port(), LocalApiServer(crds=CRDS, now=now)
    in_pod = mounted(server, tmp_path)
    with lambdas.answering(), server, log.open("wb") as output:
        environment = {
            **in_pod,
            **{name: os.environ[name] for name in ("PATH", "AWS_ENDPOINT_URL", *CREDENTIALS)},
            "TABLE_NAME": TABLE_NAME,
            "CLUSTER_NAME": "east",
            "AWS_REGION": "us-east-1",
            "BUCKET_NAME": bucket,
            "HEALTH_PROBE_PORT": str(port),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "nodesmith_forwarder"],
            env=environment,
            stdout=output,
            stderr=output,
            cwd=tmp_path,
        )
        try:
            eventually(lambda: is_ready(port))
            created(server.store, "pods", deployment_pod(1, rolled(1)))
            asked = Hint("east", "pods pending: 1")
            eventually(lambda: asked in provisioning.hints)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
    assert status == 0
    assert provisioning.hints.count(asked) == 1
    snapshot = decode(s3.get_object(Bucket=bucket, Key=snapshot_key("east"))["Body"].read())
    assert [pod.unschedulable for pod in snapshot.pods] == [True]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["message"] == "serving cluster east"
    assert lines[-1]["message"] == "stopped"
    assert not any("s3cr3t" in line["message"] or "testing" in line["message"] for line in lines)


def test_the_program_imports_no_code_of_the_functions_or_the_command_line() -> None:
    script = "import sys, nodesmith_forwarder.__main__; print('\\n'.join(sys.modules))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"botocore", "nodesmith", "urllib3"} <= loaded
    assert not loaded & {"aws_lambda_powertools", "kubernetes", "moto", "nodesmith_cli", "rich", "typer"}
