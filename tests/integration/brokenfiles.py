"""Broken files, each with its expected message and line."""

from __future__ import annotations

import gzip
from typing import NamedTuple

MIB = 2**20
POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - key: karpenter.sh/capacity-type
          operator: In
          values: [spot]
  limits: {cpu: 100}
  weight: 10
"""
CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {team: blue}}]
  securityGroupSelectorTerms: [{tags: {team: blue}}]
"""
OLD = """\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: default}
spec:
  providerRef: {name: default}
  ttlSecondsAfterEmpty: 30
  requirements:
    - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: a
          image: busybox
          resources: {requests: {cpu: "1"}}
"""
BUDGET = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 2
  selector: {matchLabels: {app: web}}
"""
LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


class Broken(NamedTuple):
    """A file. `line` is None if the error has no single line; `is_error` is False for a warning."""

    text: str | bytes
    words: str
    line: int | None = None
    is_error: bool = True


def _pool(old: str, new: str) -> str:
    assert old in POOL, old
    return POOL.replace(old, new)


BROKEN = {
    # not YAML, or too much of it
    "tab": Broken("a:\n\tb: c\n", "not YAML: found character that cannot start any token", 2),
    "open bracket": Broken("kind: [\n", "not YAML"),
    "open quote": Broken('kind: "NodePool\n', "not YAML"),
    "wrong indentation": Broken(_pool("  weight: 10", "   weight: 10"), "not YAML", 14),
    "colon in a value": Broken("kind: a: b\n", "not YAML: mapping values are not allowed", 1),
    "helm template": Broken("kind: {{ .Values.kind }}\n", "render it first", 1),
    "key given twice": Broken(POOL + "spec: {}\n", "spec: is given twice", 15),
    "inner key given twice": Broken(
        _pool("weight: 10", "weight: 10\n  weight: 20"), "spec.weight: is given twice", 15
    ),
    "unknown anchor": Broken("kind: *nobody\n", "not YAML: found undefined alias", 1),
    "anchor in itself": Broken("kind: &a [*a]\n", "is an alias inside its own anchor", 1),
    "billion laughs": Broken(LAUGHS, "aliases expand to more than 100000 values"),
    "billion merges": Broken(MERGES, "aliases expand to more than 100000 values"),
    "brackets": Broken("[" * 10 * MIB, "nested too deeply", 1),
    "maps in maps": Broken("{a: " * (MIB // 2), "not JSON", 1),
    "dashes": Broken("- " * 5 * MIB, "nested too deeply", 1),
    "ten megabytes of a": Broken("a" * 10 * MIB, "expected an object, found 'aaa", 1),
    "ten megabytes of items": Broken(
        "x: [" + "a," * 5 * MIB + "]", "more than 100000 values in one document", 1
    ),
    "ten megabytes of documents": Broken("---\n{}\n" * (10 * MIB // 7), "more than 5,000 objects and errors"),
    "zeroes": Broken(b"\0" * 10 * MIB, "not YAML"),
    "random bytes": Broken(bytes(range(256)) * 4096, "not UTF-8 text: byte 128 is 0x80"),
    "utf-16": Broken(POOL.encode("utf-16"), "not UTF-8 text: byte 0 is 0xff"),
    "half a gzip": Broken(b"\x1f\x8b\x08\0\0\0\0\0\0\xff", "Compressed file ended before"),
    "hundreds of megabytes in one": Broken(
        gzip.compress(b"\0" * MIB) * 256, "more than 67,108,864 bytes when uncompressed"
    ),
    "broken json": Broken('{"apiVersion": "v1" "kind": 1}\n', "not YAML", 1),
    "python": Broken(
        "kind: !!python/object/apply:os.system [ls]\n", "not YAML: could not determine a constructor", 1
    ),
    # not an object
    "empty": Broken("", "is empty"),
    "comments only": Broken("# nothing\n", "contains no object"),
    "a list": Broken("- a\n- b\n", "expected an object, found", 1),
    "no kind": Broken("apiVersion: v1\nmetadata: {name: a}\n", "kind: is missing", 1),
    "no name": Broken("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "metadata.name: is missing", 3),
    "items of a list": Broken("apiVersion: v1\nkind: List\nitems: {a: b}\n", "must be a list of objects", 3),
    "unknown kind": Broken(
        "apiVersion: apps/v1\nkind: Deploymnet\nmetadata: {name: a}\n", "did you mean 'Deployment'?", 2
    ),
    "unknown kind of karpenter": Broken(
        POOL.replace("kind: NodePool", "kind: Nodepool"), "did you mean 'NodePool'?", 2
    ),
    "wrong version": Broken(
        _pool("sh/v1\n", "sh/v2\n"), "a NodePool is in karpenter.sh/v1 or karpenter.sh/v1beta1", 1
    ),
    "wrong group": Broken(
        DEPLOYMENT.replace("apps/v1", "extensions/v1beta1"), "a Deployment is in apps/v1", 1
    ),
    # of the wrong shape
    "misspelt field": Broken(
        _pool("limits:", "limit:"), "an unknown field, which is ignored: did you mean 'limits'?", 13, False
    ),
    "misspelt field of a pod": Broken(
        DEPLOYMENT.replace("      containers", "      nodeSelektor: {a: b}\n      containers"),
        "spec.template.spec.nodeSelektor: is an unknown field, which is ignored: did you mean 'nodeSelector'?",
        10,
        False,
    ),
    "misspelt field of a container": Broken(
        DEPLOYMENT.replace("resources: {requests", "resources: {request"),
        "did you mean 'requests'?",
        13,
        False,
    ),
    "name that no object can have": Broken(
        _pool("name: default\nspec", "name: For All\nspec"),
        'metadata.name: Invalid value: "For All": a lowercase RFC 1123 subdomain must',
        4,
    ),
    "misspelt required field": Broken(_pool("requirements:", "requirement:"), "requirements: is missing", 7),
    "text for a number": Broken(
        _pool("weight: 10", 'weight: "10"'), "must be a whole number, without quotes", 14
    ),
    "number for text": Broken(_pool("[spot]", "[1]"), "must be text, so put it in quotes", 12),
    "out of range": Broken(_pool("weight: 10", "weight: 101"), "must be at least 1 and at most 100", 14),
    "no quantity": Broken(_pool("cpu: 100", "cpu: 100 cores"), "must be a quantity", 13),
    "misspelt operator": Broken(_pool("operator: In", "operator: in"), "did you mean 'In'?", 11),
    "misspelt value": Broken(_pool("[spot]", "[sppot]"), "use one of reserved, spot, on-demand", 12),
    "reserved label": Broken(
        _pool("karpenter.sh/capacity-type", "karpenter.sh/capcity-type"),
        "the domain karpenter.sh is reserved",
        10,
    ),
    "bound without a number": Broken(
        _pool("operator: In", "operator: Gt"), "need exactly one value, an integer", 12
    ),
    "role and profile": Broken(
        CLASS.replace("role: nodes", "role: a\n  instanceProfile: b"),
        "exactly one of role and instanceProfile",
    ),
    "old field misspelt": Broken(
        OLD.replace("ttlSecondsAfterEmpty", "ttlSecondAfterEmpty"),
        "did you mean 'ttlSecondsAfterEmpty'?",
        6,
        False,
    ),
    "old and undecided": Broken(OLD + "  consolidation: {enabled: true}\n", "leave out one of the two", 6),
    "pod of the wrong shape": Broken(
        DEPLOYMENT.replace('cpu: "1"', "cpu: [1]"), "a list is not a quantity", 13
    ),
    # together
    "missing class": Broken(
        f"{POOL}---\n{CLASS.replace('name: default', 'name: defaults')}", "did you mean 'defaults'?", 8
    ),
    "no type": Broken(
        _pool(
            "        - key",
            "        - {key: kubernetes.io/arch, operator: In, values: [s390x]}\n        - key",
        ),
        "kubernetes.io/arch In [s390x] rules out",
        9,
    ),
    "small limit": Broken(_pool("cpu: 100", "cpu: 500m"), "allows no node: its smallest instance type", 13),
    "pod too big": Broken(
        POOL + "---\n" + DEPLOYMENT.replace('"1"', '"9999"'), "no NodePool can host its pods", 16
    ),
    "equal pools": Broken(
        POOL + "---\n" + POOL.replace("name: default\nspec", "name: other\nspec"),
        "accepts the same pods as NodePool/default",
        29,
        False,
    ),
    "more pools than anybody has": Broken(
        "---\n".join(POOL.replace("name: default\nspec", f"name: p{n}\nspec") for n in range(101)),
        "are checked for at most 100",
        1,
        False,
    ),
    "kubelet field that the image family lacks": Broken(
        CLASS.replace("al2023@latest", "bottlerocket@latest") + "  kubelet:\n    podsPerCore: 4\n",
        "cannot launch nodes: Bottlerocket has no such setting: use maxPods",
        10,
    ),
    "Windows NodePool without a taint": Broken(
        POOL + "---\n" + CLASS.replace("al2023@latest", "windows2022@latest"),
        "lets kube-scheduler place Linux pods on Windows nodes",
        7,
        False,
    ),
    "TOML with a table twice": Broken(
        CLASS.replace("al2023@latest", "bottlerocket@latest")
        + "  userData: |\n    [settings.motd]\n\n    [settings.motd]\n",
        "cannot launch nodes: line 3: it is not TOML: Cannot declare",
        12,
    ),
    "PowerShell that ends too early": Broken(
        CLASS.replace("al2023@latest", "windows2022@latest") + "  userData: |\n    dir\n    </powershell>\n",
        "cannot launch nodes: line 2: </powershell> cannot stand here",
        11,
    ),
    "MIME part that nothing reads": Broken(
        f"{CLASS}  userData: |\n    MIME-Version: 1.0\n    Content-Type: text/x-shelscript\n\n    ls\n",
        "did you mean 'text/x-shellscript'?",
        11,
    ),
    "NodeConfig that is not YAML": Broken(
        f"{CLASS}  userData: |\n    apiVersion: node.eks.aws/v1alpha1\n    kind: NodeConfig\n    spec: [\n",
        "cannot launch nodes: line 4: the NodeConfig is not YAML",
        13,
    ),
    "tag of its own": Broken(
        f"{CLASS}  tags: {{'aws:owner': me}}\n", "begins with aws:, which AWS keeps for itself", 9
    ),
    "volume with more iops than its size allows": Broken(
        f"{CLASS}  blockDeviceMappings:\n    - deviceName: /dev/xvda\n"
        "      ebs: {volumeType: gp3, volumeSize: 20Gi, iops: 20000}\n",
        "is 20,000, but gp3 volumes of 20 GiB have 10,000 at most (500 per GiB)",
        11,
    ),
    "two volumes of one name": Broken(
        f"{CLASS}  blockDeviceMappings:\n    - {{deviceName: /dev/xvda, ebs: {{volumeSize: 20Gi}}}}\n"
        "    - {deviceName: /dev/xvda, ebs: {volumeSize: 30Gi}}\n",
        "is /dev/xvda, as in spec.blockDeviceMappings[0]",
        11,
    ),
    "DNS servers of two families": Broken(
        f"{CLASS}  kubelet: {{clusterDNS: [10.100.0.10, 'fd00::a']}}\n",
        "is 'fd00::a', an IPv6 address, but the cluster is IPv4",
        9,
    ),
    "user data in a bad envelope": Broken(
        f"{CLASS}  userData: |\n    MIME-Version: 1.0\n    Content-Type: multipart/mixed\n\n    a\n",
        "cannot launch nodes",
        9,
    ),
    "shell variable": Broken(
        CLASS.replace("role: nodes", 'role: "KarpenterNodeRole-${CLUSTER_NAME}"'),
        "contains the unreplaced placeholder ${CLUSTER_NAME}",
        5,
        False,
    ),
    "budget of all": Broken(
        f"{DEPLOYMENT}---\n{BUDGET}", "is 2 of 2 pods: no pod can ever be evicted", 19, False
    ),
    "given twice": Broken(f"{CLASS}---\n{CLASS}", "is already defined in", 12, False),
}
