#!/usr/bin/python3
"""Every metric and label in deploy/monitoring is one that a server exports, and docs/metrics.md explains every metric.

Usage: monitoring.py TROUPE SOURCE_DIR. Starts a server on the embedded model, asks it for an answer and for one that
its limits refuse, and reads `troupe status --prometheus`.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

EXPORTED_BY_OTHERS = {"node_textfile_mtime_seconds": {"file"}}  # of node_exporter
# Labels whose values are exported once something has happened.
OPEN_LABELS = {("troupe:frames_total", "kind"), ("troupe:frames_total", "outcome")}
PATIENCE_SECONDS = 60


def fail(why):
    sys.exit(f"monitoring: {why}")


def exported(troupe, folder):
    """The metrics of a server, {sample's name: {label: {values}}}, histograms also as _bucket, _sum and _count."""
    socket = f"{folder}/t.sock"
    server = subprocess.Popen([troupe, "serve", "--config", "/dev/null", "--socket", socket, "--threads", "1",
                               "--max-requests-per-user", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        def run(*arguments, expected):
            result = subprocess.run([troupe, *arguments, "--socket", socket], stdin=subprocess.DEVNULL,
                                    capture_output=True, text=True, timeout=PATIENCE_SECONDS)
            if result.returncode not in expected:
                fail(f"troupe {' '.join(arguments)} ended with {result.returncode}: {result.stderr}")
            return result
        until = time.monotonic() + PATIENCE_SECONDS
        while run("status", expected=range(256)).returncode != 0:
            if server.poll() is not None or time.monotonic() > until:
                server.kill()
                fail(f"the server does not serve: {server.stderr.read().decode()}")
        run("run", "-n", "4", "Once upon a time", expected=[0])
        run("run", "-n", "4", "--choices", "3", "Once upon a time", expected=[2])
        text = run("status", "--prometheus", expected=[0]).stdout
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_SECONDS)
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+", line).groups()
        values = found.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""):
            values.setdefault(label, set()).add(value)
    return found


def check_expression(where, expression, metrics):
    """Names, labels of matchers and of by (...), and values that are compared with =; returns the names."""
    names = re.findall(r"(?<![\w:$\"])((?:troupe:|node_)[\w:]+)(?:\{([^}]*)\})?", expression)
    if not names:
        fail(f"{where}: there is no metric in {expression}")
    labels_of_all = set()
    for name, matchers in names:
        if name in EXPORTED_BY_OTHERS:
            labels_of_all |= EXPORTED_BY_OTHERS[name]
            continue
        if name not in metrics:
            fail(f"{where}: no server exports {name}")
        labels_of_all |= set(metrics[name])
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers or ""):
            if label not in metrics[name]:
                fail(f"{where}: {name} has no label {label}")
            if operator == "=" and value not in metrics[name][label] and (name, label) not in OPEN_LABELS:
                fail(f"{where}: {name} has no {label}=\"{value}\"")
    for group in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression):
        for label in filter(None, re.split(r"[,\s]+", group)):
            if label not in labels_of_all:
                fail(f"{where}: no metric of {expression} has a label {label}")
    if expression.count("(") != expression.count(")") or expression.count("{") != expression.count("}"):
        fail(f"{where}: the parentheses of {expression} do not match")
    return labels_of_all, {name for name, _ in names}


def check_dashboard(path, metrics):
    dashboard = json.loads(path.read_text())
    used = set()
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        fail("two panels have one id")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            expression, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            if label not in check_expression(f"variable {variable['name']}", expression, metrics)[0]:
                fail(f"variable {variable['name']}: {expression} has no label {label}")
    for panel in dashboard["panels"]:
        if panel["type"] != "row" and not panel.get("targets"):
            fail(f"panel {panel['title']} shows nothing")
        for target in panel.get("targets", []):
            labels, names = check_expression(f"panel {panel['title']}", target["expr"], metrics)
            used |= names
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                if label not in labels:
                    fail(f"panel {panel['title']}: {target['expr']} has no label {label}")
    return used


def read_rules(path):
    """The rules, each {key: text}. Reads no more of YAML than alerts.yaml has: one key and one scalar a line."""
    rules = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"( *)(- )?(\w+):(?: (.*))?", line)
        if not match or len(match[1]) % 2 or "\t" in line:
            fail(f"{path.name}:{number}: not a line of this file: {line}")
        if match[2] and match[3] == "alert":
            rules.append({})
        if rules and match[4]:
            rules[-1][match[3]] = match[4].strip()
    try:
        import yaml
    except ImportError:
        return rules
    parsed = [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    if [rule["expr"] for rule in parsed] != [rule["expr"] for rule in rules]:
        fail(f"{path.name} is not what it looks like")
    return rules


def check_rules(path, metrics):
    names = set()
    for rule in read_rules(path):
        where = f"alert {rule['alert']}"
        for key in ("expr", "severity", "summary", "description"):
            if key not in rule:
                fail(f"{where} has no {key}")
        if rule["alert"] in names:
            fail(f"{where} is there twice")
        names.add(rule["alert"])
        if rule["severity"] not in ("info", "warning", "critical"):
            fail(f"{where}: severity is {rule['severity']}")
        labels, _ = check_expression(where, rule["expr"], metrics)
        for label in re.findall(r"\$labels\.(\w+)", rule["summary"] + rule["description"]):
            if label not in labels:
                fail(f"{where}: {rule['expr']} has no label {label}")
    if not names:
        fail("there are no alerts")
    promtool = shutil.which("promtool")
    if promtool:
        subprocess.run([promtool, "check", "rules", str(path)], check=True)
    return len(names)


def documented_names(page):
    """What docs/metrics.md has in backticks; `a_running`, `_waiting` on one line are a_running and a_waiting."""
    names = set()
    for line in page.read_text().splitlines():
        words = [re.sub(r"\{.*", "", word) for word in re.findall(r"`([^`]+)`", line)]
        for word in words:
            if word.startswith("_"):
                names |= {first[:first.rindex("_")] + word for first in words if "_" in first[1:]}
            names.add(word)
    return names


def main():
    troupe, source = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="troupe-monitoring-") as folder:
        metrics = exported(troupe, folder)
    documented = documented_names(source / "docs/metrics.md")
    families = {re.sub(r"(_seconds)(_bucket|_sum|_count)$", r"\1", name) for name in metrics}
    for family in families:
        if family.removeprefix("troupe:") not in documented:
            fail(f"docs/metrics.md does not explain {family}")
    used = check_dashboard(source / "deploy/monitoring/dashboard.json", metrics)
    alerts = check_rules(source / "deploy/monitoring/alerts.yaml", metrics)
    print(f"{len(families)} metrics, {len(used)} in the dashboard, {alerts} alerts")


main()
