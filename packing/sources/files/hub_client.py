"""Files of a Hub repository, with one sentence for each way that a download fails.

Notable:
- a repository that is completely in the local cache is used as it is: no request, no waiting
- one quick question goes first, because a download tries for 23 seconds before it gives up
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class HubError(ValueError):
    """A download failed; the message is one sentence with the mend."""


def download(name: str, wanted: str, optional: Sequence[str]) -> dict[str, Path] | None:
    """Paths of ``wanted`` and of those ``optional`` files that model repository ``name`` has.

    None where the repository exists but has no file ``wanted``. Raises HubError: no such
    repository, private, gated, no connection.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
    )

    cached: dict[str, Path] = {}
    try:
        cached, complete = _cached(name, [wanted, *optional])
        if complete:
            return cached if wanted in cached else None
        get_hf_file_metadata(hf_hub_url(name, wanted))
        files = {wanted: Path(hf_hub_download(name, wanted))}
        for file in optional:
            try:
                files[file] = Path(hf_hub_download(name, file))
            except EntryNotFoundError:
                continue
        return files
    except HFValidationError:
        raise HubError(
            f"'{name}' is neither a folder nor a Hub id; a Hub id looks like 'owner/name'"
        ) from None
    except GatedRepoError:
        raise HubError(
            f"'{name}' is gated; accept its terms on its page on the Hub, then set HF_TOKEN"
        ) from None
    except RepositoryNotFoundError:
        raise HubError(
            f"the Hub has no '{name}', or it is private; check the spelling, and for a private one "
            "set HF_TOKEN"
        ) from None
    except RemoteEntryNotFoundError:
        return None
    except HfHubHTTPError as error:
        raise HubError(f"the Hub does not give '{name}' ({_reason(error)}); try later") from error
    except Exception as error:  # whatever class the connection raises
        if wanted in cached:
            return cached
        raise HubError(
            f"'{name}' is not in the local cache and the Hub cannot be reached "
            f"({_reason(error)}); connect once, or give a folder"
        ) from error


def _cached(name: str, files: Sequence[str]) -> tuple[dict[str, Path], bool]:
    """Cached files, and whether all others are known not to exist."""
    from huggingface_hub import try_to_load_from_cache

    found = {file: try_to_load_from_cache(name, file) for file in files}
    paths = {file: Path(path) for file, path in found.items() if isinstance(path, str)}
    return paths, all(path is not None for path in found.values())


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
