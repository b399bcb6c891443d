"""Real worker processes on one database: one is killed, and the others go on with what it held."""

import importlib.util
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast

HERE = Path(__file__).parent
RUNS = 8


@pytest.mark.timeout(120)
def test_a_killed_workers_runs_are_finished_by_the_others(
    postgres_url: str, tmp_path: Path, tally: Callable[..., None]
) -> None:
    spec = importlib.util.spec_from_file_location("labourer", HERE / "labourer.py")
    assert spec is not None
    assert spec.loader is not None
    labourer = importlib.util.module_from_spec(spec)
    sys.modules["labourer"] = labourer
    spec.loader.exec_module(labourer)
    effects = tmp_path / "effects"
    effects.touch()
    command = [sys.executable, str(HERE / "labourer.py"), postgres_url, str(effects)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
        with holdfast.open(postgres_url) as hf:
            runs = [hf.enqueue(labourer.labour, f"run {n}", id=f"run {n}") for n in range(RUNS)]
            victim = workers[0]
            while str(victim.pid) not in effects.read_text():
                threading.Event().wait(0.01)
            victim.send_signal(signal.SIGKILL)
            assert [run.result(timeout=90) for run in runs] == [45] * RUNS
            for run in runs:
                run.audit()
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(30)
            assert worker.stdout is not None
            worker.stdout.close()
    done = Counter(line.rpartition(" ")[0] for line in effects.read_text().splitlines())
    assert set(done) == {f"run {n}/{m}" for n in range(RUNS) for m in range(10)}
    again = {name: times for name, times in done.items() if times > 1}
    assert len(again) <= 3  # steps that were under way when it died, of the three runs that it drove
    assert all(times == 2 for times in again.values())
    tally("workers killed on PostgreSQL", kills=1, runs=RUNS, steps_again=len(again), violations=0)
