# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of GRUB's script language that decides which entry boots and with which kernel line.

A ``grub.cfg`` is a program. What it does depends on things that only the boot loader knows (platform, keys held down),
so values are strings or None for "cannot be told", and an ``if`` whose condition cannot be told runs both branches:
a variable that they leave different is None afterwards, an entry that they define is uncertain. Grammar and word
splitting follow grub-core/script, the choice of the default entry ``get_entry_number`` in grub-core/normal/menu.c.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.boot.grub_parser import MAXIMUM_DEPTH, Parser, ScriptError

MAXIMUM_TEXT = 2 * 1024 * 1024  # characters of a grub.cfg; real ones have some ten thousand
_MAXIMUM_STEPS = 50_000
_MAXIMUM_VALUE = 65536

# Set by GRUB itself, to values that a file does not tell. Those that are places get a placeholder, since only what
# stands after them matters.
_BUILT_IN = re.compile(r"grub_platform|grub_cpu|lang|\?|net_.*|pxe_.*")
_PLACES = ("root", "prefix", "cmdpath", "config_directory", "config_file")
_KERNEL_COMMANDS = ("linux", "linux16", "linuxefi", "module", "module2")
_INITRD_COMMANDS = ("initrd", "initrd16", "initrdefi")


def parse_environment(text: str) -> dict[str, str]:
    """Read an environment block (``grubenv``): ``name=value`` a line, backslash escapes, filled up with ``#``."""
    values = {}
    for line in re.sub(r"\\(.)", lambda found: "\0" if found[1] == "\n" else found[1], text, flags=re.S).split("\n"):
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            values[name] = value.replace("\0", "\n")
    return values


class Script:
    """Runs a ``grub.cfg``.

    :param text: its text.
    :param environment: what ``load_env`` brings (see :func:`parse_environment`); None when there is no such file.
    :param sources: text by file name of files that the script may include; a file that is not in it does not exist.

    After that ``variables`` holds str or None by name, ``menu`` the entries, and ``bls`` the variables at the call of
    ``blscfg`` (None when it is not called). An entry is ``{title, id, certain, line, submenu, body}``; ``submenu`` is a
    list of entries or None. The entry ``{bls: True}`` stands for those of the Boot Loader Specification.

    Raises :class:`ScriptError`.
    """

    def __init__(self, text: str, environment: dict | None = None, sources: dict[str, str] | None = None) -> None:
        if len(text) > MAXIMUM_TEXT:
            raise ScriptError(f"has {len(text)} characters, allowed are {MAXIMUM_TEXT}")
        self.environment = environment
        self.sources = sources or {}
        self.variables: dict[str, str | None] = {}
        self.menu: list[dict] = []
        self.bls: dict[str, str | None] | None = None
        self._functions: dict[str, list] = {}
        self._steps = 0
        self._depth = 0
        self._certain = True
        self._booting: dict | None = None
        self._run(Parser(text).parse())

    def open_submenu(self, entry: dict) -> list[dict]:
        """Return the entries of a submenu, whose body runs when it is opened."""
        if entry["submenu"] is None:
            outer, self.menu = self.menu, []
            try:
                self._run_scoped(entry["body"])
                entry["submenu"] = self.menu
            finally:
                self.menu = outer
        return entry["submenu"]

    def boot(self, entry: dict) -> dict:
        """Run an entry: ``{image, arguments, initrd}``; None where it cannot be told, or no Linux is booted."""
        self._booting = {"image": None, "arguments": None, "initrd": None, "seen": False}
        try:
            self._run_scoped(entry["body"])
            return {key: self._booting[key] for key in ("image", "arguments", "initrd")}
        finally:
            self._booting = None

    def default(self) -> tuple[dict | None, str | None]:
        """Return the entry that boots next and, when it cannot be told, the reason. The entry is the one that stands
        for the BLS entries when one of these is meant, with ``wanted`` being what is left to be looked up."""
        wanted = self.variables.get("default", "")
        if wanted is None:
            return None, "grub.cfg sets the default entry by something that only GRUB knows"
        menu = self.menu
        for _level in range(MAXIMUM_DEPTH):
            first, wanted = split_path(wanted)
            found, reason = self._pick(menu, first)
            if found is None or not found.get("is_submenu"):
                return found, reason
            menu = self.open_submenu(found)
        return None, "grub.cfg nests submenus too deeply"

    def _pick(self, menu: list[dict], wanted: str) -> tuple[dict | None, str | None]:
        if any("bls" in entry for entry in menu):
            return {"bls": True, "wanted": wanted, "menu": menu}, None
        if not menu:
            return None, "grub.cfg has no entry for the default"
        number = entry_number(wanted)
        named = [place for place, entry in enumerate(menu) if wanted and wanted in (entry["title"], entry["id"])]
        if number is not None:
            index = number if number < len(menu) else 0
            counted = menu[: index + 1]
        else:
            index = named[0] if named else 0
            counted = [menu[index]]
        if not all(entry["certain"] for entry in counted):
            return None, "grub.cfg has entries that only GRUB knows to be there, the default among or behind them"
        return menu[index], None

    def _run_scoped(self, body: list) -> None:
        variables, certain = dict(self.variables), self._certain
        try:
            self._run(body)
        finally:
            self.variables, self._certain = variables, certain

    def _run(self, nodes: list) -> None:
        self._depth += 1
        if self._depth > MAXIMUM_DEPTH:
            raise ScriptError("nests too deeply")
        for node in nodes:
            self._steps += 1
            if self._steps > _MAXIMUM_STEPS:
                raise ScriptError("does not end")
            if node[0] == "if":
                self._branch(node[1], node[2])
            elif node[0] == "loop":
                self._forget(node[1])
            elif node[0] == "function":
                self._functions[node[1]] = node[2]
            else:
                self._command(node[1], node[2], node[3])
        self._depth -= 1

    def _branch(self, arms: list, otherwise: list) -> None:
        """Run the arm of an ``if`` that applies, or every arm that may."""
        before, certain = dict(self.variables), self._certain
        outcomes = []
        for condition, body in arms:
            answer = self._condition(condition)
            if answer is False:
                continue
            if answer is True and not outcomes:
                self._run(body)
                return
            self._certain = False
            self.variables = dict(before)
            self._run(body)
            outcomes.append(self.variables)
            if answer is True:
                break
        else:
            if not outcomes:
                self._run(otherwise)
                return
            self.variables = dict(before)
            self._run(otherwise)
            outcomes.append(self.variables)
        self._certain = certain
        names = {name for outcome in outcomes for name in outcome}
        self.variables = {}
        for name in names:
            values = {outcome.get(name, "") for outcome in outcomes}
            self.variables[name] = values.pop() if len(values) == 1 else None

    def _forget(self, body: list) -> None:
        """A loop may run any number of times: what it sets cannot be told."""
        certain, self._certain = self._certain, False
        before = dict(self.variables)
        self._run(body)
        self._certain = certain
        for name, value in self.variables.items():
            if before.get(name, "") != value:
                self.variables[name] = None

    def _command(self, words: list, block: list | None, line: int) -> None:
        if _assigned(words[0]) and len(words) == 1:
            self._assign(words)
            return
        arguments = [piece for word in words for piece in self._expand(word)]
        if not arguments or arguments[0] is None:
            return
        name, rest = arguments[0], arguments[1:]
        if name == "set":
            self._assign(words[1:])
        elif name == "unset":
            self.variables.update((word, "") for word in rest if word)
        elif name.startswith("search"):
            for word in rest:
                if word and word.startswith("--set"):
                    place = word.partition("=")[2] or "root"
                    self.variables[place] = f"({place})"
        elif name in ("decrement", "increment", "regexp", "smbios", "probe", "read"):
            self._outputs(rest)
        elif name == "load_env":
            self.variables.update(self.environment or {})
        elif name in ("source", ".", "configfile") and rest:
            text = self.sources.get((rest[0] or "").rsplit("/", 1)[-1])
            if text is not None and len(text) <= MAXIMUM_TEXT:
                self._run(Parser(text).parse())
        elif name == "blscfg":
            if self.bls is None:
                self.bls = dict(self.variables)
                self.menu.append({"bls": True, "certain": self._certain, "title": None, "id": None})
        elif name in ("menuentry", "submenu") and block is not None:
            self.menu.append(self._entry(name, rest, block, line))
        elif name in self._functions:
            self._call(self._functions[name], rest)
        elif self._booting is not None and name in _KERNEL_COMMANDS + _INITRD_COMMANDS:
            self._load(name, rest)

    def _assign(self, words: list) -> None:
        for word in words:
            key = _assigned(word)
            if key:
                pieces = self._expand(word)
                self.variables[key] = None if None in pieces else " ".join(map(str, pieces))[len(key) + 1 :]

    def _entry(self, name: str, words: list, block: list, line: int) -> dict:
        titles: list = []
        identity = None
        words = list(words)
        while words:
            word = words.pop(0)
            if word in ("--class", "--users", "--hotkey", "--source"):
                del words[:1]
            elif word == "--id":
                identity = words.pop(0) if words else None
            elif word != "--unrestricted":
                titles.append(word)
        title = titles[0] if titles else None
        return {
            "title": title,
            "id": identity or title,
            "certain": self._certain and title is not None,
            "line": line,
            "is_submenu": name == "submenu",
            "submenu": None,
            "body": block,
        }

    def _outputs(self, words: list) -> None:
        for word in words:
            if word is not None:
                self.variables[word.removeprefix("--set=")] = None

    def _call(self, body: list, arguments: list) -> None:
        outer = {key: value for key, value in self.variables.items() if key.isdigit()}
        self.variables.update({str(place): value for place, value in enumerate(arguments[:9], start=1)})
        self._run(body)
        for key in [key for key in self.variables if key.isdigit()]:
            del self.variables[key]
        self.variables.update(outer)

    def _load(self, name: str, words: list) -> None:
        boot = self._booting
        if boot is None:
            return
        known = self._certain and None not in words
        if name in _INITRD_COMMANDS:
            boot["initrd"] = " ".join(words) if known else None
        elif name.startswith("module") and boot["seen"]:
            boot["initrd"] = words[-1] if known and words else None  # of Xen: the kernel first, then its initrd
        else:
            words = [word for word in words if word not in ("--nounzip", "--quiet")] if known else words
            boot["seen"] = True
            boot["image"] = words[0] if words and self._certain else None
            boot["arguments"] = " ".join(_loader_word(word) for word in words[1:]) if known else None

    def _condition(self, nodes: list) -> bool | None:
        """Answer a condition; None when it cannot be told, as for every command other than a test."""
        if len(nodes) != 1 or nodes[0][0] != "command":
            for node in nodes:
                if node[0] == "command":
                    self._command(node[1], node[2], node[3])
            return None
        words = [piece for word in nodes[0][1] for piece in self._expand(word)]
        if words and words[0] in ("true", "false"):
            return words[0] == "true"
        if words and words[0] == "[" and words[-1] == "]":
            return self._test(words[1:-1])
        if words and words[0] == "test":
            return self._test(words[1:])
        self._command(nodes[0][1], nodes[0][2], nodes[0][3])
        return None

    def _test(self, words: list) -> bool | None:
        """Evaluate the words of ``[ … ]`` with the operators that generated files use; -o binds less than -a."""
        for operator, join in (("-o", _any), ("-a", _all)):
            if operator in words:
                place = words.index(operator)
                return join(self._test(words[:place]), self._test(words[place + 1 :]))
        if words[:1] == ["!"]:
            answer = self._test(words[1:])
            return None if answer is None else not answer
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            if words[0] is None or words[2] is None:
                return None
            return (words[0] == words[2]) == (words[1] != "!=")
        if len(words) == 2 and words[0] in ("-n", "-z"):
            return None if words[1] is None else bool(words[1]) == (words[0] == "-n")
        if len(words) == 2 and words[0] in ("-s", "-f", "-e"):
            return self._file(words[1])
        if words in (["-n"], ["-s"], ["-f"], ["-e"], []):
            return False
        if len(words) == 1:
            return None if words[0] is None else bool(words[0])
        return None

    def _file(self, path: str | None) -> bool | None:
        name = (path or "").rsplit("/", 1)[-1]
        if name == "grubenv":
            return self.environment is not None
        return name in self.sources if name == "custom.cfg" else None

    def _expand(self, word: list) -> list[str | None]:
        """Expand a word as GRUB does: an unquoted variable is split at white space and vanishes when empty."""
        pieces: list[str | None] = []
        current: str | None = ""
        begun = False
        for kind, text in word:
            value = text if kind == "text" else self._value(text)
            if kind == "split":
                if value is None:
                    current, begun = None, True
                    continue
                parts = value.split()
                if parts and value[0].isspace() and begun:
                    pieces.append(current)
                    current, begun = "", False
                for place, part in enumerate(parts):
                    if place:
                        pieces.append(current)
                        current = ""
                    current = None if current is None else current + part
                    begun = True
                if parts and value[-1].isspace():
                    pieces.append(current)
                    current, begun = "", False
                continue
            begun = True
            current = None if current is None or value is None else current + value
        if begun:
            pieces.append(current)
        return [None if piece is None or len(piece) > _MAXIMUM_VALUE else piece for piece in pieces]

    def _value(self, name: str) -> str | None:
        if name in self.variables:
            return self.variables[name]
        if name.startswith("feature_"):
            return "y"
        if name in _PLACES:
            return f"({name})"
        return None if _BUILT_IN.fullmatch(name) else ""


def split_path(wanted: str) -> tuple[str, str]:
    """Split ``submenu>entry`` into the first part and the rest; ``>>`` is a ``>`` of a title."""
    match = re.match(r"((?:[^>]|>>)*)(?:>(.*))?\Z", wanted, re.S)
    if match is None:
        return wanted, ""
    return match[1].replace(">>", ">"), match[2] or ""


def entry_number(wanted: str) -> int | None:
    """Return the number when an entry is chosen by one."""
    return int(wanted) if re.fullmatch(r"[0-9]{1,6}", wanted.strip()) else None


def _all(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _any(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def _assigned(word: list) -> str | None:
    """Return the variable's name of a word like ``name=…``."""
    match = re.match(r"([A-Za-z_]\w*)=", word[0][1]) if word and word[0][0] == "text" else None
    return match[1] if match else None


def _loader_word(word: str) -> str:
    """Write one argument as GRUB hands it to the kernel (``grub_create_loader_cmdline``)."""
    word = re.sub(r"([\\'\"])", r"\\\1", word)
    return f'"{word}"' if " " in word else word
