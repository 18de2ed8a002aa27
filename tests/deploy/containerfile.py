"""Runs a Containerfile's steps in chroots of Debian 12, for machines without a container runtime.

    stages = Containerfile("Containerfile").build(folder, base, {})

Supports the instructions that our Containerfile has and refuses others. It does not isolate as a runtime does: RUN
shares this machine's network and processes. Needs root."""

import fnmatch
import os
import pathlib
import re
import shlex
import shutil
import subprocess

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def read_instructions(text):
    """Yields (NAME, rest) of each instruction, without comments and line breaks."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def read_words(rest):
    """Returns the value of a COPY's --from (or None), followed by its words."""
    words = rest.split()
    source = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    return source, words


def list_files(root):
    """Returns the files of a layer: path → (size, kind and rights, owner, group, time)."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]:
            path = os.path.join(folder, name)
            state = os.lstat(path)
            found[path] = (state.st_size, state.st_mode, state.st_uid, state.st_gid, state.st_mtime_ns)
    return found


class Stage:
    """`root` is the folder of the stage's files; `layers` has (instruction, bytes of the files that it added or changed)."""

    def __init__(self, root):
        self.root = root
        self.environment = {"PATH": PATH}
        self.user, self.folder, self.entry, self.command = "root", "/", [], []
        self._files = list_files(root)
        self.layers = [("FROM", sum(state[0] for state in self._files.values()))]

    def close_layer(self, instruction):
        files = list_files(self.root)
        size = sum(state[0] for path, state in files.items() if self._files.get(path) != state)
        self.layers.append((instruction, size))
        self._files = files

    def inside(self, command, binds=(), network=True):
        """Returns the command line that runs `command` in the stage, as its user, with /proc and `binds` of (folder
        here, path there). The mounts belong to the command's process alone and end with it. Without `network`, this
        process has only a loopback interface of its own."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        if "HOME" not in self.environment:
            variables.append("HOME=" + ("/root" if self.user == "root" else "/"))
        before = [f"mount -t proc proc {shlex.quote(str(self.root / 'proc'))}"]
        for here, there in binds:
            target = self.root / there.lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            before.append(f"mount --bind {shlex.quote(here)} {shlex.quote(str(target))}")
        if not network:
            before.append("ip link set lo up")
        return ["unshare", "--mount", *([] if network else ["--net"]), "/bin/sh", "-c", " && ".join([*before, 'exec "$@"']), "sh",
                "chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i", *variables, *command]


class Containerfile:
    """`environment` and `binds` apply while RUN runs, and are not in the image, like podman build's --env and
    --volume."""

    def __init__(self, path, environment=None, binds=()):
        self.context = pathlib.Path(path).resolve().parent
        self.instructions = read_instructions(pathlib.Path(path).read_text())
        self.environment, self.binds = environment or {}, binds
        ignored = self.context / ".containerignore"
        self.ignored = ignored.read_text().split() if ignored.exists() else []

    def build(self, folder, base, given):
        """Returns the stages by name, the last one as "". `base` is the folder of a Debian that stands for FROM's
        image. A stage that the mapping `given` names is not built: `given` has its folder."""
        stages = {}
        stage, name = None, ""
        for instruction, rest in self.instructions:
            if instruction == "FROM":
                image, _, name = (part.strip() for part in rest.partition(" AS "))
                if not image.startswith("debian:12"):
                    raise ValueError(f"FROM {image}: only Debian 12 stands ready")
                if name in given:
                    stage = None
                    stages[name] = pathlib.Path(given[name])
                    continue
                root = folder / (name or "image")
                subprocess.run(["cp", "-a", base, root], check=True)
                shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
                stage = Stage(root)
                stages[name] = stage
            elif stage is not None:
                self._apply(stage, stages, instruction, rest)
        return stages

    def _apply(self, stage, stages, instruction, rest):
        if instruction == "RUN":
            self._run(stage, rest)
        elif instruction == "COPY":
            self._copy(stage, stages, rest)
        elif instruction == "ENV":
            stage.environment |= dict(word.split("=", 1) for word in rest.split())
        elif instruction == "USER":
            stage.user = rest
        elif instruction == "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "ENTRYPOINT":
            stage.entry = read_list(rest)
        elif instruction == "CMD":
            stage.command = read_list(rest)
        elif instruction not in ("VOLUME", "EXPOSE"):  # these inform a runtime and change no file
            raise ValueError(f"{instruction}: this instruction is not known here")

    def _run(self, stage, rest):
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        command = stage.inside(["/usr/bin/env", *variables, "/bin/sh", "-c", f"cd {stage.folder} && {rest}"], self.binds)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"RUN {rest}: exit status {done.returncode}")
        stage.close_layer(f"RUN {rest}")

    def _copy(self, stage, stages, rest):
        name, (*sources, target) = read_words(rest)
        origin = self.context if name is None else stages[name]
        if isinstance(origin, Stage):
            origin = origin.root
        there = stage.root / target.lstrip("/")
        for pattern in sources:
            found = [self.context] if pattern == "." else sorted(origin.glob(pattern.lstrip("/")))
            if not found:
                raise RuntimeError(f"COPY {rest}: there is no {pattern}")
            for source in found:
                if source.is_dir():
                    shutil.copytree(source, there, symlinks=True, dirs_exist_ok=True, ignore=self._ignore)
                else:
                    there.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, there)
        stage.close_layer(f"COPY {rest}")

    def _ignore(self, folder, names):
        if pathlib.Path(folder) != self.context:
            return []
        return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in self.ignored)]


def read_list(rest):
    """Returns the words of the form ["a", "b"]."""
    words = re.findall(r'"([^"]*)"', rest)
    if not rest.startswith("[") or not words:
        raise ValueError(f"{rest}: the form with brackets is expected")
    return words
