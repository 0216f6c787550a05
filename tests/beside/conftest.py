"""A service for all relays of a module."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.faults.service_process import Service, Services


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """It takes no body of more than 5 MiB."""
    place = tmp_path_factory.mktemp("service")
    with Services(place) as services:
        yield asyncio.run(services.start(place / "state", max_body_bytes=str(5 << 20)))


@pytest.fixture(scope="module")
def url(service: Service) -> str:
    return "http://{}:{}".format(*service.address)
