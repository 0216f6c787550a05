"""Services in processes of their own, as the fault tests have them."""

from tests.faults.conftest import services  # noqa: F401
