"""The command line in the package, and the client of the service that it starts."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import time

import ellect
import pytest
import scipy.io
import scipy.sparse as sparse

# -P: the installed package is run, not the folder.
PROGRAM = [sys.executable, "-P", "-m", "ellect"]

READ, WRITE = "read-0123456789abcdef", "write-0123456789abcdef"


def run(*arguments, **options):
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=300, **options
    )


@pytest.fixture(scope="module")
def matrix():
    return sparse.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(500, 500)).tocsr()


def test_the_command_line_is_the_program_s(tmp_path, matrix):
    told = run("--version")
    assert (told.returncode, told.stdout) == (0, f"ellect {ellect.__version__}\n")
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    shown = run("recommend", str(tmp_path / "a.mtx"), "--device", "h200", "--json")
    assert shown.returncode == 0, shown.stderr
    answer = ellect.Recommendation.from_dict(json.loads(shown.stdout))
    assert answer == ellect.recommend(matrix, device="h200")
    wrong = run("recommend", str(tmp_path / "none.mtx"))
    assert wrong.returncode == 2 and "none.mtx" in wrong.stderr and not wrong.stdout
    assert run("nosuch").returncode == 2
    assert "Usage: ellect recommend" in run("recommend", "--help").stdout


def test_the_script_is_installed():
    script = pathlib.Path(sysconfig.get_path("scripts"), "ellect")
    told = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert told.stdout == f"ellect {ellect.__version__}\n"


def test_it_measures_in_a_child_process(tmp_path, matrix):
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    measured = run(
        *("measure", str(tmp_path / "a.mtx"), "--device", "cpu", "--only", "csr", "--json"),
        cwd=tmp_path,
        env=os.environ | {"ELLECT_DATA": str(tmp_path / "data")},
    )
    assert measured.returncode == 0, measured.stderr
    assert "csr" in measured.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    (folder / "tokens").write_text(f"read {READ}\nwrite {WRITE}\n")
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data", str(folder / "data")]
    process = subprocess.Popen(
        [*PROGRAM, *arguments, "--tokens", str(folder / "tokens")],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    line = ""
    while "http://" not in line:
        line = process.stderr.readline()
        assert line, "it ended before it listened"
    yield "http://" + line.rsplit("http://", 1)[1].strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.stderr.close()


def test_the_client_asks_a_service(service, matrix, tmp_path):
    client = ellect.Client(service, token=READ)
    answer = client.recommend(matrix, device="h200", spmvs=1000)
    assert answer == ellect.recommend(matrix, device="h200", spmvs=1000)
    again = client.recommend(fingerprint=answer.fingerprint, device="h200", spmvs=77)
    assert (again.spmvs, again.fingerprint) == (77, answer.fingerprint)
    arrays = (matrix.data, matrix.indices, matrix.indptr)
    assert client.recommend(arrays, shape=matrix.shape, device="h200").choice == answer.choice
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    assert client.recommend(tmp_path / "a.mtx", device="h200").ranking == answer.ranking
    assert client.recommend(ellect.features(matrix), device="h200").ranking
    assert client.recommend(generate="heat:500", device="h200", top=1).baseline is None
    assert client.health()["status"] == "ok" and client.ready()["status"] == "ready"
    assert {item["name"] for item in client.formats()} >= {"csr", "hll"}
    assert {item["name"] for item in client.devices()} >= {"cpu", "h200"}
    assert any(item["device"] == "h200" for item in client.models())
    assert "# TYPE ellect_connections gauge\n" in client.metrics()


def test_the_client_finds_what_a_service_offers(service):
    client = ellect.Client(service, token=READ)
    assert client.version()["version"] == ellect.__version__
    assert "elasticity" in {item["name"] for item in client.classes()}
    names = [item["name"] for item in client.samples()]
    assert names
    body = client.sample(names[0])
    assert body.startswith(b"%%MatrixMarket")
    for kind, ask in [
        ("path", lambda: client.sample("../Cargo.toml")),
        ("job", lambda: next(client.events(10**6))),
    ]:
        with pytest.raises(ellect.ServiceError) as raised:
            ask()
        assert raised.value.kind == kind
    with pytest.raises(ellect.ArgumentError, match="origin"):
        client.structures(origin="elsewhere")


def test_refusals_of_a_service_are_exceptions(service, matrix):
    client = ellect.Client(service, token=READ)
    for kind, ask in [
        ("token", lambda: ellect.Client(service).formats()),
        ("token", lambda: ellect.Client(service, token="wrong").recommend(matrix)),
        ("role", lambda: client.recommend(matrix, device="cpu", effort="measure")),
        ("matrix", lambda: client.recommend(fingerprint="0" * 32, device="h200")),
        ("matrix", lambda: client.structure("0" * 32)),
    ]:
        with pytest.raises(ellect.ServiceError) as raised:
            ask()
        assert raised.value.kind == kind
    with pytest.raises(ellect.ArgumentError, match="nosuch"):
        client.recommend(matrix, device="nosuch")
    with pytest.raises(ellect.ArgumentError, match="32 hexadecimal"):
        client.recommend(fingerprint="a/b?c")
    with pytest.raises(ellect.InputError):
        client.recommend(__file__, device="h200")
    with pytest.raises(ellect.ArgumentError, match="give one"):
        client.recommend(matrix, fingerprint="0" * 32)


def test_a_service_measures_for_those_who_may(service, matrix):
    client = ellect.Client(service, token=WRITE)
    answer = client.recommend(matrix, device="cpu", effort="measure", budget=2)
    assert any(item.source == "measured" for item in answer.ranking)
    found = client.structure(answer.fingerprint)
    assert found["measurements"]
    listed = client.structures(text=answer.fingerprint)
    assert [item["fingerprint"] for item in listed["structures"]] == [answer.fingerprint]
    assert listed["structures"][0]["best"] and client.structures(text="no such")["total"] == 0
    records = client.measurements()
    assert any(record.get("device") == "cpu" for record in records)
    others = client.measurements(device="h200")
    assert all("device" not in record for record in others)
    told = client.add_measurements(records)
    assert (told["taken"] + told["known"], told["skipped"]) == (len(records), 0)
    with pytest.raises(ellect.ServiceError) as raised:
        client.add_measurements([{"no": "record"}])
    assert raised.value.kind == "records"
    with pytest.raises(ellect.ServiceError) as raised:
        ellect.Client(service, token=READ).add_measurements(records)
    assert raised.value.kind == "role"


def test_models_and_jobs_of_a_service(service):
    client = ellect.Client(service, token=WRITE)
    assert client.model_card("h200", "f32").startswith("#")
    assert client.reload_models() == client.models()
    with pytest.raises(ellect.ServiceError) as raised:
        client.job(10**6)
    assert raised.value.kind == "job"
    with pytest.raises(ellect.ServiceError) as raised:
        client.cancel(10**6)
    assert raised.value.kind == "job"
    with pytest.raises(ellect.ArgumentError, match="guess"):
        client.tune(generate="guess")
    impatient = ellect.Client(service, token=WRITE, timeout_s=3)
    with pytest.raises(ellect.ServiceError, match="it goes on"):
        impatient.tune(generate="small", budget="10m")
    (job,) = client.jobs(kind="tune", limit=1)
    assert job["status"] in ("enqueued", "processing")
    changes = client.events(job["id"])
    assert next(changes)["status"] in ("enqueued", "processing")
    client.cancel(job["id"])
    *_, last = changes
    assert (last["id"], last["status"]) == (job["id"], "canceled")
    assert client.job(job["id"])["status"] == "canceled"


def test_an_interrupt_ends_a_command():
    process = subprocess.Popen(
        [*PROGRAM, "recommend", "-", "--device", "h200"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # It waits for a matrix that never comes.
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == -signal.SIGINT
    process.stdin.close()
    process.stderr.close()
