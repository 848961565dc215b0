"""A connection with TLS: the library does the records, the kernel still stamps the arrival of their bytes."""

import ssl

from trtgate.loads.client import Endpoint, Line, LineError
from trtgate.loads.clock import Clock

_PLAIN_BYTES = 65_536


class TlsLine(Line):
    """As `Line`, through `ssl.SSLObject`; ready, and `connect_s` known, once the handshake is done."""

    __slots__ = ("_incoming", "_outgoing", "_tls")

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        super().__init__(endpoint, clock)
        assert endpoint.tls is not None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = endpoint.tls.wrap_bio(self._incoming, self._outgoing, server_hostname=endpoint.host)

    def send(self, data: bytes) -> None:
        """Encrypt and send; the line must be ready."""
        self._tls.write(data)
        self._push(self._outgoing.read())

    def read(self) -> tuple[bytes, float | None] | None:
        """As `Line.read`, decrypted."""
        got = super().read()
        if got is None or not got[0]:
            return got
        data, stamp_s = got
        self._incoming.write(data)
        if not self.ready:
            self._greet()
        plain = self._decrypt() if self.ready else None
        return None if plain is None else (plain, stamp_s)

    def _greet(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push(self._outgoing.read())
            return
        except ssl.SSLError as error:
            raise LineError("tls") from error
        self._push(self._outgoing.read())
        super()._greet()

    def _decrypt(self) -> bytes | None:
        parts = []
        try:
            while part := self._tls.read(_PLAIN_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            if not parts:
                return None
        except ssl.SSLZeroReturnError:
            pass
        except ssl.SSLError as error:
            raise LineError("tls") from error
        return b"".join(parts)
