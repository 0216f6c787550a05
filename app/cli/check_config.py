"""`check-config`: checks the settings and the files that they name, and shows what is in force."""

import argparse
import json
import sys

from app.cli.options import settings_of
from app.config_report import ANY, ConfigReport, report_on
from app.http.edge.api_keys import load_keys
from app.http.edge.credentials import open_credentials
from app.http.edge.unix_socket import check_path
from app.models.known_models import KnownModels
from app.operations.audit import AUDIT_SETTING
from app.operations.export import EXPORT_SETTING
from app.operations.line_writer import check_target
from app.operations.policy_file import load_policies
from app.operations.storage_keys import load_storage_keys
from app.operations.tracing import trace_target
from app.settings import PREFIX, Settings
from content.tokens import load_encoding
from domain.errors import ConfigError
from storage import check_sealing, check_urls


def run(options: argparse.Namespace) -> int:
    """Raises ConfigError."""
    shown = report(settings_of(options), options.tool or ANY, options.model)
    asked = options.tool is not None or options.model is not None
    if options.json:
        print(json.dumps(shown.as_dict(), indent=2, ensure_ascii=False))
    else:
        print(shown.as_text(with_settings=not asked))
    if (fault := trace_target().fault) is not None:
        print(f"spillgate: warning: {fault}", file=sys.stderr)
    return 0


def report(settings: Settings, tool: str = ANY, model: str | None = None) -> ConfigReport:
    """Raises ConfigError for what is not valid."""
    load_encoding(settings.encoding)
    if settings.api_keys_file is not None:
        for fault in load_keys(settings.api_keys_file).faults:
            raise ConfigError(f"{PREFIX}API_KEYS_FILE, {fault}")
    open_credentials(settings)
    if settings.storage_key_file is not None:
        for fault in load_storage_keys(settings.storage_key_file).faults:
            raise ConfigError(f"{PREFIX}STORAGE_KEY_FILE, {fault}")
        check_sealing()
    if settings.accounting_export is not None:
        check_target(settings.accounting_export, EXPORT_SETTING)
    if settings.audit is not None:
        check_target(settings.audit, AUDIT_SETTING)
    check_urls(settings.store, settings.ledger)
    if settings.uds is not None:
        check_path(settings.uds.absolute())
    policies = load_policies(settings)
    KnownModels(settings, policies).configs()
    return report_on(settings, policies, tool, model, (*policies.named_tenants, ANY))
