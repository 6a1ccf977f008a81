"""What `tapstore doctor` is told of a bucket: large objects, versions, lifecycle.

Only looks, but for a multipart upload that is taken back at once.  Many servers lack parts of this,
and many users may not look at it: that is a note, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tapstore.errors import TapstoreError
from tapstore.types import Finding
from tapstore_s3.refusal import Refusal

Send = Callable[..., dict[str, Any]]

_ABORT_DAYS = "AbortIncompleteMultipartUpload"


def large_objects(part_bytes: int, kept: Callable[[], bool]) -> Finding:
    """Whether what goes in several requests can be created exclusively."""
    name = "large-objects"
    try:
        if kept():
            return Finding(name, "ok", "the condition of a create holds for multipart uploads")
    except TapstoreError as exc:
        return Finding(
            name,
            "warning",
            f"a multipart upload could not be made: {exc}",
            f"artifacts larger than {part_bytes >> 20} MiB cannot be published",
        )
    return Finding(
        name,
        "note",
        "the server ignores If-None-Match when a multipart upload is completed",
        f"artifacts larger than {part_bytes >> 20} MiB are written under names of their own; "
        "nothing is lost",
    )


def uploads(send: Send, base: str) -> Finding:
    """Whether uploads that died can be found and removed."""
    name = "unfinished-uploads"
    try:
        page = send("list_multipart_uploads", Prefix=base)
    except Refusal as exc:
        return Finding(
            name,
            "note",
            _denied(exc, "they cannot be listed", "s3:ListBucketMultipartUploads"),
            "`gc` cannot remove what uploads that died left; it is paid for and not seen",
            "allow s3:ListBucketMultipartUploads to whoever runs `gc`, or have a lifecycle rule "
            "abort them",
        )
    count = len(page.get("Uploads", ()))
    if not count:
        return Finding(name, "ok", "none", values={"uploads": 0})
    more = "1,000 or more" if page.get("IsTruncated") else str(count)
    return Finding(
        name,
        "note",
        f"{more} under way or left behind",
        "each is paid for and not seen",
        "`tapstore gc` shows the old ones",
        {"uploads": count},
    )


def versioning(send: Send) -> Finding:
    """Whether the bucket keeps old versions, and what removes them."""
    name = "versioning"
    try:
        status = send("get_bucket_versioning").get("Status")
    except Refusal as exc:
        return Finding(
            name,
            "ok",
            _denied(exc, "not visible", "s3:GetBucketVersioning"),
        )
    if status != "Enabled":
        return Finding(
            name, "ok", "off" if status is None else "suspended", values={"status": status}
        )
    rules, readable = _rules(send)
    if any(_expires_versions(rule) for rule in rules):
        return Finding(name, "ok", "on; a lifecycle rule expires old versions",
                       values={"status": status})  # fmt: skip
    return Finding(
        name,
        "warning" if readable else "note",
        "on" if readable else "on; the lifecycle rules are not visible",
        "each commit, heartbeat and lease leaves an old version that is paid for: thousands a day",
        "a lifecycle rule with NoncurrentVersionExpiration (docs/how-to/bucket-policies.md)",
        {"status": status},
    )


def lifecycle(send: Send, base: str) -> Finding:
    """Whether a rule removes what a session still needs."""
    name = "lifecycle"
    rules, readable = _rules(send)
    if not readable:
        return Finding(name, "ok", "not visible (s3:GetLifecycleConfiguration), or not offered")
    harmful = [rule for rule in rules if _expires_objects(rule) and _meets(rule, base)]
    if harmful:
        names = ", ".join(str(rule.get("ID") or "without a name") for rule in harmful)
        return Finding(
            name,
            "warning",
            f"objects here are removed by age: {names}",
            "state that is old is not state that is unneeded: sessions lose history and artifacts",
            "limit the rule to another prefix, or to NoncurrentVersionExpiration",
            {"rules": len(rules)},
        )
    aborts = any(_ABORT_DAYS in rule for rule in rules)
    return Finding(
        name,
        "ok",
        f"{len(rules)} rules, none removes objects here"
        + ("; uploads that died are aborted" if aborts else "")
        if rules
        else "no rules",
        values={"rules": len(rules)},
    )


def all_of(send: Send, base: str, part_bytes: int, kept: Callable[[], bool]) -> Iterator[Finding]:
    yield large_objects(part_bytes, kept)
    yield uploads(send, base)
    yield versioning(send)
    yield lifecycle(send, base)


def _rules(send: Send) -> tuple[list[dict[str, Any]], bool]:
    """The rules that are in force, and whether they could be read."""
    try:
        rules = send("get_bucket_lifecycle_configuration").get("Rules", [])
    except Refusal as exc:
        return [], exc.code == "NoSuchLifecycleConfiguration"
    return [rule for rule in rules if rule.get("Status") == "Enabled"], True


def _expires_versions(rule: dict[str, Any]) -> bool:
    return "NoncurrentVersionExpiration" in rule


def _expires_objects(rule: dict[str, Any]) -> bool:
    expiration = rule.get("Expiration", {})
    return "Days" in expiration or "Date" in expiration


def _meets(rule: dict[str, Any], base: str) -> bool:
    """Whether the rule is about anything below `base`."""
    where = rule.get("Filter") or {}
    prefix = where.get("Prefix", where.get("And", {}).get("Prefix", rule.get("Prefix", "")))
    return bool(base.startswith(prefix) or prefix.startswith(base))


def _denied(refusal: Refusal, otherwise: str, action: str) -> str:
    return f"{otherwise} ({action})" if refusal.status == 403 else f"{otherwise}: {refusal.text}"
