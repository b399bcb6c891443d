"""A TCP proxy before PostgreSQL that loses what it is told to lose.

It passes everything on until the client sends something that holds a given text. What then happens is what ``how``
says, once:

- ``before``: both connections are cut, and the server never sees it;
- ``after``: the server gets it and answers, and both connections are cut instead of passing that on;
- ``swallow``: the same, but the client's connection stays open, and it hears nothing;
- ``hold``: the server gets what was sent before this text, and nothing more; both connections stay open;
- ``late``: the same, but the client's connection is cut, and the server gets the rest when `deliver` is called.

It can also cut all connections, refuse new ones, and stall: then it takes what is sent and passes nothing on, until it
is told to.
"""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Listens on a port of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._text: bytes | None = None
        self._how = ""
        self._open: set[socket.socket] = set()
        self.struck = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._delivers = threading.Event()
        self.refuses = False  # whether new connections are closed at once
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def lose(self, text: bytes, how: str) -> None:
        """Lose the next message of a client that holds this text."""
        with self._lock:
            self.struck.clear()
            self._delivers.clear()
            self._text, self._how = text, how

    def cut(self) -> None:
        """Cut all connections."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Pass nothing on, in either direction."""
        self._flows.clear()

    def go_on(self) -> None:
        """Pass on again, also what was held back."""
        self._flows.set()

    def deliver(self) -> None:
        """Let the server have what comes ``late``."""
        self._delivers.set()

    def close(self) -> None:
        self.go_on()
        self.deliver()
        self._end(self._listener)  # whoever waits there is told
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            self._open |= {client, server}
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            silence: list[str] = []
            back = threading.Thread(target=self._back, args=(server, client, silence), daemon=True)
            back.start()
            with suppress(OSError):
                while data := client.recv(65536):
                    self._flows.wait()
                    how, place = self._strikes(data)
                    if how == "before":
                        self.struck.set()
                        break
                    if how in ("hold", "late"):
                        self._hold_back(client, server, data[:place], data[place:], how)
                        break
                    silence += [how] if how else []
                    server.sendall(data)
            self._end(client, server)
            back.join(5)
            self._open -= {client, server}

    def _hold_back(self, client: socket.socket, server: socket.socket, now: bytes, rest: bytes, how: str) -> None:
        server.sendall(now)
        if how == "late":
            self._end(client)
        self.struck.set()
        self._delivers.wait()
        if how == "late":
            server.sendall(rest)
            server.shutdown(socket.SHUT_WR)  # it answers, and ends by itself
            while server.recv(65536):
                pass

    def _end(self, *both: socket.socket) -> None:
        for one in both:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _strikes(self, data: bytes) -> tuple[str, int]:
        """How to lose this, if so, and where the text stands in it."""
        with self._lock:
            if self._text is None or self._text not in data:
                return "", 0
            place, self._text = data.index(self._text), None
            return self._how, place

    def _back(self, server: socket.socket, client: socket.socket, silence: list[str]) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                self._flows.wait()
                if not silence:
                    client.sendall(data)
                    continue
                self.struck.set()
                if silence[0] == "after":
                    break
        if silence != ["swallow"]:
            self._end(client, server)
