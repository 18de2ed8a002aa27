#!/usr/bin/env python3
"""Tests deploy/ for several machines: tests/deploy/deploy_test.py TESSERA

Catches: a manifest that Kubernetes would refuse, or whose two pods differ, or with flags that the program does not know,
a server that listens on all addresses without a key, and a Slurm script that does not start, does not pass the first
machine's address, does not restart failed processes, or does not end.

The schemas below check the manifest's form. They have exactly the fields that the manifest uses, with the names and
types that Kubernetes defines. Slurm is replaced by a few lines that start srun's command on this machine.
The last line is "N passed, N failed"."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFEST = KUBERNETES / "leaderworkerset.yaml"
GATEWAYS = ("kserve.yaml", "llm-d.yaml")
CONTAINER_SERVE = ROOT / "deploy" / "container" / "serve"
SBATCH = ROOT / "deploy" / "slurm" / "tessera.sbatch"
MODEL = ROOT / "models" / "demo"

TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}


def object_of(required, **fields):
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def list_of(item):
    return {"type": "array", "items": item, "minItems": 1}


TEXTS = {"type": "object", "additionalProperties": TEXT}
METADATA = object_of([], name=NAME, labels=TEXTS, annotations=TEXTS)
PROBE = object_of(["httpGet"], httpGet=object_of(["path", "port"], path=TEXT, port=NAME), periodSeconds=NUMBER,
                  failureThreshold=NUMBER)
QUANTITIES = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[0-9]+(Gi|Mi|m)?$"}}
CONTAINER = object_of(
    ["name", "image", "command", "args"], name=NAME, image=TEXT, command=list_of(TEXT), args=list_of(TEXT),
    env=list_of({"oneOf": [object_of(["name", "value"], name=TEXT, value=TEXT),
                           object_of(["name", "valueFrom"], name=TEXT, valueFrom=object_of(
                               ["secretKeyRef"], secretKeyRef=object_of(["name", "key"], name=NAME, key=NAME)))]}),
    ports=list_of(object_of(["containerPort"], name=NAME, containerPort=NUMBER)), startupProbe=PROBE, readinessProbe=PROBE,
    livenessProbe=PROBE, resources=object_of([], requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=list_of(object_of(["name", "mountPath"], name=NAME, mountPath=TEXT, readOnly={"type": "boolean"})))
VOLUME = object_of(["name"], name=NAME, persistentVolumeClaim=object_of(["claimName"], claimName=NAME), emptyDir=object_of([]))
POD = object_of(["spec"], metadata=METADATA,
                spec=object_of(["containers"], containers=list_of(CONTAINER), volumes=list_of(VOLUME),
                               terminationGracePeriodSeconds=NUMBER))
SCHEMAS = {
    "LeaderWorkerSet": object_of(
        ["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": "leaderworkerset.x-k8s.io/v1"}, kind=TEXT,
        metadata=METADATA,
        spec=object_of(["leaderWorkerTemplate"], replicas=NUMBER, leaderWorkerTemplate=object_of(
            ["workerTemplate"], size=NUMBER, leaderTemplate=POD, workerTemplate=POD,
            restartPolicy={"enum": ["RecreateGroupOnPodRestart", "None", "Default"]}))),
    "Service": object_of(
        ["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": "v1"}, kind=TEXT, metadata=METADATA,
        spec=object_of(["ports"], selector=TEXTS,
                       ports=list_of(object_of(["port"], name=NAME, port=NUMBER, targetPort=NAME)))),
}

def resource(version, spec):
    return object_of(["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": version}, kind=TEXT, metadata=METADATA, spec=spec)


FORMAT = object_of(["name"], name=NAME, version=TEXT, autoSelect={"type": "boolean"})
GATEWAY_SCHEMAS = {
    "ServingRuntime": resource("serving.kserve.io/v1alpha1", object_of(
        ["containers"], supportedModelFormats=list_of(FORMAT), containers=list_of(CONTAINER))),
    "InferenceService": resource("serving.kserve.io/v1beta1", object_of(["predictor"], predictor=object_of(
        ["model"], minReplicas=NUMBER, terminationGracePeriodSeconds=NUMBER, model=object_of(
            ["modelFormat", "storageUri"], modelFormat=FORMAT, runtime=NAME, storageUri=TEXT)))),
    "Deployment": resource("apps/v1", object_of(
        ["selector", "template"], replicas=NUMBER, selector=object_of(["matchLabels"], matchLabels=TEXTS), template=POD)),
    "HTTPRoute": resource("gateway.networking.k8s.io/v1", object_of(
        ["parentRefs", "rules"], parentRefs=list_of(object_of(["name"], name=NAME)), rules=list_of(object_of(
            ["backendRefs"], backendRefs=list_of(object_of(["name"], group=TEXT, kind=TEXT, name=NAME)),
            timeouts=object_of([], request={"type": "string", "pattern": "^[0-9]+(h|m|s|ms)$"}))))),
}
SRUN = """#!/usr/bin/env bash
# Starts the command behind the flags once for each machine, and ends with the first that fails.
trap 'signalled=1; kill -TERM "${started[@]}"' TERM  # srun passes on the signals that it gets
while [[ $1 == -* ]]; do shift; done
for ((place = 0; place < SLURM_NTASKS; ++place)); do
  SLURM_PROCID=$place "$@" &
  started+=($!)
done
echo "${started[@]}" > "${0%/*}/started"
for process in "${started[@]}"; do
  signalled=1
  while [ "$signalled" = 1 ]; do
    signalled=0
    ended=0
    wait "$process" || ended=$?
  done
  [ "$ended" = 0 ] || status=$ended
done
exit "${status:-0}"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cases:
    def __init__(self, tessera):
        self.tessera = tessera
        self.documents = {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}

    def the_manifest_has_its_form(self):
        assert set(self.documents) == set(SCHEMAS)
        for kind, document in self.documents.items():
            jsonschema.validate(document, SCHEMAS[kind], cls=jsonschema.Draft7Validator)

    @staticmethod
    def the_gateways_manifests_have_their_form():
        found = [document for name in GATEWAYS for document in yaml.safe_load_all((KUBERNETES / name).read_text())]
        assert {document["kind"] for document in found} == set(GATEWAY_SCHEMAS)
        for document in found:
            jsonschema.validate(document, GATEWAY_SCHEMAS[document["kind"]], cls=jsonschema.Draft7Validator)

    def gateways_run_commands_that_there_are(self):
        of_kind = {document["kind"]: document for name in GATEWAYS for document in yaml.safe_load_all((KUBERNETES / name).read_text())}
        runtime, service = of_kind["ServingRuntime"]["spec"], of_kind["InferenceService"]["spec"]["predictor"]
        deployment = of_kind["Deployment"]["spec"]
        pod = deployment["template"]["spec"]
        assert service["model"]["runtime"] == of_kind["ServingRuntime"]["metadata"]["name"]
        assert service["model"]["modelFormat"]["name"] == runtime["supportedModelFormats"][0]["name"]
        assert deployment["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
        style = deployment["template"]["metadata"]["labels"]["llm-d.ai/engine-type"]
        for container, grace in ((runtime["containers"][0], service["terminationGracePeriodSeconds"]),
                                 (pod["containers"][0], pod["terminationGracePeriodSeconds"])):
            words = [word.replace("{{.Name}}", "chat").replace("/mnt/models", "/model").replace("/model", str(MODEL), 1)
                     if "--model-path" in word or "{{" in word else word for word in container["args"]]
            done = subprocess.run([self.tessera, "serve", *words, "--print-config"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            config = yaml.safe_load(done.stdout)
            assert config["port"] == container["ports"][0]["containerPort"], config
            assert config["metrics-style"] == style, config
            assert float(config["drain-timeout"]) < grace, config
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}

    def the_schemas_find_faults(self):
        group = json.loads(json.dumps(self.documents["LeaderWorkerSet"]))
        group["spec"]["leaderWorkerTemplate"]["sise"] = 2
        try:
            jsonschema.validate(group, SCHEMAS["LeaderWorkerSet"], cls=jsonschema.Draft7Validator)
        except jsonschema.ValidationError as error:
            assert "sise" in str(error)
        else:
            raise AssertionError("a field that there is not was accepted")

    def the_names_of_a_manifest_meet(self):
        template = self.documents["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
        for pod in (template["leaderTemplate"], template["workerTemplate"]):
            volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
            for container in pod["spec"]["containers"]:
                assert {mount["name"] for mount in container["volumeMounts"]} == volumes
                ports = {port["name"] for port in container.get("ports", [])}
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    assert probe not in container or container[probe]["httpGet"]["port"] in ports
        service = self.documents["Service"]["spec"]
        labels = template["leaderTemplate"]["metadata"]["labels"]
        assert service["selector"] == {"leaderworkerset.sigs.k8s.io/name": "tessera", **labels}

    def both_pods_run_a_command_that_there_is(self):
        template = self.documents["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
        commands = []
        for place, pod in enumerate((template["leaderTemplate"], template["workerTemplate"])):
            container = pod["spec"]["containers"][0]
            words = [*container["command"], *container["args"]]
            commands.append(words)
            for name, value in (("LWS_GROUP_SIZE", template["size"]), ("LWS_WORKER_INDEX", place), ("LWS_LEADER_ADDRESS", "leader")):
                words = [word.replace(f"$({name})", str(value)) for word in words]
            assert "$(" not in " ".join(words), words
            words = [word.replace("/model", str(MODEL)) for word in words]
            done = subprocess.run([self.tessera, *words[1:], "--print-config"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            config = yaml.safe_load(done.stdout)
            assert (config["nnodes"], config["node-rank"], config["dist-init-addr"]) == (2, place, "leader:29500"), config
            assert config["tp-size"] % config["nnodes"] == 0
            # Kubernetes kills a pod that has not ended by this time. A following node waits 10 s longer than node 0.
            needed = float(config["drain-timeout"]) + 10
            assert pod["spec"]["terminationGracePeriodSeconds"] >= needed, (place, needed)
        assert commands[0] == commands[1]

    def pods_take_their_key_from_a_secret(self):
        template = self.documents["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
        for pod in (template["leaderTemplate"], template["workerTemplate"]):
            container = pod["spec"]["containers"][0]
            assert "--host=0.0.0.0" in container["args"]
            variables = {variable["name"]: variable for variable in container["env"]}
            secret = variables["TESSERA_API_KEY"]["valueFrom"]["secretKeyRef"]
            assert f"kubectl create secret generic {secret['name']} --from-literal={secret['key']}=" in MANIFEST.with_name("README.md").read_text()

    def a_slurm_job_needs_a_key(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("srun", "#!/bin/sh\necho started\n"), ("scontrol", "#!/bin/sh\necho a1\n")):
                path = pathlib.Path(folder, name)
                path.write_text(text)
                path.chmod(0o755)
            pathlib.Path(folder, "tessera").symlink_to(pathlib.Path(self.tessera).resolve())
            plain = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
            plain |= {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "a1"}
            for words, variables, starts in (((), {}, False), ((), {"TESSERA_API_KEY": "secret"}, True),
                                             (("--api-key-file", "/srv/keys"), {}, True), (("--api-key=secret",), {}, True),
                                             ((), {"TESSERA_WITHOUT_KEY": "yes"}, True), ((), {"TESSERA_API_KEY": ""}, False)):
                told = subprocess.run([SBATCH, MODEL, *words], env={**plain, **variables}, capture_output=True, text=True, check=False)
                assert (told.returncode, told.stdout) == ((0, "started\n") if starts else (2, "")), (words, variables, told)
                assert starts or "has no key: set TESSERA_API_KEY" in told.stderr, told

    def the_slurm_script_serves_and_ends(self):
        lines = SBATCH.read_text().splitlines()
        flags = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
        assert flags and lines.index(f"#SBATCH {flags[-1]}") < lines.index("set -euo pipefail"), "Slurm reads none after commands"
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho 127.0.0.1\necho 127.0.0.3\n")):
                path = pathlib.Path(folder, name)
                path.write_text(text)
                path.chmod(0o755)
            pathlib.Path(folder, "tessera").symlink_to(pathlib.Path(self.tessera).resolve())
            port = free_port()
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "a[1-2]",
                           "MASTER_PORT": str(free_port()), "PORT": str(port), "TESSERA_CACHE_DIR": folder, "TESSERA_API_KEY": "secret"}
            with open(f"{folder}/said", "w+", encoding="utf-8") as said:
                job = subprocess.Popen([str(SBATCH), str(MODEL), "--context-length", "128", "--cuda-graph-bs", "1",
                                        "--piecewise-cuda-graph-tokens", "16", "--max-running-requests", "2", "--drain-notice", "2"],
                                       env=environment,
                                       stdout=said, stderr=said, start_new_session=True)
                try:
                    self._ask(port, job, pathlib.Path(said.name).read_text)
                    # If one process dies, the others end, and all are restarted.
                    os.kill(int(pathlib.Path(folder, "started").read_text().split()[1]), signal.SIGKILL)
                    self._wait_until_gone(port)
                    self._ask(port, job, pathlib.Path(said.name).read_text)
                    # Slurm signals the processes of the step and, at a cancellation, the script too.
                    started = pathlib.Path(folder, "started").read_text().split()
                    for process in (*map(int, started), job.pid):
                        os.kill(process, signal.SIGTERM)
                    assert job.wait(40) == 0, job.returncode
                finally:
                    try:
                        os.killpg(job.pid, signal.SIGKILL)  # fails if all have ended
                        left = job.poll() is not None
                    except ProcessLookupError:
                        left = False
                    said.seek(0)
                    text = said.read()
                assert not left, f"processes stayed behind: {text}"
                assert "Stopping: requests under way" in text and "Stopping at once" not in text, text
                assert "--nnodes 2 and --node-rank 1 by SLURM_NTASKS and SLURM_PROCID" in text, text
                assert text.count("tessera: error: node 1 of 2 (") == 1 and text.count("it is started anew") == 1, text

    @staticmethod
    def a_job_told_to_stop_between_two_starts_starts_no_more():
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("srun", '#!/bin/sh\necho a start >> "${0%/*}/starts"\nexit 1\n'), ("scontrol", "#!/bin/sh\necho a1\n")):
                path = pathlib.Path(folder, name)
                path.write_text(text)
                path.chmod(0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "a1",
                           "TESSERA_API_KEY": "secret"}
            with subprocess.Popen([str(SBATCH), str(MODEL)], env=environment, stderr=subprocess.PIPE, text=True) as job:
                said = job.stderr.readline()
                job.send_signal(signal.SIGTERM)
                assert job.wait(20) == 1
            assert "it is started anew" in said, said
            assert pathlib.Path(folder, "starts").read_text().splitlines() == ["a start"]

    def container_starts_with_a_key_or_where_none_is_wanted(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, config = pathlib.Path(folder, "keys"), pathlib.Path(folder, "serve.yaml")
            keys.write_text("secret\n")
            for text, starts in (("port: 0\n", False), (f"api-key-file: {keys}\n", True), ("api-key: [one, two]\n", True)):
                config.write_text(text)
                assert self._container_starts("--config", config) == starts, text
        assert not self._container_starts()
        assert not self._container_starts("--port", "0", TESSERA_API_KEY="")
        assert self._container_starts("--api-key", "secret")
        assert self._container_starts("--api-key-file=keys")
        assert self._container_starts(TESSERA_API_KEY="secret")
        assert self._container_starts(TESSERA_WITHOUT_KEY="yes")
        assert not self._container_starts(TESSERA_WITHOUT_KEY="no")

    def _container_starts(self, *words, **environment):
        """Returns whether the image's entry point runs the server, which a stand-in replaces here. The stand-in passes
        --print-config to the program."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "tessera")
            program.write_text('#!/bin/sh\ncase "$*" in *--print-config) exec "$REAL" "$@" ;; esac\necho started\n')
            program.chmod(0o755)
            plain = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
            told = subprocess.run([CONTAINER_SERVE, "--model-path", MODEL, *words], capture_output=True, text=True, check=False,
                                  env={**plain, "REAL": self.tessera, "TESSERA_PROGRAM": str(program), **environment})
            if told.returncode == 0:
                assert told.stdout == "started\n", told
                return True
            assert told.returncode == 2 and "has no key" in told.stderr, told
            return False

    @staticmethod
    def _wait_until_gone(port):
        deadline = time.monotonic() + 20
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close()
            except urllib.error.HTTPError:  # the server answers with an error while it ends
                pass
            except OSError:
                return
            assert time.monotonic() < deadline, "the first process stays"
            time.sleep(0.02)

    @staticmethod
    def _ask(port, job, said):
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                assert job.poll() is None and time.monotonic() < deadline, f"the server did not start: {said()}"
                time.sleep(0.1)


def main():
    sys.path.insert(0, str(ROOT / "tests" / "server"))
    from served import run_cases  # pylint: disable=import-outside-toplevel
    passed, failed = run_cases(Cases(sys.argv[1]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
