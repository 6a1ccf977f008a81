"""What the tests here and in backends/ share."""

pytest_plugins = ["tests.plugin", "tests.servers.fixtures"]
