"""Recommendations, features, files and the client."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import ellect
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sparse


@pytest.fixture(scope="module")
def matrix():
    return sparse.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(5000, 5000)).tocsr()


@pytest.fixture(scope="module")
def answer(matrix):
    return ellect.recommend(matrix, device="h200", spmvs=100_000)


def test_a_recommendation_is_a_tree_of_frozen_dataclasses(answer):
    assert answer.choice == answer.best.candidate == answer.ranking[0].candidate
    assert answer.baseline in answer.ranking
    assert answer.explanation and str(answer).startswith(answer.explanation[0])
    assert answer.features["nnz"] == 3 * 5000 - 2
    assert (answer.device, answer.precision, answer.spmvs) == ("h200", "f64", 100_000)
    with pytest.raises(AttributeError):
        answer.choice = "csr"
    as_json = json.loads(json.dumps(answer.to_dict()))
    assert ellect.Recommendation.from_dict(as_json) == answer
    assert as_json["ranking"][0]["spmv_us"] == answer.best.spmv_us
    best = answer.best
    # Times are rounded to four digits.
    assert best.total_us == pytest.approx(best.total_us_of(answer.spmvs), rel=1e-3)


def test_notebooks_show_a_table(answer):
    html = answer._repr_html_()
    assert html.count("<tr>") == 11 and answer.choice in html
    assert "<script>" not in ellect.Recommendation.from_dict(
        answer.to_dict() | {"explanation": ["<script>"]}
    )._repr_html_()


def test_plots_have_the_candidates(answer):
    bars = answer.plot_ranking(top=3)
    assert len(bars.patches) in (3, 4)
    lines = answer.plot_break_even(plt.figure().gca(), top=2)
    labels = [text.get_text() for text in lines.get_legend().get_texts()]
    assert answer.choice in labels and answer.baseline.candidate in labels
    plt.close("all")


def test_arguments_are_checked(matrix):
    for options, stated in [
        ({"effort": "guess"}, "estimate, predict, measure, exhaustive"),
        ({"basis": "odd"}, "basis"),
        ({"spmvs": -1}, "from 0 to"),
        ({"spmvs": 1.5}, "whole number"),
        ({"device": "h300"}, "there are: h200, cpu"),
        ({"device": "h200", "effort": "measure"}, "not on this machine"),
    ]:
        with pytest.raises(ellect.ArgumentError, match=stated):
            ellect.recommend(matrix, **options)
    with pytest.raises(TypeError, match="whole number"):
        ellect.recommend(matrix, spmvs="many")


def test_measuring_times_candidates(matrix):
    answer = ellect.recommend(matrix, effort="measure", budget_s=2.0)
    assert any(item.source == "measured" for item in answer.ranking)


def test_files_are_read(tmp_path, matrix):
    small = matrix[:50, :60]
    scipy.io.mmwrite(tmp_path / "a.mtx", small)
    sparse.save_npz(tmp_path / "a.npz", small)
    x = np.arange(60.0)
    for name in ("a.mtx", "a.npz"):
        assert np.array_equal(ellect.prepare(tmp_path / name) @ x, small @ x)
        assert ellect.prepare(str(tmp_path / name), precision="f32").dtype == np.float32
        assert ellect.features(tmp_path / name)["nnz"] == small.nnz
    with pytest.raises(OSError, match="missing.mtx") as raised:
        ellect.prepare(tmp_path / "missing.mtx")
    assert isinstance(raised.value, ellect.FileError) and raised.value.errno == 2
    bad = "%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n"
    (tmp_path / "bad.mtx").write_text(bad)
    with pytest.raises(ellect.InputError, match="line 3"):
        ellect.prepare(tmp_path / "bad.mtx")


def test_features_are_documented(matrix):
    found = ellect.features(matrix)
    assert set(found) <= set(ellect.FEATURES)
    assert all(meaning for _, meaning in ellect.FEATURES.values())


class Service(BaseHTTPRequestHandler):
    """Answers as the service does."""

    answer = (200, {})
    later = []
    seen = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, body))
        self.reply(*self.answer)

    def do_GET(self):
        self.seen.append((self.path, b""))
        self.reply(200, self.later.pop(0))

    def reply(self, status, answer):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_client_sends_matrices_and_reads_answers(service, tmp_path, matrix, answer):
    Service.answer, client = (200, answer.to_dict()), ellect.Client(service + "/")
    assert client.recommend(matrix.astype(np.float32), device="h200", spmvs=5) == answer
    path, body = Service.seen[-1]
    assert path == "/recommend?precision=f32&device=h200&spmvs=5"
    (tmp_path / "sent.npz").write_bytes(body)
    assert (sparse.load_npz(tmp_path / "sent.npz") != matrix).nnz == 0
    assert ellect.features(tmp_path / "sent.npz")["nnz"] == matrix.nnz
    assert client.recommend(generate="heat:500") == answer
    assert Service.seen[-1] == ("/recommend?generate=heat%3A500", b"")
    for kind, raised in [
        ("input", ellect.InputError),
        ("argument", ellect.ArgumentError),
        ("busy", ellect.ServiceError),
    ]:
        Service.answer = (400, {"error": {"kind": kind, "message": "remedy"}})
        with pytest.raises(raised, match="remedy"):
            client.recommend(tmp_path / "sent.npz")
    Service.answer = (500, {})
    with pytest.raises(ellect.ServiceError, match="status 500"):
        client.recommend(generate="heat:500")


def test_the_client_waits_for_a_job(service, answer):
    client = ellect.Client(service)
    Service.answer = (202, {"id": 7, "status": "enqueued"})
    Service.later[:] = [
        {"id": 7, "status": "processing"},
        {"id": 7, "status": "succeeded", "result": answer.to_dict()},
    ]
    assert client.recommend(generate="heat:500", effort="measure") == answer
    assert [path for path, _ in Service.seen[-2:]] == ["/jobs/7", "/jobs/7"]
    Service.later[:] = [
        {"id": 7, "status": "failed", "error": {"kind": "input", "message": "line 3"}}
    ]
    with pytest.raises(ellect.InputError, match="line 3"):
        client.recommend(generate="heat:500", effort="measure")
    Service.later[:] = [{"id": 7, "status": "canceled", "error": None}]
    with pytest.raises(ellect.ServiceError, match="job 7 is canceled"):
        client.recommend(generate="heat:500", effort="measure")
    Service.later[:] = [{"id": 7, "status": "processing"}]
    with pytest.raises(ellect.ServiceError, match="it goes on"):
        ellect.Client(service, timeout_s=0.4).recommend(generate="heat:500", effort="measure")


def test_a_service_that_is_not_there_is_named():
    with pytest.raises(ellect.ServiceError, match="ellect serve"):
        ellect.Client("http://127.0.0.1:9").recommend(generate="heat:500")
    with pytest.raises(ellect.ArgumentError, match="http://"):
        ellect.Client("localhost:7272")


def run(*arguments, **options):
    # -P: the installed package is run, not the folder.
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_the_import_is_quick_and_loads_no_numpy():
    loaded = run("-c", "import ellect, sys; print('numpy' in sys.modules, ellect.__version__)")
    assert loaded.stdout.startswith("False "), loaded.stderr

    def import_s():
        # Processor time, because other work on this machine does not count.
        timed = "import time; t = time.process_time(); import ellect; print(time.process_time() - t)"
        return float(run("-c", timed).stdout)

    assert min(import_s() for _ in range(5)) < 0.08


def test_everything_named_is_there():
    assert all(getattr(ellect, name) is not None for name in ellect.__all__)
    with pytest.raises(AttributeError, match="nosuch"):
        ellect.nosuch
