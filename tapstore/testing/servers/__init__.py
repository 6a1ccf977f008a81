"""Servers for tests, on loopback: moto made atomic, SeaweedFS and Valkey, each run from its wheel.

Each module starts one kind of server: `with moto.server() as s3: …`.  A server lives in a
temporary folder, listens on free ports of 127.0.0.1 and dies with the process that started it,
however that ends.  `ServerMissingError` says what to install.

None of this is a deployment: no server here keeps data.  Linux only.
"""
