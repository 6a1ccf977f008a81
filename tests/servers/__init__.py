"""Real servers for tests, on loopback, and what stands between them and a client.

Each module here starts one kind of server: `with moto.server() as s3: …`.  A server lives in a
temporary folder, listens on free ports of 127.0.0.1 and dies with the process that started it,
however that ends.  The fixtures of `fixtures` share one server of a kind per worker of pytest.

Those that are of use to others, too, are part of the test kit.

None of this is a deployment: no server here keeps data, or keeps anybody out.
"""

from tapstore.testing.servers import moto, seaweedfs, valkey

__all__ = ["moto", "seaweedfs", "valkey"]
