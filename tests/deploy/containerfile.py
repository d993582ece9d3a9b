#!/usr/bin/env python3
"""Runs the steps of a Containerfile without a container engine: each stage is a folder, and RUN a command in it.

  tests/deploy/containerfile.py CONTAINERFILE CONTEXT BASE OUT [NAME=VALUE]...

BASE stands for every image that FROM names, OUT is where stages are made, NAME=VALUE are build arguments. Stages that the last one does
not need are not run. Prints the last stage's folder, and its ENTRYPOINT, CMD, USER, ENV, WORKDIR and HEALTHCHECK, as JSON.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

RUN_IN = """
set -e
mount --make-rprivate / && mount --bind "$1" "$1" && cd "$1"
mkdir -p proc dev tmp && mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p .old && pivot_root . .old && umount -l .old && cd "$2"
exec sh -c "$3"
"""


def instructions(text):
    """(NAME, rest) of each."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    for line in joined.splitlines():
        if line.strip():
            name, rest = line.strip().split(None, 1)
            yield name.upper(), rest


def filled(text, values):
    def value(match):
        if match[1] not in values:
            sys.exit(f"${{{match[1]}}} is no argument of the Containerfile")
        return values[match[1]]

    return re.sub(r"\$\{(\w+)\}", value, text)


def stages(text, given):
    """In their order: {"name", "from", "steps"}."""
    values, found = {}, []
    for name, rest in instructions(text):
        if name == "ARG" and not found:
            argument, _, default = rest.partition("=")
            values[argument] = given.get(argument, default)
        elif name == "FROM":
            base, _, stage = re.fullmatch(r"(\S+)(\s+AS\s+(\S+))?", filled(rest, values), re.I).groups()
            found.append({"name": stage or "", "from": base, "steps": []})
        elif name in ("RUN", "COPY", "ENV", "USER", "WORKDIR", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
            found[-1]["steps"].append((name, rest))
        else:
            sys.exit(f"{name} is not known here")
    unknown = set(given) - set(values)
    if unknown:
        sys.exit(f"no ARG takes {', '.join(sorted(unknown))}")
    return found


class Builder:
    def __init__(self, all_stages, context, base, out):
        self.stages = {stage["name"]: stage for stage in all_stages}
        self.context, self.base, self.out = context, base, out
        self.built = {}

    def build(self, stage):
        """Its folder and settings; what it needs first."""
        if stage["name"] in self.built:
            return self.built[stage["name"]]
        root = os.path.join(self.out, stage["name"] or "last")
        settings = {"env": {}, "user": "0:0", "workdir": "/"}
        if stage["from"] == "scratch":
            os.mkdir(root)
        elif stage["from"] in self.stages:
            below = self.build(self.stages[stage["from"]])
            settings = json.loads(json.dumps(below["settings"]))
            self.copy_tree(below["root"], root)
        else:
            print(f"FROM {stage['from']}: {self.base}", file=sys.stderr)
            self.copy_tree(self.base, root)
        for name, rest in stage["steps"]:
            print(f"{stage['name'] or 'last'}: {name} {rest[:150]}", file=sys.stderr)
            self.step(root, settings, name, rest)
        self.built[stage["name"]] = {"root": root, "settings": settings}
        return self.built[stage["name"]]

    @staticmethod
    def copy_tree(source, to):
        subprocess.run(["cp", "-a", "--reflink=auto", source, to], check=True)

    def step(self, root, settings, name, rest):
        if name == "RUN":
            environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **settings["env"]}
            subprocess.run(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i"]
                + [f"{key}={value}" for key, value in environment.items()]
                + ["bash", "-c", RUN_IN, "run", root, settings["workdir"], rest],
                check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        elif name == "COPY":
            self.copy(root, settings, shlex.split(rest))
        elif name == "ENV":
            for word in shlex.split(rest):
                key, _, value = word.partition("=")
                settings["env"][key] = value
        elif name == "WORKDIR":
            settings["workdir"] = rest
            os.makedirs(root + rest, exist_ok=True)
        elif name == "HEALTHCHECK":
            settings["healthcheck"] = rest.split("CMD ", 1)[1]
        elif name in ("ENTRYPOINT", "CMD"):
            settings[name.lower()] = json.loads(rest)
        elif name == "USER":
            settings["user"] = rest

    def copy(self, root, settings, words):
        source_root = self.context
        if words[0].startswith("--from="):
            source_root = self.build(self.stages[words.pop(0)[len("--from="):]])["root"]
        *sources, to = words
        target = os.path.join(root, os.path.join(settings["workdir"], to).lstrip("/"))
        for source in sources:
            path = os.path.join(source_root, source.lstrip("/"))
            if os.path.isdir(path):
                shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(path, target)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    containerfile, context, base, out = (os.path.abspath(path) for path in sys.argv[1:5])
    given = dict(word.split("=", 1) for word in sys.argv[5:])
    with open(containerfile) as file:
        all_stages = stages(file.read(), given)
    print(json.dumps(Builder(all_stages, context, base, out).build(all_stages[-1])))


if __name__ == "__main__":
    main()
