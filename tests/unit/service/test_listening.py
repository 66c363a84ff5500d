"""What holds a port is said: a server, a connection, or one that is closing."""

from __future__ import annotations

import socket

import pytest

from roquet.service.process.listening import cannot_listen, states_of


def refused(port: int) -> str:
    """Listen as servers do, and return what is said when the port is not to be had."""
    with pytest.raises(OSError, match="in use") as caught:
        socket.create_server(("127.0.0.1", port))
    return str(cannot_listen(f"127.0.0.1:{port}", caught.value))


def test_port_of_a_server_is_said_with_the_command_that_shows_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(port)
    assert said.startswith(f"cannot listen on 127.0.0.1:{port}: another process has this port")
    assert f"ss -ltnp 'sport = :{port}'" in said


def test_port_that_only_connections_hold_is_not_said_to_be_a_servers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        port = client.getsockname()[1]
        taken, _ = server.accept()
        assert "no server has this port, but a connection that leaves from it" in refused(port)
        client.close()  # the first to close waits for what may still be on its way
        assert taken.recv(1) == b""
        taken.close()
        assert states_of(port) == [0x06]
        said = refused(port)
    assert "another process" not in said
    assert "1 connections that are closing" in said
    assert "try again in a minute or change ours" in said
    assert f"ip_local_reserved_ports={port}" in said


def test_error_without_a_port_or_of_another_kind_keeps_its_words() -> None:
    assert states_of(0) == []
    error = OSError(99, "Cannot assign requested address")
    assert "this machine has no such address" in str(cannot_listen("192.0.2.1:1", error))
    assert str(cannot_listen("a:1", ValueError("odd"))).endswith("cannot listen on a:1: odd")
