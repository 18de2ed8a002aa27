#!/usr/bin/env python3
"""Tests the dashboard of deploy/grafana against live servers: tests/server/dashboard_test.py TESSERA

Catches: queries with a metric or label that does not exist in either style of metrics, and panels that Grafana does not
load.

The last line is "N passed, N failed"."""

import json
import re
import sys

from served import ROOT, Served, run_cases

DASHBOARD = ROOT / "deploy" / "grafana" / "tessera.json"
STYLES = ("sglang", "vllm")
FROM_PROMETHEUS = {"instance", "job"}  # labels that scraping adds
METRIC = re.compile(r"\b(?:sglang|vllm|tessera):\w+")


def samples(text):
    """Returns the label names of each metric."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", line)
        if match:
            found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found


def values_of(text, name, label):
    return set(re.findall(rf'^{re.escape(name)}\{{[^}}]*\b{label}="([^"]*)"', text, re.MULTILINE))


class Cases:
    def __init__(self, texts):
        self.texts = texts
        self.samples = {style: samples(text) for style, text in texts.items()}
        self.dashboard = json.loads(DASHBOARD.read_text())
        self.targets = [target for panel in self.dashboard["panels"] for target in panel["targets"]]

    def _styles_of(self, metric):
        prefix = metric.split(":")[0]
        return [prefix] if prefix in STYLES else list(STYLES)

    def every_metric_is_there(self):
        names = {name for target in self.targets for name in METRIC.findall(target["expr"])}
        assert len(names) > 30, names
        missing = [(name, style) for name in names for style in self._styles_of(name) if name not in self.samples[style]]
        assert not missing, missing

    def every_query_has_an_answer_in_both_styles(self):
        for target in self.targets:
            for style in STYLES:
                assert any(name in self.samples[style] for name in METRIC.findall(target["expr"])), (target, style)

    def every_label_is_there(self):
        for target in self.targets:
            for name, selector in re.findall(r"\b((?:sglang|vllm|tessera):\w+)\{([^}]*)\}", target["expr"]):
                for label, _, value in re.findall(r'(\w+)(=~?)"([^"]*)"', selector):
                    if label in FROM_PROMETHEUS:
                        continue
                    for style in self._styles_of(name):
                        assert value in values_of(self.texts[style], name, label), (target, style, label, value)

    def every_grouping_is_by_labels_of_the_metric(self):
        for target in self.targets:
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            for group in re.findall(r"\bby \(([^)]*)\)", target["expr"]):
                wanted |= {label.strip() for label in group.split(",")}
            for name in METRIC.findall(target["expr"]):
                for style in self._styles_of(name):
                    assert wanted - FROM_PROMETHEUS <= self.samples[style][name], (target, style, name, wanted)

    def every_query_names_the_servers_that_are_chosen(self):
        for target in self.targets:
            assert len(METRIC.findall(target["expr"])) == target["expr"].count('instance=~"$instance"'), target
            assert target["expr"].count("(") == target["expr"].count(")"), target

    def servers_of_both_styles_are_counted_together(self):
        for target in self.targets:
            sides = [len(re.findall(style + r":\w+", target["expr"])) for style in STYLES]
            assert sides[0] == sides[1], target
            # An "or" between two sums drops the second one wherever the first one exists.
            assert not re.search(r"\) or sum\(", target["expr"]), target

    def panels_are_distinct_and_do_not_overlap(self):
        panels = self.dashboard["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
        assert len(places) == len(panels)
        variables = {variable["name"] for variable in self.dashboard["templating"]["list"]}
        assert variables == {"datasource", "instance"}, variables


def main():
    texts = {}
    for style in STYLES:
        with Served(sys.argv[1], ["--metrics-style", style, "--cuda-graph-bs", "1,4"]) as server:
            status, body = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4, "n": 3})
            assert status == 200, body
            texts[style] = server.get("/metrics")[1]
    passed, failed = run_cases(Cases(texts))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
