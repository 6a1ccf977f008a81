"""Leases in Redis or Valkey: the lock service behind `locks="redis://…"`."""

from tapstore_redis.bell import Bell
from tapstore_redis.opening import open_bell, open_service
from tapstore_redis.service import RedisLockService

__all__ = ["Bell", "RedisLockService", "open_bell", "open_service"]
