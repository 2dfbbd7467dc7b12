"""Single HTTP calls through a door, and answers that are lost on their way."""

import json

import aiohttp

from everact.cluster import door, unix_server


async def ask(path, method, url, body=None, **options):
    """One HTTP request; returns the status and the JSON of the answer."""
    with door.socket_path(str(path)) as place:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(place)) as session,
            session.request(method, f"http://x{url}", data=body, **options) as response,
        ):
            return response.status, json.loads(await response.read())


async def refused(path, method, url, body=None):
    status, answer = await ask(path, method, url, body)
    return status, answer["error"]["type"], answer["error"]["message"]


def lose_answers(monkeypatch, path, count=1):
    """Cut the connection in place of the first answers to calls on this path; returns the requests seen there."""
    seen = []

    async def handle(api, request, real=unix_server.Api.handle):
        answer = await real(api, request)
        if request.method == "POST" and path in request.path:
            seen.append(answer.status)
            if len(seen) <= count:
                request.transport.abort()
        return answer

    monkeypatch.setattr(unix_server.Api, "handle", handle)
    return seen
