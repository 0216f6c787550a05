"""The small app of the tests of the edge, as a service. Arguments: `hang` or `fail`."""

import asyncio
import contextlib
import sys

from app.http.edge import server as serving
from app.settings import load_settings
from domain.errors import ConfigError
from tests.app.http.edge_support import edge_app

if "hang" in sys.argv:
    serving.STOP_SECONDS = 1
settings = load_settings()
app = edge_app(settings, raising=RuntimeError("S3cretMarker"))


@contextlib.asynccontextmanager
async def lifespan(app):
    if "fail" in sys.argv:
        raise ConfigError("Set this to that.")
    yield
    if "hang" in sys.argv:
        await asyncio.sleep(60)


app.router.lifespan_context = lifespan
try:
    sys.exit(serving.serve(app, settings, app.refused))
except ConfigError as error:
    sys.exit(f"refused: {error}")
