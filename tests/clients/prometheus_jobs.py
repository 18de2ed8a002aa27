"""Prometheus: its parser of scrapes, and its own checker if that is installed."""

import shutil
import subprocess
import urllib.request

from jobs import KEY, URL, Skipped, check, main
from prometheus_client.parser import text_string_to_metric_families


def scrape():
    request = urllib.request.Request(URL + "/metrics", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def parsed():
    families = {family.name: family for family in text_string_to_metric_families(scrape())}
    check(families["tessera:steps"].type == "counter" and families["tessera:steps"].samples, sorted(families))


def promtool():
    if shutil.which("promtool") is None:
        raise Skipped("promtool is not installed")
    subprocess.run(["promtool", "check", "metrics"], input=scrape(), text=True, capture_output=True, timeout=60, check=True)


main(parsed, promtool)
