"""The command lines of the programs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from nodesmith_local.controlplane.ports import Ports

FAKE_NODES = "kwok.x-k8s.io/node=fake"
_SERVICES = {"ipv4": "10.96.0.0/16", "ipv6": "fd12:3456:789a::/108"}
_PODS = {"ipv4": "10.244.0.0/16", "ipv6": "fd34::/64"}
_ADVERTISED = {"ipv4": "192.0.2.2", "ipv6": "2001:db8::2"}
"""The endpoint of the Service `kubernetes` by IP family; nothing runs inside the cluster that could use it."""
_NODE_ADDRESSES = {"ipv4": "127.0.0.1", "ipv6": "::1"}


def etcd(folder: Path, ports: Ports) -> list[str]:
    """Return etcd's command line. It does not fsync, since its data need not survive a crash of the machine."""
    clients, peers = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.peers}"
    return [
        f"--data-dir={folder}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={4 << 30}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        # As kubeadm sets it. Otherwise watches of kinds that do not change get no bookmarks for ten minutes.
        "--watch-progress-notify-interval=5s",
    ]


def apiserver(folder: Path, ports: Ports, ip_family: str = "ipv4") -> list[str]:
    """Return kube-apiserver's command line, with the authorization modes of EKS.

    `ip_family` is that of Services; programs connect by IPv4 in any case. The webhook authenticates unknown tokens; its
    answers are cached for one second.
    """
    return [
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        f"--secure-port={ports.apiserver}",
        f"--advertise-address={_ADVERTISED[ip_family]}",
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        f"--service-cluster-ip-range={_SERVICES[ip_family]}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--authentication-token-webhook-config-file={folder / 'webhook.kubeconfig'}",
        "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-cache-ttl=1s",
        f"--requestheader-client-ca-file={folder / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        *_serving(folder),
    ]


def controllers(folder: Path, ports: Ports) -> list[str]:
    """Return kube-controller-manager's command line, with all default controllers, certificate signing included."""
    return [
        f"--secure-port={ports.controllers}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={folder / 'accounts.key'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        f"--cluster-signing-cert-file={folder / 'ca.crt'}",
        f"--cluster-signing-key-file={folder / 'ca.key'}",
        *_client(folder / "controllers.kubeconfig"),
        *_serving(folder),
    ]


def scheduler(folder: Path, ports: Ports) -> list[str]:
    """Return kube-scheduler's command line, with the default profile."""
    return [f"--secure-port={ports.scheduler}", *_client(folder / "scheduler.kubeconfig"), *_serving(folder)]


def kwok(folder: Path, ports: Ports, ip_family: str = "ipv4") -> list[str]:
    """Return kwok's command line: it runs nodes with the label `FAKE_NODES` and their pods by stages.yaml.

    Nodes are selected by label because kwok overlooks nodes that get the annotation after their creation.
    """
    return [
        f"--kubeconfig={folder / 'kwok.kubeconfig'}",
        f"--config={files(__package__) / 'stages.yaml'}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-label-selector={FAKE_NODES}",
        "--node-lease-duration-seconds=40",
        f"--cidr={_PODS[ip_family]}",
        f"--node-ip={_NODE_ADDRESSES[ip_family]}",
        f"--server-address=127.0.0.1:{ports.kwok}",
    ]


def with_groups_of_pods() -> list[str]:
    """Return the arguments with which Kubernetes' programs serve PodGroups, an alpha API, and bind by them."""
    return ["--feature-gates=GenericWorkload=true,GangScheduling=true"]


def serving_groups_of_pods() -> list[str]:
    """Return the same arguments for kube-apiserver."""
    return [*with_groups_of_pods(), "--runtime-config=scheduling.k8s.io/v1alpha2=true"]


def _serving(folder: Path) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--tls-cert-file={folder / 'serving.crt'}",
        f"--tls-private-key-file={folder / 'serving.key'}",
    ]


def _client(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",  # it is the only candidate
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
