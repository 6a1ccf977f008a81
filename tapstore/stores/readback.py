"""Finds out what became of a conditional write whose reply was lost, by reading the key back.

A client library that repeats a request whose reply was lost fails against itself: the object
that is in the way is its own.  So callers put a unique write id into what they write, and bytes
that are equal to ours *are* ours.

| read back | after CREATE | after Update |
|---|---|---|
| our bytes | it succeeded | it succeeded |
| the state from before | absent: repeat the same bytes | that version: repeat the same bytes |
| anything else | unknown, or conflict if no attempt was in doubt | the same |

The last line is never more than unknown after a doubtful attempt: ours may have landed and been
replaced since.  Who knows that a name is never used twice may read it and conclude more.

Not resolved: uploads (their source may not be there twice; compare the checksum), and what
happened below a store that itself repeats silently *and* was overtaken by somebody else's write
meanwhile (only the lineage inside a document tells that).
"""

from __future__ import annotations

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ConflictError, NotFoundError, OutcomeUnknownError, StoreError
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE, OVERWRITE, GetResult, PutMode, PutResult, Update


class ReadBackStore(WrapperStore):
    """Resolves `put` and `delete`; `attempts` bounds how often the same bytes are sent."""

    def __init__(
        self,
        inner: Store,
        *,
        attempts: int = 4,
        pause_seconds: float = 0.1,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(inner)
        self._attempts = attempts
        self._pause = pause_seconds
        self._clock = clock

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        if mode is OVERWRITE:
            return self.inner.put(key, data, mode)
        expected = mode.version if isinstance(mode, Update) else None
        doubt: OutcomeUnknownError | None = None
        for attempt in range(self._attempts):
            self._pause_before(attempt)
            try:
                return self.inner.put(key, data, mode)
            except OutcomeUnknownError as exc:
                doubt = exc
                refusal: Exception = exc
            except (ConflictError, StoreError) as exc:
                refusal = exc
                if isinstance(exc, StoreError) and doubt is None:
                    raise
            found = self._read_back(key, refusal)
            if found is not None and found.data == data:
                return PutResult(version=found.info.version, modified=found.info.modified)
            if doubt is None:
                raise refusal
            if (found and found.info.version) != expected:
                break
        assert doubt is not None
        raise failures.outcome_unknown(self.url, key, "the write", doubt) from doubt

    def delete(self, key: str, *, version: str | None = None) -> None:
        doubt: OutcomeUnknownError | None = None
        for attempt in range(self._attempts):
            self._pause_before(attempt)
            try:
                return self.inner.delete(key, version=version)
            except OutcomeUnknownError as exc:
                doubt = exc
            except (ConflictError, StoreError) as exc:
                if doubt is None:
                    raise
                raise failures.outcome_unknown(self.url, key, "the deletion", exc) from doubt
        assert doubt is not None
        raise failures.outcome_unknown(self.url, key, "the deletion", doubt) from doubt

    def _pause_before(self, attempt: int) -> None:
        if attempt:
            self._clock.sleep(self._pause * 2 ** (attempt - 1))

    def _read_back(self, key: str, refusal: Exception) -> GetResult | None:
        try:
            return self.inner.get(key)
        except NotFoundError:
            return None
        except StoreError as exc:
            raise failures.outcome_unknown(self.url, key, "the write", exc) from refusal
