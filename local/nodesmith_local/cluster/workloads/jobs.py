"""Jobs: run pods until enough of them have succeeded."""

from __future__ import annotations

from datetime import timedelta

from nodesmith_formats.kubernetes.objects import (
    Object,
    View,
    dig,
    is_true,
    name_of,
    parse_timestamp,
    timestamp,
)
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.cluster.podfacts import is_active, is_ready
from nodesmith_local.cluster.records import record, with_condition
from nodesmith_local.cluster.workloads.replicas import (
    PodOwner,
    create_pod,
    delete_pod,
    pod_from,
    set_status,
    surplus,
)

_KIND = "jobs.batch"
_INDEX = "batch.kubernetes.io/job-completion-index"


class Jobs(PodOwner):
    """Keeps `parallelism` pods running until `completions` have succeeded or too many have failed."""

    kind, resource = "Job", _KIND

    def reconcile(self, key: Key) -> bool:
        """Advance one Job."""
        job = self.mirrors[_KIND].objects.get(key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return False
        if is_true(job, "Complete") or is_true(job, "Failed"):
            return self._expire(key, job)
        pods = self.mirrors.pods_of(job)
        active = [pod for pod in pods if is_active(pod)]
        succeeded = [pod for pod in pods if dig(pod, "status", "phase") == "Succeeded"]
        failed = [pod for pod in pods if dig(pod, "status", "phase") == "Failed"]
        ending = self._ending(job, active, succeeded, failed)
        desired = 0 if ending or job["spec"].get("suspend") else _wanted(job, len(active), len(succeeded))
        has_adjusted = self._adjust(job, active, succeeded, desired)
        counts = {"succeeded": len(succeeded), "failed": len(failed), "active": len(active)}
        return (
            self._write_status(job, {**counts, "ready": sum(map(is_ready, active))}, ending) or has_adjusted
        )

    def _ending(
        self, job: View, active: list[View], succeeded: list[View], failed: list[View]
    ) -> Object | None:
        """Return the condition with which the Job ends now, or None."""
        completions = job["spec"].get("completions")
        enough = len(succeeded) >= completions if completions is not None else bool(succeeded and not active)
        if enough:
            success_message = "Reached expected number of succeeded pods"
            return {
                "type": "Complete",
                "status": "True",
                "reason": "CompletionsReached",
                "message": success_message,
            }
        if len(failed) > int(job["spec"].get("backoffLimit", 6)):
            message = "Job has reached the specified backoff limit"
            return {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": message}
        started = parse_timestamp(dig(job, "status", "startTime"))
        limit = job["spec"].get("activeDeadlineSeconds")
        if started and limit is not None:
            end = started + timedelta(seconds=limit)
            if self.store.now() >= end:
                message = "Job was active longer than specified deadline"
                return {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": message}
            self.look_again((job["metadata"]["namespace"], name_of(job)), end)
        return None

    def _adjust(self, job: View, active: list[View], succeeded: list[View], desired: int) -> bool:
        taken_indexes = {_index(pod) for pod in (*active, *succeeded)}
        free = iter(
            index for index in range(len(taken_indexes) + desired + 1) if str(index) not in taken_indexes
        )
        missing = max(0, desired - len(active))
        created = [create_pod(self.store, job, _pod(job, next(free))) for _ in range(missing)]
        doomed = surplus(active, len(active) - desired) if len(active) > desired else []
        for pod in doomed:
            delete_pod(self.store, job, pod)
        return any(created) or bool(doomed)

    def _write_status(self, job: View, counts: Object, ending: Object | None) -> bool:
        now = timestamp(self.store.now())
        status: Object = {"startTime": dig(job, "status", "startTime") or now, **counts}
        if ending:
            status["conditions"] = with_condition(job, ending, now)
            if ending["type"] == "Complete":
                status["completionTime"] = now
            failed = ending["type"] == "Failed"
            reason = ending["reason"] if failed else "Completed"
            record(self.store, job, "job-controller", reason, ending["message"], warning=failed)
        return set_status(self.store, _KIND, job, status)

    def _expire(self, key: Key, job: View) -> bool:
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        finished: Object = next(
            (
                condition
                for condition in dig(job, "status", "conditions") or ()
                if condition.get("status") == "True"
            ),
            {},
        )
        since = parse_timestamp(finished.get("lastTransitionTime"))
        if seconds is None or since is None:
            return False
        end = since + timedelta(seconds=seconds)
        if self.store.now() < end:
            self.look_again(key, end)
            return False
        self.store.delete(_KIND, key[1], key[0])
        return True


def _wanted(job: View, active: int, succeeded: int) -> int:
    parallelism = int(job["spec"].get("parallelism", 1))
    completions = job["spec"].get("completions")
    if completions is None:
        return active if succeeded else parallelism
    return min(parallelism, int(completions) - succeeded)


def _pod(job: View, index: int) -> Object:
    pod = pod_from(job, job["spec"]["template"])
    if job["spec"].get("completionMode") == "Indexed":
        metadata = pod["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _INDEX: str(index)}
        metadata["labels"] = {**metadata["labels"], _INDEX: str(index)}
    return pod


def _index(pod: View) -> str:
    return str(dig(pod, "metadata", "annotations", _INDEX) or name_of(pod))
