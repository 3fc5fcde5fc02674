"""Trained agents on the Hugging Face hub (the extra ``hub``): fetching one, and errors of the hub in one sentence.

A repository is laid out as a run: ``config.json`` (algorithm, parameters, environment) and one folder in
``checkpoints`` with ``config.json`` and ``weights.safetensors``. A model card and a film may stand beside them. Nothing
in it is code, and a repository with any other file is refused, so that nobody looks for what would not be loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.common.tools.errors import Failure, InvalidType, InvalidValue, MissingPackage, ZooError

#: How a source on the hub begins.
PREFIX = 'hf://'

_NAME = re.compile(r'[\w.-]+/[\w.-]+')
#: What is loaded, and what may stand beside it.
_LOADED = re.compile(r'config\.json|checkpoints/\w[\w.-]*/(config\.json|weights\.safetensors)')
_BESIDE = re.compile(r'README\.md|\.gitattributes|LICENSE(\.md|\.txt)?|replay\.(gif|webp|png|mp4)')
_PATTERNS = ['config.json', 'checkpoints/*/config.json', 'checkpoints/*/weights.safetensors']


def is_source(given: Any) -> bool:
    """Return whether this is an agent on the hub, ``'hf://name/repo'``."""
    return isinstance(given, str) and given.startswith(PREFIX)


def fetch(source: str, revision: str | None = None, token: str | None = None) -> Path:
    """Return the folder of an agent on the hub, downloaded to the cache of ``huggingface_hub`` if need be.

    Without a connection the last download of the same revision is taken.

    Args:
        source: ``'hf://name/repo'``, or ``'hf://name/repo@revision'``.
        revision: a branch, a tag or a commit; None: ``main``.
        token: of the hub; None: the variable ``HF_TOKEN``, or the token of ``hf auth login``.

    Raises:
        ImportError: the extra ``hub`` is not installed.
        ValueError: there is no such repository or revision, it may not be read, or it is no agent of zoo.
        RuntimeError: the hub does not answer.
    """
    repo, revision = parse(source, revision)
    hub = package()
    with told(repo, revision):
        api = hub.HfApi(token=token)
        try:
            names = [sibling.rfilename for sibling in api.model_info(repo, revision=revision).siblings or ()]
            check_files(repo, names)
        except Exception as error:
            if not _unreachable(error):
                raise
            here = _cached(hub, repo, revision)
            if here is None:
                raise
            return _checked(repo, here)
        given = {'revision': revision, 'token': token, 'allow_patterns': _PATTERNS}
        return _checked(repo, Path(hub.snapshot_download(repo, **given)))


def local(given: Any, revision: str | None = None, token: str | None = None) -> Any:
    """Return the folder of an agent on the hub; anything else as it is, without ``revision`` and ``token``."""
    if is_source(given):
        return fetch(given, revision, token)
    for name, value in (('revision', revision), ('token', token)):
        if value is not None:
            raise InvalidValue(
                f"{name} is for agents on the hub, 'hf://name/repo', and {given!r} is none: leave it out."
            )
    return given


def parse(source: str, revision: str | None = None) -> tuple[str, str | None]:
    """Return the name of a repository and the revision for ``'hf://name/repo@revision'``; the prefix may be missing."""
    if not isinstance(source, str):
        raise InvalidType(f"a repository is {source!r}: give its name, 'name/repo'.")
    repo, _, own = source.removeprefix(PREFIX).partition('@')
    if not _NAME.fullmatch(repo):
        raise InvalidValue(f"'{source}' is no repository of the hub: give 'name/repo', with the name of its owner.")
    if own and revision not in (None, own):
        raise InvalidValue(f'the revision is given twice, {own} in {source!r} and {revision}: leave one of them out.')
    return repo, own or revision


def package() -> Any:
    """Return ``huggingface_hub``."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackage(f"the hub needs huggingface_hub: pip install 'zoo-rl[hub]' ({error}).") from error
    return huggingface_hub


def check_files(repo: str, names: Iterable[str], loaded: bool = True) -> None:
    """Refuse a repository with files that no agent has; ``loaded``: and one without an agent."""
    names = list(names)
    foreign = [name for name in names if not _LOADED.fullmatch(name) and not _BESIDE.fullmatch(name)]
    weights = [name for name in names if name.startswith('checkpoints/') and name.endswith('.safetensors')]
    is_agent = 'config.json' in names and bool(weights)
    if loaded and not is_agent:
        raise InvalidValue(f"'{repo}' holds no agent of zoo: it has no config.json with a folder in checkpoints.")
    if foreign:
        shown = ', '.join(sorted(foreign)[:3]) + (', …' if foreign[3:] else '')
        told = 'which is no file of an agent of zoo' if len(foreign) == 1 else 'which are no files of an agent of zoo'
        raise InvalidValue(f"'{repo}' holds {shown}, {told}: it is not used.")


@contextlib.contextmanager
def told(repo: str, revision: str | None = None) -> Iterator[None]:
    """Say in one sentence what goes wrong with the hub in this block."""
    try:
        yield
    except ZooError:
        raise
    except Exception as error:
        sentence = _sentence(error, repo, revision)
        if sentence is None:
            raise
        failed = InvalidValue if sentence.startswith("'") else Failure
        raise failed(sentence) from error


def _sentence(error: Exception, repo: str, revision: str | None) -> str | None:
    """Return what to say of an error of ``huggingface_hub``; None if it is none."""
    from huggingface_hub import errors

    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # of a thread that uploads
        return _sentence(error.__cause__, repo, revision)
    login = 'hf auth login, or set HF_TOKEN'
    status = getattr(getattr(error, 'response', None), 'status_code', None)
    if isinstance(error, errors.GatedRepoError):
        return f"'{repo}' is gated: ask for access on its page, then log in ({login})."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"'{repo}' has no revision {revision or 'main'}: give a branch, a tag or a commit that it has."
    if status == 403:
        return f"'{repo}' may not be read or written with this token: log in with one that may ({login})."
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"'{repo}' is not on the hub, or it is private: check its name, or log in ({login})."
    if status == 401:
        return f"'{repo}' needs a valid token: log in ({login})."
    if isinstance(error, errors.HFValidationError):
        return f"'{repo}' is no name that the hub allows: {str(error).rstrip('.')}."
    if isinstance(error, errors.LocalTokenNotFoundError):
        return f"'{repo}' needs a token: log in ({login})."
    if _unreachable(error):
        return f'the hub does not answer for {repo}: check the connection ({_short(error)}).'
    if isinstance(error, errors.HfHubHTTPError | errors.EntryNotFoundError | errors.FileMetadataError):
        return f'the hub refuses a request for {repo}: {_short(error)}.'
    return None


def _unreachable(error: BaseException | None) -> bool:
    """Whether an error means that there is no connection, or that the hub is down."""
    status = getattr(getattr(error, 'response', None), 'status_code', None)
    if status is not None:
        return status >= 500
    while error is not None:
        kind = type(error)
        # Versions of huggingface_hub use different HTTP clients.
        if isinstance(error, ConnectionError | TimeoutError) or (
            kind.__module__.partition('.')[0] in ('httpx', 'httpx2', 'httpcore', 'httpcore2', 'requests', 'urllib3')
        ):
            return True
        error = error.__cause__
    return False


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip('.')


def _cached(hub: Any, repo: str, revision: str | None) -> Path | None:
    """Return an earlier download; None if there is none."""
    try:
        return Path(hub.snapshot_download(repo, revision=revision, allow_patterns=_PATTERNS, local_files_only=True))
    except OSError:  # LocalEntryNotFoundError
        return None


def _checked(repo: str, folder: Path) -> Path:
    """Refuse a folder whose configuration is not the one of a run."""
    check_files(repo, (path.relative_to(folder).as_posix() for path in folder.rglob('*') if path.is_file()))
    try:
        config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InvalidValue(f"'{repo}' is damaged: its config.json cannot be read ({error}).") from error
    fine = isinstance(config, dict) and isinstance(config.get('algorithm'), str)
    if not fine or not isinstance(config.get('made_with'), dict | None):
        raise InvalidValue(f"'{repo}' holds no agent of zoo: its config.json is not the configuration of a run.")
    return folder


def token_given(token: str | None) -> bool:
    """Whether there is a token to write with: given, in ``HF_TOKEN``, or kept by ``hf auth login``."""
    return bool(token or os.environ.get('HF_TOKEN') or package().get_token())
