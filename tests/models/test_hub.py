"""Models of the hub: from a cache with several revisions, from a hub that answers, and from none."""

import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from huggingface_hub import constants

from valuelens.models import InputError
from valuelens.models.lm import commit_of, evict, load_language_model, revisions
from valuelens.models.lm._hub import cached_revisions, snapshot

NAME, COMMITS = "org/tiny", {"main": "a" * 40, "step10": "b" * 40, "step20": "c" * 40}


def at(monkeypatch, endpoint):
    """Let the hub be there."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache and no hub at all: nothing here may leave the machine."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    at(monkeypatch, "http://127.0.0.1:9")
    return tmp_path / "hub" / "models--org--tiny"


@pytest.fixture
def filled(cache, tiny_model, monkeypatch):
    """Revisions main, step10 and step20 of a model in the cache, as a download leaves them, and no network."""
    for seed, (revision, commit) in enumerate(COMMITS.items()):
        tiny_model("llama", seed=seed, num_layers=2).save_pretrained(cache / "snapshots" / commit)
        (cache / "refs").mkdir(exist_ok=True)
        (cache / "refs" / revision).write_text(commit)
        for file in (cache / "snapshots" / commit).iterdir():  # its files are links to blobs
            blob = cache / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            blob.parent.mkdir(exist_ok=True)
            file.rename(blob)
            file.symlink_to(blob)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return cache


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as a download needs."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body=True):
        path = self.path.partition("?")[0]
        model = f"/api/models/{NAME}"
        if "gated" in path:
            self.answer(403, {}, body, {"X-Error-Code": "GatedRepo"})
        elif "broken" in path:
            self.answer(200, b"{", body)
        elif not path.startswith((f"{model}/", f"/{NAME}/")):
            self.answer(404, {}, body, {"X-Error-Code": "RepoNotFound"})
        elif path == f"{model}/refs":
            branches = [{"name": name, "ref": name, "targetCommit": c} for name, c in COMMITS.items()]
            self.answer(200, {"branches": branches, "tags": [], "converts": []}, body)
        elif path.startswith(f"{model}/revision/"):
            revision = path.rsplit("/")[-1]
            commit = COMMITS.get(revision) or (revision if revision in COMMITS.values() else None)
            found = {"id": NAME, "sha": commit, "siblings": []}
            self.answer(
                200 if commit else 404, found, body, {} if commit else {"X-Error-Code": "RevisionNotFound"}
            )
        elif path.startswith(f"{model}/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            self.answer(200, entries, body)
        else:
            content = self.files[path.rsplit("/")[-1]]
            extra = {"ETag": hashlib.sha1(content).hexdigest(), "X-Repo-Commit": path.split("/")[4]}
            self.answer(200, content, body, extra)

    def answer(self, status, content, body, extra=()):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **dict(extra)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    """A hub on this machine that has NAME."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    at(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield Hub
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(name, revision=None):
    with pytest.raises(InputError) as error:
        snapshot(name, revision)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_revision_of_an_offline_cache_loads(filled):
    loaded = [load_language_model(NAME), load_language_model(f"{NAME}@step10")]
    loaded.append(load_language_model(NAME, revision="step20"))
    assert [each.name for each in loaded] == [NAME, f"{NAME}@step10", f"{NAME}@step20"]
    assert [each.origin["commit"] for each in loaded] == list(COMMITS.values())
    assert len({each.sha256 for each in loaded}) == 3
    weights = (filled / "snapshots" / COMMITS["step10"] / "model.safetensors").read_bytes()
    assert loaded[1].sha256 == hashlib.sha256(weights).hexdigest()
    assert load_language_model(f"{NAME}@{COMMITS['step20']}").sha256 == loaded[2].sha256


def test_a_revision_that_the_cache_lacks_names_those_that_it_has(filled):
    told = refusal(NAME, "step15")
    assert told.startswith(
        "the revision must be in the cache where the hub is not reached; found HF_HUB_OFFLINE"
    )
    assert told.endswith(f"only step10, step20, main; {NAME}@step15")
    (filled / "refs" / "step10").unlink()
    assert cached_revisions(NAME) == ["main", "step20", COMMITS["step10"]]


def test_a_revision_without_files_is_not_in_the_cache(filled):
    (filled / "refs" / "step30").write_text("d" * 40)
    assert cached_revisions(NAME) == list(COMMITS)
    assert "and in the cache only step" in refusal(NAME, "step30")
    (filled / "snapshots" / COMMITS["main"] / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"a model must have model\.safetensors; found config\.json, "):
        load_language_model(NAME)


@pytest.mark.parametrize("offline", [True, False])
def test_no_network_is_one_line(monkeypatch, offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    told = refusal("org/other")
    assert told.startswith("a model must exist")
    assert ("HF_HUB_OFFLINE is set" if offline else "and the hub does not answer") in told


def test_a_download_takes_what_a_model_needs_and_no_pickle(hub, cache, tiny_model, tmp_path, monkeypatch):
    tiny_model("gpt2").save_pretrained(tmp_path / "saved")
    files = {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()}
    monkeypatch.setattr(
        hub, "files", {**files, "pytorch_model.bin": b"pickle", "consolidated.safetensors": b""}
    )
    language_model = load_language_model(NAME)
    assert language_model.family == "gpt2"
    assert sorted(file.name for file in (cache / "snapshots" / COMMITS["main"]).iterdir()) == sorted(files)
    at(monkeypatch, "http://127.0.0.1:9")  # the cache is enough from now on
    assert load_language_model(NAME).sha256 == language_model.sha256
    (cache / "snapshots" / COMMITS["main"] / "config.json").unlink()
    assert refusal(NAME).startswith(
        "the cached model must be whole; found files missing, and the hub does not"
    )


def test_pickled_weights_are_fetched_where_there_are_no_others(hub, cache, monkeypatch):
    monkeypatch.setattr(
        hub, "files", {"config.json": b"{}", "pytorch_model.bin": b"pickle", "training_args.bin": b""}
    )
    assert sorted(file.name for file in snapshot(NAME).iterdir()) == ["config.json", "pytorch_model.bin"]


def test_a_revision_that_the_hub_lacks_names_the_nearest(hub, monkeypatch):
    monkeypatch.setattr(f"{__name__}.COMMITS", {f"step{i}": f"{i:040}" for i in range(40)})
    told = refusal(NAME, "step7b")
    assert told.startswith("the revision must exist; found none of this name, but step7, ")
    assert told.endswith(f" and 28 more; {NAME}@step7b")


def test_what_the_hub_refuses_is_told(hub):
    assert "no such model on the hub" in refusal("org/unknown")
    assert refusal("org/gated").startswith("the model must be open to you; found one whose terms")
    assert refusal("org--/x").startswith("a model must exist")
    assert refusal("org/broken").startswith("the hub must answer; found JSONDecodeError: ")


OLMO = (
    *("main", "stage2-ingredient1-step1000-tokens3B", "stage1-step140000-tokens294B"),
    *("stage1-step9000-tokens19B", "stage1-step0-tokens0B", "stage2-ingredient1-step11000-tokens24B"),
)


def named(monkeypatch, names):
    monkeypatch.setattr(f"{__name__}.COMMITS", {name: f"{i:040x}" for i, name in enumerate(names)})


def refused(act, *arguments):
    with pytest.raises(InputError) as error:
        act(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_revisions_stand_in_the_order_of_their_numbers(hub, monkeypatch):
    named(monkeypatch, OLMO)
    assert revisions(NAME, "all") == [
        "stage1-step0-tokens0B",
        "stage1-step9000-tokens19B",
        "stage1-step140000-tokens294B",
        "stage2-ingredient1-step1000-tokens3B",
        "stage2-ingredient1-step11000-tokens24B",
        "main",
    ]
    assert revisions(NAME, f"main, {OLMO[2]},{OLMO[3]}") == [OLMO[3], OLMO[2], "main"]
    assert revisions(NAME, "a" * 40) == ["a" * 40]
    named(monkeypatch, ["x²", "x10", "x9"])
    assert revisions(NAME, "all") == ["x9", "x10", "x²"]


def test_every_nth_begins_with_the_first_and_ends_with_the_last(hub, monkeypatch):
    named(monkeypatch, ["main", *(f"step{i}" for i in range(0, 220, 10))])
    assert revisions(NAME, "every:10") == ["step0", "step100", "step200", "step210"]
    assert revisions(NAME, "every:7") == ["step0", "step70", "step140", "step210"]
    assert len(revisions(NAME, "every:1")) == 22


def test_all_takes_a_commit_once(hub, monkeypatch):
    monkeypatch.setattr(f"{__name__}.COMMITS", {**COMMITS, "main": COMMITS["step20"]})
    assert revisions(NAME, "all") == ["step10", "step20"]


def test_revisions_that_are_not_there_are_refused(hub, monkeypatch):
    assert refused(revisions, NAME, "step10,step15") == (
        "the revision must exist; found none of this name, but step10, step20, main; org/tiny@step15"
    )
    twice = "each revision must be named once; found 'step10' twice; option --revisions"
    assert refused(revisions, NAME, "step10,step20,step10") == twice
    assert refused(revisions, NAME, "step10,,step20").startswith(
        "each revision must be named once; found nothing between commas: 'step10,,step20'"
    )
    for asked in ("every:0", "every:x", "every:", "every:-1"):
        told = f"--revisions takes a,b or every:10 or all; found '{asked}'; option --revisions"
        assert refused(revisions, NAME, asked) == told
    assert refused(revisions, "org/unknown", "all").startswith("a model must exist")
    named(monkeypatch, ["main", "final"])
    assert refused(revisions, NAME, "every:2").startswith("every:N takes revisions with a number in their")


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_hub_the_cache_tells(filled, monkeypatch, offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    assert revisions(NAME, "all") == ["step10", "step20", "main"]
    assert revisions(NAME, "every:2") == ["step10", "step20"]
    assert [commit_of(NAME), commit_of(NAME, "step10"), commit_of(NAME, "c" * 40)] == list(COMMITS.values())
    assert "and in the cache only step" in refused(commit_of, NAME, "step15")
    assert refused(revisions, "org/other", "all").startswith("a model must exist")


def test_a_commit_is_told_without_a_download(hub, cache):
    assert [commit_of(NAME), commit_of(NAME, "step20")] == ["a" * 40, "c" * 40]
    assert refused(commit_of, NAME, "step15").startswith("the revision must exist")
    assert refused(commit_of, "org/unknown", None).startswith("a model must exist")
    assert not cache.exists()


def test_an_evicted_revision_is_gone_and_the_others_are_whole(filled):
    shared = (filled / "snapshots" / COMMITS["main"] / "config.json").resolve()
    assert shared == (filled / "snapshots" / COMMITS["step10"] / "config.json").resolve()
    weights = (filled / "snapshots" / COMMITS["step10"] / "model.safetensors").resolve()
    size = weights.stat().st_size
    assert evict(NAME, "step10") >= size
    assert not weights.exists()
    assert cached_revisions(NAME) == ["main", "step20"]
    assert evict(NAME, "step10") == evict("org/other") == 0
    assert [load_language_model(NAME, revision=each).name for each in ("main", "step20")]
    evict(NAME, "c" * 40)
    evict(NAME)
    assert cached_revisions(NAME) == []


def test_downloads_go_one_at_a_time(hub, cache, monkeypatch):
    monkeypatch.setattr(hub, "files", {"config.json": b"{}", "model.safetensors": b""})
    under_way, most, answer = [], [], hub.answer

    def slow(handler, *told):
        under_way.append(handler.path)
        most.append(len({path.split("/")[4] for path in under_way if "/resolve/" in path}))
        time.sleep(0.02)
        under_way.remove(handler.path)  # before the answer, behind which the next may come at once
        answer(handler, *told)

    monkeypatch.setattr(hub, "answer", slow)
    with ThreadPoolExecutor() as pool:  # a lock of a file keeps threads apart as it does processes
        folders = list(pool.map(snapshot, [NAME] * 3, COMMITS))
    assert [folder.name for folder in folders] == list(COMMITS.values())
    assert max(most) == 1


def test_a_cache_that_cannot_be_locked_is_read(filled, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    (filled.parent / ".locks").write_text("no folder")
    assert snapshot(NAME, "step10").name == COMMITS["step10"]
