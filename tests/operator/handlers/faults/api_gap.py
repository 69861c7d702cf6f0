"""A connection to the API server that can be interrupted, so watches miss events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml

from partita_devtools.control_plane.lifecycle import ControlPlane

_BYTES = 1 << 16


@dataclass
class ApiRoad:
    """Forwards connections to the API server; its kubeconfig is beside that of the control plane."""

    plane: ControlPlane
    is_cut: bool = False
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def kubeconfig(self, directory: Path) -> AsyncIterator[Path]:
        """A kubeconfig of the control plane with this address."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        for entry in config["clusters"]:
            entry["cluster"]["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        try:
            yield path
        finally:
            server.close()
            await self.cut()

    async def cut(self) -> None:
        """End all connections, and refuse new ones until `mend`."""
        self.is_cut = True
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def mend(self) -> None:
        """Accept connections again."""
        self.is_cut = False

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self.is_cut:
                return
            port = int(self.plane.url.rpartition(":")[2])
            there, back = await asyncio.open_connection("127.0.0.1", port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, back))
                    group.create_task(_copy(there, writer))
            finally:
                back.close()
        except* OSError:
            pass
        finally:
            self._connections.discard(task)
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BYTES):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one side has hung up")


def forget_history(plane: ControlPlane) -> None:
    """Delete all earlier versions in etcd and all earlier events in the API server:

    a watch from one of them gets a 410.
    """
    etcd = f"{plane.etcd_url}/v3/kv"
    with httpx.Client(trust_env=False, timeout=60) as client:
        header = client.post(f"{etcd}/range", json={"key": "AA=="}).raise_for_status().json()["header"]
        client.post(f"{etcd}/compaction", json={"revision": header["revision"], "physical": True}).raise_for_status()
    plane.restart_api_server()
