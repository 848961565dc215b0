"""One connection of the load client: a plain non-blocking socket that knows when the kernel got its bytes."""

import errno
import socket
import ssl
from dataclasses import dataclass

from trtgate.errors import UsageError
from trtgate.loads.base import Target
from trtgate.loads.clock import ANCILLARY_BYTES, Clock, ask_for_stamps
from trtgate.loads.payload import split_url

_READ_BYTES = 65_536
_PROBE_S = 2.0

Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

_ERRORS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.ETIMEDOUT: "timeout",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files",
    errno.EADDRNOTAVAIL: "no free port",
}


class LineError(Exception):
    """A connection that failed; the message is the error of the answer."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, resolved once for the whole run."""

    family: socket.AddressFamily
    address: Address
    tls: ssl.SSLContext | None
    host: str


def resolve(target: Target) -> Endpoint:
    """Find the address of a target; `UsageError` where the name is unknown or the authorities unreadable."""
    split = split_url(target)
    host = split.hostname or ""
    port = split.port or (443 if split.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = f"host `{host}` of `{target.url}` is unknown: {error.strerror}"
        raise UsageError(reason, "check the name") from error
    places = [(family, address) for family, _, _, _, address in found]
    # `localhost` is two addresses, of which a server often serves one.
    family, address = (
        next((one for one in places if _accepts(*one)), places[0]) if len(places) > 1 else places[0]
    )
    return Endpoint(family, address, _context(target) if split.scheme == "https" else None, host)


def _accepts(family: socket.AddressFamily, address: Address) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        return probe.connect_ex(address) == 0


def _context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.verify if isinstance(target.verify, str) else None)
    except OSError as error:
        raise UsageError(f"`{target.verify}` holds no certificates", "expected a file in PEM form") from error
    if target.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Line:
    """A connection without TLS; subclassed with it. All calls return at once."""

    __slots__ = (
        "_clock",
        "_connected",
        "_opened_s",
        "_out",
        "_socket",
        "connect_s",
        "expires_s",
        "fd",
        "ready",
    )

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._clock = clock
        self._out = memoryview(b"")
        self._connected = False
        self.ready = False
        self._opened_s = clock.now()
        self.expires_s = float("inf")
        self.connect_s = float("nan")
        try:
            self._socket = socket.socket(endpoint.family, socket.SOCK_STREAM)
        except OSError as error:
            raise LineError(_name(error.errno)) from error
        self.fd = self._socket.fileno()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(self._socket)
        code = self._socket.connect_ex(endpoint.address)
        if code not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise LineError(_name(code))

    @property
    def blocked(self) -> bool:
        """Whether the line waits until it can write."""
        return not self._connected or len(self._out) > 0

    def advance(self) -> None:
        """The socket became writable: finish connecting, then send what waits."""
        if not self._connected:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise LineError(_name(code))
            self._connected = True
            self._greet()
        self._flush()

    def send(self, data: bytes) -> None:
        """Send now what the kernel takes, the rest when `advance` is called; the line must be ready."""
        self._push(data)

    def read(self) -> tuple[bytes, float | None] | None:
        """What has arrived, empty at the end, and the time when the kernel got the last of it, if it says so.

        `None` where nothing has; raises `LineError` where the connection failed.
        """
        try:
            data, control, _, _ = self._socket.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            raise LineError(_name(error.errno)) from error
        return data, self._clock.arrival(control)

    def close(self) -> None:
        """Close the socket; a second call does nothing."""
        self._socket.close()

    def _greet(self) -> None:
        self.ready = True
        self.connect_s = self._clock.now() - self._opened_s

    def _push(self, data: bytes) -> None:
        self._out = memoryview(bytes(self._out) + data) if len(self._out) else memoryview(data)
        self._flush()

    def _flush(self) -> None:
        try:
            while len(self._out):
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise LineError(_name(error.errno)) from error


def _name(code: int | None) -> str:
    """The short name of a failed system call, as answers carry it."""
    return _ERRORS.get(code or 0) or errno.errorcode.get(code or 0, "failed").lower()
