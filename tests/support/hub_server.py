"""A small Hugging Face hub on this machine, with what its client asks for: written from the requests that it sends.

Repositories are kept in memory: a repository has branches, a branch has a commit, a commit has files. Large files go
through the LFS protocol, as on the hub.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

#: Whoever has it may write to all repositories and read private ones; whoever has the other may read private ones.
WRITES, READS = 'hf_writes', 'hf_reads'


@dataclass
class Repo:
    """A repository: the commit of each branch, the files of each commit, and who may read it."""

    private: bool = False
    gated: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        """Put these files on a branch; return the commit."""
        told = f'{branch} {message} {len(self.commits)}'
        sha = hashlib.sha1(told.encode()).hexdigest()
        self.commits[sha], self.branches[branch] = dict(files), sha
        self.messages.append(message)
        return sha

    def files(self, revision: str = 'main') -> dict[str, bytes]:
        """Return the files of a branch or a commit."""
        return self.commits[self.branches.get(revision, revision)]


class Hub(http.server.ThreadingHTTPServer):
    """The server.

    Attributes:
        repos: by name.
        asked: each request as its method and its path.
        down: answer everything with 503.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.unknown: list[tuple[str, str]] = []
        self.down = False

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.server_address[1]}'


class Refused(Exception):
    """An answer with an error: the status and the code by which the client knows it."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = 'HTTP/1.1'

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, method: str) -> None:
        path, _, query = self.path.partition('?')
        self.path_parts = urllib.parse.unquote(path).strip('/').split('/')
        self.query = dict(urllib.parse.parse_qsl(query))
        self.server.asked.append((method, urllib.parse.unquote(path)))
        self.body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if self.headers.get('Transfer-Encoding') == 'chunked':
            self.body = b''
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        try:
            if self.server.down:
                raise Refused(503, 'Down')
            self._route(method, self.path_parts)
        except Refused as error:
            status, code = error.args
            self._send(status, b'{}', {'X-Error-Code': code, 'X-Error-Message': f'the reason of {code}'})

    def do_GET(self) -> None:
        self._answer('GET')

    def do_HEAD(self) -> None:
        self._answer('HEAD')

    def do_POST(self) -> None:
        self._answer('POST')

    def do_PUT(self) -> None:
        self._answer('PUT')

    def _send(self, status: int, content: bytes = b'', headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({'Content-Length': str(len(content))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)

    def _json(self, data: Any, status: int = 200) -> None:
        self._send(status, json.dumps(data).encode(), {'Content-Type': 'application/json'})

    @property
    def _token(self) -> str | None:
        found = self.headers.get('Authorization')
        return None if found is None else found.removeprefix('Bearer ')

    def _may_write(self) -> None:
        if self._token not in (WRITES, READS):
            raise Refused(401, 'Unauthorized')
        if self._token != WRITES:
            raise Refused(403, 'Forbidden')

    def _repo(self, name: str, content: bool = False) -> Repo:
        """Return a repository that may be seen; ``content``: with its files."""
        found = self.server.repos.get(name)
        if found is None or (found.private and self._token not in (WRITES, READS)):
            raise Refused(404 if self._token in (WRITES, READS) else 401, 'RepoNotFound')
        if content and found.gated and self._token != WRITES:
            raise Refused(403, 'GatedRepo')
        return found

    def _sha(self, repo: Repo, revision: str) -> str:
        sha = repo.branches.get(revision, revision)
        if sha not in repo.commits:
            raise Refused(404, 'RevisionNotFound')
        return sha

    def _route(self, method: str, parts: list[str]) -> None:
        match method, parts:
            case 'POST', ['api', 'validate-yaml']:
                head = json.loads(self.body)['content']
                self._json({'errors': [] if head.startswith('---') else [{'message': 'no metadata'}], 'warnings': []})
            case 'POST', ['api', 'repos', 'create']:
                self._create()
            case 'POST', ['api', 'models', owner, name, 'branch', branch]:
                self._may_write()
                repo = self._repo(f'{owner}/{name}')
                if branch in repo.branches:
                    raise Refused(409, 'Conflict')
                repo.branches[branch] = repo.branches['main']
                self._json({})
            case 'POST', ['api', 'models', owner, name, 'preupload', *_]:
                self._may_write()
                files = json.loads(self.body)['files']
                self._json({'files': [self._mode(file) for file in files]})
            case 'POST', ['api', 'models', owner, name, 'commit', revision]:
                self._may_write()
                self._commit(f'{owner}/{name}', revision)
            case 'POST', [owner, name, 'info', 'lfs', 'objects', 'batch']:
                self._may_write()
                self._batch()
            case 'PUT', ['lfs', oid]:
                assert hashlib.sha256(self.body).hexdigest() == oid
                self.server.objects[oid] = self.body
                self._send(200)
            case 'GET', ['api', 'models', owner, name]:
                self._info(f'{owner}/{name}', 'main')
            case 'GET', ['api', 'models', owner, name, 'revision', revision]:
                self._info(f'{owner}/{name}', revision)
            case 'GET', ['api', 'models', owner, name, 'tree', revision, *_]:
                repo = self._repo(f'{owner}/{name}')
                files = repo.commits[self._sha(repo, revision)]
                self._json([self._entry(path, content) for path, content in files.items()])
            case 'GET' | 'HEAD', [owner, name, 'resolve', revision, *path]:
                repo = self._repo(f'{owner}/{name}', content=True)
                sha = self._sha(repo, revision)
                content = repo.commits[sha].get('/'.join(path))
                if content is None:
                    raise Refused(404, 'EntryNotFound')
                etag = f'"{hashlib.sha256(content).hexdigest()}"'
                self._send(200, content, {'ETag': etag, 'X-Repo-Commit': sha, 'Accept-Ranges': 'bytes'})
            case _:
                self.server.unknown.append((method, self.path))
                raise Refused(404, 'Unknown')

    def _create(self) -> None:
        self._may_write()
        asked = json.loads(self.body)
        name = f'{asked["organization"]}/{asked["name"]}'
        if name in self.server.repos:
            self._json({'error': 'You already created this model repo', 'url': f'{self.server.url}/{name}'}, 409)
            return
        private = asked.get('private') or asked.get('visibility') == 'private'
        self.server.repos[name] = repo = Repo(bool(private))
        repo.commit('main', {'.gitattributes': b''}, 'initial commit')
        self._json({'url': f'{self.server.url}/{name}', 'name': name})

    def _info(self, name: str, revision: str) -> None:
        repo = self._repo(name)
        sha = self._sha(repo, revision)
        siblings = [{'rfilename': path} for path in repo.commits[sha]]
        self._json({'id': name, 'modelId': name, 'private': repo.private, 'sha': sha, 'siblings': siblings,
                    'gated': 'manual' if repo.gated else False, 'tags': [], 'downloads': 0})  # fmt: skip

    def _mode(self, file: dict[str, Any]) -> dict[str, Any]:
        mode = 'lfs' if file['path'].endswith(('.safetensors', '.gif', '.mp4')) else 'regular'
        return {'path': file['path'], 'uploadMode': mode, 'shouldIgnore': False, 'oid': None}

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        found = {'type': 'file', 'path': path, 'size': len(content), 'oid': hashlib.sha1(content).hexdigest()}
        if self._mode({'path': path})['uploadMode'] == 'lfs':
            found['lfs'] = {'oid': hashlib.sha256(content).hexdigest(), 'size': len(content), 'pointerSize': 130}
        return found

    def _batch(self) -> None:
        objects = []
        for asked in json.loads(self.body)['objects']:
            actions = {'actions': {'upload': {'href': f'{self.server.url}/lfs/{asked["oid"]}'}}}
            objects.append({**asked, **({} if asked['oid'] in self.server.objects else actions)})
        self._json({'transfer': 'basic', 'objects': objects})

    def _commit(self, name: str, revision: str) -> None:
        repo = self._repo(name)
        files, message = dict(repo.commits[self._sha(repo, revision)]), ''
        for line in self.body.splitlines():
            asked = json.loads(line)
            value = asked['value']
            match asked['key']:
                case 'header':
                    message = value['summary']
                case 'file':
                    files[value['path']] = base64.b64decode(value['content'])
                case 'lfsFile':
                    files[value['path']] = self.server.objects[value['oid']]
                case 'deletedFile':
                    del files[value['path']]
        sha = repo.commit(revision, files, message)
        self._json({'success': True, 'commitOid': sha, 'commitUrl': f'{self.server.url}/{name}/commit/{sha}',
                    'hookOutput': ''})  # fmt: skip


@contextmanager
def hub() -> Iterator[Hub]:
    """Serve a hub without repositories."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
