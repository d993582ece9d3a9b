#!/usr/bin/env python3
"""Every flag that a document or a file of deploy/ names is one that the program has, by its own --help; and the units of systemd fit the programs' times.

Looked at: command lines of deploy/, and of code in README.md and docs/*.md; sections of configuration files in them; and flags that stand alone in
`code`.
"""
import glob
import os
import re
import shlex
import subprocess
import sys

PROGRAMS = {
    "coordinator": "coordinator/coordinator",
    "skein": "client/skein",
    "supervisor": "supervisor/supervisor",
    "worker": "worker/worker",
}
# Other words for them.
ALSO = {"launch.sh": "supervisor", "$skein": "skein"}
# Of all programs, and not in --help.
HIDDEN = {"--help-man", "--help-completion"}
# Commands that a command's help tells in words.
TOLD_IN_WORDS = {("skein", ("bench",)): ["serve", "scale"]}
# What may stand before a program.
STARTERS = {"mpirun", "srun", "sudo", "exec", "timeout", "nohup"}
# Behind these, flags are another program's, too: `skein bench` starts the worker, `skein serve` a coordinator, which reads what `skein model add` is
# told of a model.
PASSED_ON = {
    ("serve",): "coordinator",
    ("model", "add"): "coordinator",
    ("bench",): "worker",
    ("perplexity",): "worker",
    ("imatrix",): "worker",
}
END = re.compile(r"^(;|&&?|\|\|?|\)|>.*|<.*|2>.*|#.*|do|done|then|fi)$")
FLAG = re.compile(r"^--[a-z][a-z0-9-]*")

failures, checked = [], {"commands": 0, "flags": 0, "keys": 0, "alone": 0}


def fail(where, what):
    failures.append(f"{where}: {what}")


def read_help(text):
    """The flags and the commands that --help tells. Descriptions stand farther right, or behind them."""
    flags, commands, in_commands = {}, [], False
    for line in text.splitlines():
        indentation = len(line) - len(line.lstrip())
        if indentation == 0:
            in_commands = line.lower() == "subcommands:"
        elif indentation > 6:
            continue
        elif in_commands:
            commands.append(line.split()[0])
        elif line.lstrip().startswith("-"):
            names = line.strip().split("  ")[0]
            for name in re.findall(r"--[a-z][a-z0-9-]*", names.split(" ")[0]):
                default = re.search(r"=(\S+)", names.split(" ", 1)[-1])
                flags[name] = default[1] if default else ""
    # Positional arguments are keys of a file, like MODEL.
    positionals = re.findall(r"^  ([A-Za-z]+) TEXT", text, re.M)
    return flags, commands, positionals


class Commands:
    """Flags by (program, words of a command)."""

    def __init__(self):
        self.flags, self.commands, self.positionals = {}, {}, {}
        for name, path in PROGRAMS.items():
            self.add(name, path, ())

    def add(self, name, path, words):
        out = subprocess.run([path, *words, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
        flags, commands, positionals = read_help(out.split("\nUsage:", 2)[0] if out.count("\nUsage:") > 1 else out)
        self.flags[name, words], self.commands[name, words], self.positionals[name, words] = flags, commands, positionals
        commands += TOLD_IN_WORDS.get((name, words), [])
        for command in commands:
            self.add(name, path, words + (command,))

    def all_of(self, name):
        return set().union(*(flags for (program, _), flags in self.flags.items() if program == name))


def program_of(words, index):
    """Of the program that stands there; None where it is a folder, a name or a value."""
    folder, base = os.path.split(words[index].strip("\"'"))
    base = ALSO.get(base, base)
    if base not in PROGRAMS:
        return None
    if folder:
        return base if base != "skein" or os.path.basename(folder) in ("bin", "client") else None
    begins = index == 0 or END.match(words[index - 1]) or re.match(r"[A-Z_]+=", words[index - 1])
    started = any(os.path.basename(word) in STARTERS for word in words[:index])
    # "-n skein" is a value.
    return base if begins or (started and not words[index - 1].startswith("-")) else None


def words_of(line):
    """As a shell parts them, roughly: documents have <this> and $that."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();|&")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        return list(lexer)
    except ValueError:
        return line.split()


def check_flag(commands, name, words, flag, where):
    checked["flags"] += 1
    known = set()
    for depth in range(len(words) + 1):
        known |= set(commands.flags[name, words[:depth]])
    if flag in known or flag in HIDDEN:
        return
    other = next((other for before, other in PASSED_ON.items() if words[: len(before)] == before), None)
    if name == "skein" and other is not None:
        if flag in (commands.flags[other, ()] if other == "coordinator" else commands.all_of(other)):
            return
    fail(where, f"{' '.join((name,) + words)} has no {flag}")


def check_command(commands, name, rest, where):
    """The words behind a program's name, up to the command's end."""
    checked["commands"] += 1
    path, takes_value = (), False
    for index, word in enumerate(rest):
        if END.match(word):
            break
        if word == "--" and (name == "supervisor" or (name == "skein" and path[:1] == ("serve",))):
            return check_command(commands, "worker", rest[index + 1:], where)
        match = FLAG.match(word)
        if match and re.match(r"--[^= ]* ", word):
            continue  # the value of a flag, for another program
        if match:
            check_flag(commands, name, path, match[0], where)
            passed_on = re.match(r"--coordinator-flag=[\"']?(--[a-z][a-z0-9-]*)", word)
            if passed_on:
                check_flag(commands, "coordinator", (), passed_on[1], where)
            takes_value = "=" not in word
        elif not takes_value and word in commands.commands[name, path]:
            path += (word,)
        else:
            if name == "skein" and not path and not takes_value and re.fullmatch(r"[a-z]+", word):
                fail(where, f"skein has no command {word}")
            takes_value = False


def check_commands(commands, text, where):
    # A line that ends with a backslash goes on; in YAML a list is a command.
    text = re.sub(r"\\\n\s*", " ", text)
    for line in text.splitlines():
        line = re.sub(r"^\s*(#|\$|>|-) ", "", line)
        listed = re.search(r"command: \[(.*)\]", line)
        words = [word.strip(" \"'") for word in listed[1].split(",")] if listed else words_of(line)
        index = 0
        while index < len(words):
            name = program_of(words, index)
            if name and (name == "skein" or any(FLAG.match(other) for other in words[index + 1:])):
                rest = words[index + 1:]
                check_command(commands, name, rest, f"{where}: {line.strip()[:100]}")
                # Further programs of the line come behind its next end.
                ends = [i for i, other in enumerate(rest) if END.match(other)]
                index += ends[0] + 1 if ends else len(rest)
            index += 1


def check_sections(commands, text, where):
    section = None
    for line in text.splitlines():
        stripped = line.strip().lstrip("#").strip() if line.strip().startswith("# ") and section else line.strip()
        header = re.match(r"\[([a-z.]+)\]", stripped)
        if header:
            words = tuple(header[1].split("."))
            section = words if (words[0], words[1:]) in commands.flags else None
        elif section and re.match(r"[A-Za-z-]+ = ", stripped):
            checked["keys"] += 1
            key = stripped.split(" = ")[0]
            name, path = section[0], section[1:]
            if f"--{key}" not in commands.flags[name, path] and key not in commands.positionals[name, path]:
                fail(where, f"[{'.'.join(section)}] has no key {key}")
        elif not stripped or stripped.startswith("#"):
            continue
        else:
            section = None


def code_of(page):
    """Blocks of code, and what stands between backticks."""
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", page, re.S | re.M)
    rest = re.sub(r"^ *```\w*\n.*?^ *```", "", page, flags=re.S | re.M)
    blocks += ["\n".join(line[4:] for line in block.splitlines()) for block in re.findall(r"(?:^    .*\n)+", rest, re.M)]
    spans = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", rest)]
    return blocks, spans


def check_units(commands):
    """The times of deploy/systemd, and whom a signal reaches."""
    drain = int(re.fullmatch(r"(\d+)s", commands.flags["coordinator", ()]["--drain-timeout"])[1])
    units = glob.glob("deploy/systemd/*.service")
    if len(units) < 3:
        fail("deploy/systemd", "has too few units")
    for unit in units:
        with open(unit) as file:
            text = file.read()
        start = re.search(r"^ExecStart=(\S+)", text, re.M)[1]
        stop = int(re.search(r"^TimeoutStopSec=(\d+)s$", text, re.M)[1])
        alone = start.endswith("/coordinator")
        drains = alone or start.endswith("/skein")
        # Workers have 5 s behind a drain, and the supervisor 12 s for what does not end.
        least = (drain if drains else 0) + 5 + (0 if alone else 12)
        if stop <= least:
            fail(unit, f"TimeoutStopSec={stop}s, and an end may take {least} s")
        if not alone and "\nKillMode=mixed\n" not in text:
            fail(unit, "SIGTERM would reach ranks, which end by it before the drain")
        if "\nRestartPreventExitStatus=2\n" not in text:
            fail(unit, "a wrong command line would be started again and again")
    with open("deploy/systemd/skein.toml") as file:
        text = file.read()
    told = int(re.search(r"^drain-timeout = (\d+)s", text, re.M)[1])
    if told != drain:
        fail("deploy/systemd/skein.toml", f"drain-timeout is {told} s, for which the units were not made")


def main():
    commands = Commands()
    everything = set().union(*(commands.all_of(name) for name in PROGRAMS))
    scripts = "".join(open(name).read() for name in glob.glob("scripts/*.sh"))
    everything |= set(re.findall(r"--[a-z][a-z0-9-]*", scripts))
    for name in sorted(glob.glob("deploy/*/*")):
        with open(name) as file:
            text = file.read()
        check_commands(commands, text, name)
        check_sections(commands, text, name)
        # What a script gathers before it passes it on.
        gathered = " ".join(re.findall(r"\b\w+\+?=\(([^)]*)\)", text))
        for flag in re.findall(r"(?:^|[ =(])(--[a-z][a-z0-9-]*)", gathered):
            checked["flags"] += 1
            if flag not in everything:
                fail(name, f"{flag} is no flag of Skein")
    for name in ["README.md", *sorted(glob.glob("docs/*.md"))]:
        with open(name) as file:
            blocks, spans = code_of(file.read())
        for block in blocks:
            check_commands(commands, block, name)
            check_sections(commands, block, name)
        for span in spans:
            match = FLAG.match(span)
            if match:
                checked["alone"] += 1
                if match[0] not in everything:
                    fail(name, f"`{span}` is no flag of Skein")
            else:
                check_commands(commands, span, name)
    check_units(commands)
    print(checked)
    for what, least in {"commands": 80, "flags": 150, "keys": 30, "alone": 120}.items():
        if checked[what] < least:
            fail("this test", f"saw only {checked[what]} {what}")
    for failure in failures:
        print(f"FAILED: {failure}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
