"""dtrun report of a real run with a killed worker, opened from the disk by a real browser: it has the numbers of metrics.jsonl,
asks for nothing else, and has nothing to complain of.

  report_test.py BUILD [unittest options…]
"""

import json
import math
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import browser
import cases
from jobs import lines_of, stopping_dtrun, wait_for

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
DTRUN = BUILD / "bin/dtrun"
STEPS = 40
KILLED_IN = 16  # steps


def run(*words, code=0):
    done = subprocess.run([DTRUN, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


NOBODY = 65534


class ForeignTest(unittest.TestCase):
    """Folders of runs may be anybody's."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="dtrun-report-test-")))

    def test_what_is_no_regular_file_is_told_and_left_out(self):
        for number, (file, make) in enumerate((file, make) for file in ("metrics.jsonl", "config.json", "report.json", "events.jsonl")
                                              for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir)):
            run_folder = self.folder / str(number)
            run_folder.mkdir()
            make(run_folder / file)
            if file != "events.jsonl":
                (run_folder / "events.jsonl").write_text("")
            done = subprocess.run([DTRUN, "report", run_folder, "-o", self.folder / "page.html"], capture_output=True, text=True,
                                  timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
            self.assertEqual(done.returncode, 0, (file, done.stderr))
            page = (self.folder / "page.html").read_text()
            self.assertIn(file + (": cannot be read: Is a directory" if make is os.mkdir else ": is no regular file"), page)
            subprocess.run([DTRUN, "status", run_folder], capture_output=True, timeout=60, check=False)

    def test_a_line_without_end_is_one_that_cannot_be_read(self):
        with open(self.folder / "metrics.jsonl", "w", encoding="utf-8") as out:
            line = '{"event": "train", "step": %d, "loss": 1, "time": 1}\n'
            out.write(line % 1 + "x" * (17 << 20) + "\n" + line % 2)
        told = json.loads(run("report", "--json", self.folder))
        self.assertEqual(told["facts"]["steps"], 2)

    def test_what_the_folders_owner_does_not_own_is_not_shown_to_others(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        self.folder.chmod(0o755)
        secret, attacker = self.folder / "home", NOBODY - 1
        secret.mkdir(mode=0o700)
        (secret / "config.json").write_text('{"auth": "SECRET4711"}')
        for path in (secret, secret / "config.json"):
            os.chown(path, NOBODY, NOBODY)
        for name in ("output_dir", "link"):
            folder = self.folder / name
            folder.mkdir()
            folder.chmod(0o777)
            output = secret if name == "output_dir" else folder
            start = {"event": "start", "time": 1.0, "host": "h", "agent": 1, "run_id": "r", "output_dir": str(output)}
            (folder / "events.jsonl").write_text(json.dumps(start))
            if name == "link":
                (folder / "config.json").symlink_to(secret / "config.json")
            for path in (folder, folder / "events.jsonl"):
                os.chown(path, attacker, attacker)
            dtrun = shutil.copy(DTRUN, self.folder / "dtrun")
            done = subprocess.run([dtrun, "report", folder], user=NOBODY, group=NOBODY, extra_groups=[], umask=0o022, cwd="/",
                                  capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], "HOME": str(secret)})
            self.assertEqual(done.returncode, 0, done.stderr)
            page = folder / "report.html"
            self.assertNotIn("SECRET4711", page.read_text())
            self.assertIn("has another owner than", page.read_text())
            self.assertEqual(page.stat().st_mode & 0o077, 0)


def job(output, *words, dtrun=DTRUN):
    return [dtrun, "--standalone", "--nproc_per_node", "2", "--max_restarts", "3", "--progress", "none",
            ROOT / "configs/fashion_mnist_convnet.json", "train.logging_steps=1", "train.eval_steps=10",
            f"train.max_steps={STEPS}", f"output_dir={output}", *words]


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="dtrun-report-test-")))
        cls.output = cls.folder / "run"
        cls.train_through_a_kill()
        cls.driver = browser.chromium()
        if cls.driver:
            cls.addClassCleanup(cls.driver.quit)

    @classmethod
    def train_through_a_kill(cls):
        stop = f"updated:rank=1:count={KILLED_IN}:once={cls.folder / 'killed'}:signal=9"
        subprocess.run(job(cls.output, "train.learning_rate=0.04", dtrun=stopping_dtrun(BUILD, cls.folder)), check=True,
                       stderr=subprocess.DEVNULL, env={**os.environ, "DTRUN_TEST_STOP": stop})

    def open(self, page):
        if self.driver is None:
            self.skipTest("chromium, chromium-driver and python3-selenium are not all installed")
        browser.requests(self.driver), browser.console(self.driver)
        self.driver.get(page.as_uri())
        self.assertEqual(browser.console(self.driver), [])
        self.assertEqual(browser.requests(self.driver), [page.as_uri()])

    def curve(self, title, name):
        """[(step, value)] as the page's graph holds it for drawing."""
        return [tuple(point) for point in self.driver.execute_script(
            """const place = [...document.querySelectorAll(".chart")].find(p => p.querySelector("h3").textContent === arguments[0]);
               const graph = place.graph, at = graph.getLabels().indexOf(arguments[1]), points = [];
               for (let row = 0; row < graph.numRows(); ++row)
                 if (graph.getValue(row, at) !== null) points.push([graph.getValue(row, 0), graph.getValue(row, at)]);
               return points;""", title, name)]

    def check_curve(self, title, name, expected):
        drawn = self.curve(title, name)
        self.assertEqual([step for step, _ in drawn], [step for step, _ in expected], title)
        for (step, is_drawn), (_, value) in zip(drawn, expected):
            self.assertTrue(math.isclose(is_drawn, value, rel_tol=1e-8, abs_tol=1e-12), (title, step, is_drawn, value))

    def test_the_curves_have_the_numbers_of_the_log_and_nothing_is_asked_for(self):
        self.assertEqual(run("report", self.output), f"wrote {self.output}/report.html\n")
        self.open(self.output / "report.html")
        metrics = self.output / "metrics.jsonl"
        train, evals = lines_of(metrics, "train"), lines_of(metrics, "eval")
        self.assertEqual([line["step"] for line in train], list(range(1, STEPS + 1)))
        for title, name, lines, key in (("loss", "training", train, "loss"), ("loss", "evaluation", evals, "loss"),
                                        ("accuracy of evaluations", "accuracy", evals, "accuracy"),
                                        ("samples per second", "samples/s", train, "samples_per_second"),
                                        ("learning rate", "learning rate", train, "learning_rate"),
                                        ("where a step goes, share of its time", "wait_gradients", train, "wait_gradients")):
            self.check_curve(title, name, [(line["step"], line[key]) for line in lines])

    def test_the_page_tells_the_failure_the_goodput_and_the_config(self):
        run("report", self.output, "-o", self.folder / "page.html")
        self.open(self.folder / "page.html")
        text = self.driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true); return document.body.innerText")
        report = json.loads((self.output / "report.json").read_text())
        self.assertIn("over, exit code 0", text)
        self.assertIn("rank 1: signal 9 (SIGKILL)", text)
        self.assertIn(f"{100 * report['goodput']['ratio']:.1f} % of", text)
        self.assertIn("train.learning_rate\t0.04", text)
        bars = self.driver.execute_script("return document.querySelectorAll('svg .kind-training').length")
        self.assertGreaterEqual(report["generation"], 2)
        self.assertEqual(bars, report["generation"])
        self.assertEqual(self.driver.execute_script("return document.querySelectorAll('svg .mark').length"), 1)
        for width in (1280, 400):
            browser.resize(self.driver, width, 900)
            def fits(width=width):  # the curves are drawn anew behind the page's layout
                return self.driver.execute_script("return document.documentElement.scrollWidth") <= width
            wait_for(fits, f"a page of {width} pixels is not wider")
            self.assertGreater(self.driver.execute_script(
                "return Math.min(...[...document.querySelectorAll('.curves canvas')].map(c => c.clientWidth))"), 250)

    def test_two_runs_are_compared_in_one_picture(self):
        other = self.folder / "other"
        subprocess.run(job(other), check=True, stderr=subprocess.DEVNULL)
        run("report", "--compare", self.output, other, "-o", self.folder / "both.html")
        self.open(self.folder / "both.html")
        for letter, folder in (("A", self.output), ("B", other)):
            self.check_curve("loss", f"{letter} training",
                             [(line["step"], line["loss"]) for line in lines_of(folder / "metrics.jsonl", "train")])
        self.assertIn("train.learning_rate\t0.04\t0.05", self.driver.execute_script("return document.body.innerText"))
        told = json.loads(run("report", "--compare", self.output, other, "--json"))
        self.assertEqual([one["name"] for one in told["config"]], ["output_dir", "train.learning_rate"])

    def test_files_that_are_torn_missing_or_garbage_still_make_a_page(self):
        broken = self.folder / "broken"
        broken.mkdir()
        with open(broken / "metrics.jsonl", "wb") as torn:
            torn.write((self.output / "metrics.jsonl").read_bytes()[:-40])
        (broken / "events.jsonl").write_bytes(b"\xff\x00\n{}\n" + (self.output / "events.jsonl").read_bytes()[:-20])
        (broken / "config.json").write_text("{ half")
        run("report", broken)
        self.open(broken / "report.html")
        text = self.driver.execute_script("return document.body.innerText")
        self.assertIn("no report.json: it goes on (dtrun status), or its agents were killed", text)
        self.assertIn("metrics.jsonl: 1 line cannot be read and is left out", text)
        self.assertIn("events.jsonl: 3 lines cannot be read and are left out", text)
        self.assertIn("config.json is no JSON object, and is left out", text)
        self.check_curve("loss", "training", [(line["step"], line["loss"]) for line in lines_of(self.output / "metrics.jsonl", "train")])

    def test_a_log_directory_leads_to_the_metrics_and_its_newest_run_is_taken(self):
        logs, output = self.folder / "logs", self.folder / "logged"
        for name in ("first", "second"):
            subprocess.run([*job(output)[:2], "--rdzv_id", name, "--log_dir", logs, *job(output, "train.max_steps=5")[2:]], check=True,
                           stderr=subprocess.DEVNULL)
        shutil.rmtree(output / "checkpoints")
        page = json.loads(run("report", logs, "--json"))
        self.assertEqual(page["facts"]["run id"], "second")
        self.assertIn("has 2 runs; this is the newest, second", page["remarks"][0])
        self.assertEqual(page["facts"]["steps"], 5)  # metrics.jsonl is in the output directory
        self.assertEqual(page["config"]["output_dir"], str(output))

    def test_a_mistake_is_named_with_the_way_out(self):
        self.assertIn("nowhere: No such file or directory", run("report", "nowhere", code=66))
        self.assertIn("no run left anything here", run("report", ROOT / "docs", code=66))
        self.assertIn("--compare needs two runs", run("report", "--compare", self.output, code=64))
        self.assertIn("two runs are compared: dtrun report --compare A B", run("report", self.output, self.output, code=64))
        self.assertIn("-o FILE writes elsewhere", run("report", self.output, "-o", "/proc/nowhere/x.html", code=73))


if __name__ == "__main__":
    cases.run()
