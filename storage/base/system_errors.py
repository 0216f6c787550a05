"""What failed below a driver: the name of an error of the system, of name resolution or of TLS."""

import errno
import os
import socket
import ssl


def system_fact(error: BaseException) -> str | None:
    """None for any other error. Never the text of the error, which may hold what a caller sent."""
    if isinstance(error, socket.gaierror):
        return "name resolution failed"
    # First: it is an OSError, whose number is that of OpenSSL.
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS failed"
    if isinstance(error, OSError) and (number := error.errno or 0) in errno.errorcode:
        return f"{errno.errorcode[number]} ({os.strerror(number)})"
    return None
