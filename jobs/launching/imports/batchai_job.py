"""Reads a job of Batch AI (job.json of 2017-09-01-preview, 2018-03-01 and 2018-05-01) into the draft of a job file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jobs.launching.imports.batchai_image import read_image
from jobs.launching.imports.batchai_limits import STATE_REASON, read_cluster_name, read_limits
from jobs.launching.imports.batchai_mounts import (
    find_script,
    give_folders,
    link_code,
    mounted_path,
    read_mounts,
    refer,
)
from jobs.launching.imports.batchai_toolkits import TOOLKITS, Program, read_program
from jobs.launching.imports.batchai_variables import JOB_ROOT, Mount, preamble
from jobs.launching.imports.draft import (
    RESERVED_NAMES,
    Draft,
    Project,
    is_variable,
    job_name,
    unique,
    variable_problem,
)
from jobs.launching.imports.leaves import Leaves, Place
from jobs.launching.imports.secrecy import is_secret, vault_command
from jobs.launching.imports.shell_text import literal, objection

# Written by the service into its answers (`az batchai job show`).
STATE = (
    *("id", "type", "etag", "resourceGroup", "creationTime", "provisioningState"),
    *("provisioningStateTransitionTime", "executionState", "executionStateTransitionTime"),
    *("executionInfo", "jobOutputDirectoryPathSegment"),
)
_TWICE = "the variable is set twice: keep one"
_NOTHING = (
    "nothing in this job can be run here, so no job file was written: see its toolkit's reason"
)
_VAULT_SECRET = re.compile(
    r"https://(?P<vault>[A-Za-z0-9-]+)\.[A-Za-z0-9.-]+/secrets/(?P<name>[0-9A-Za-z-]{1,127})(?:/[0-9a-fA-F]*)?/?\Z"
)
_SCRIPT = re.compile(r"(?:^|(?<=[\s\"']))(?P<path>[^\s\"';|&<>]+\.(?:py|sh))(?=\Z|[\s\"';|&])")
_USED_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")


@dataclass(kw_only=True)
class _Directories:
    """Variables of a job's directories: the paths of inputs, the outputs that stand for outputs."""

    inputs: dict[str, str] = field(default_factory=dict[str, str])
    outputs: dict[str, str] = field(default_factory=dict[str, str])


def read_job(leaves: Leaves, name: str, project: Project, cluster_mounts: list[Mount]) -> bool:
    """Read a job into a draft of the project; False where nothing of it can run.

    `cluster_mounts` are those of the cluster that the job names, or of the only one.
    """
    top = leaves.top
    body = top.section("properties") or top
    told = top.take_text("name") or body.take_text("name")
    draft = Draft(
        name=job_name(told[0] if told and not project.vault.holds(told[0]) else name),
        file=leaves.file,
    )
    draft.name = unique(draft.name, [*RESERVED_NAMES, *(each.name for each in project.drafts)])
    _read_state(top, body)
    _learn_secrets(body, draft, project)
    program = read_program(body, draft, project)
    if program is None:
        top.refuse_rest(_NOTHING)
        return False
    if told:
        told[1].converted("name")
    _Job(body, draft, project).finish(program, cluster_mounts)
    project.drafts.append(draft)
    return True


def _read_state(top: Place, body: Place) -> None:
    if schema := top.take_text("$schema"):
        schema[1].converted("the format of the document")
    if version := top.take_text("apiVersion"):
        version[1].converted("the format of the document")
    for each in STATE:
        for place in (top.get(each), body.get(each)):
            if place:
                place.refused(STATE_REASON)
    if kind := body.get("toolType"):
        named = any(each.lower() == f"{kind.value}settings".lower() for each in TOOLKITS)
        kind.converted("launcher") if named else kind.refused(STATE_REASON)
    for place in (top.get("location"), body.get("location")):
        if place:
            place.refused(
                "a stack has one location: set `trainyard:location` in Pulumi.<stack>.yaml"
            )


def _learn_secrets(body: Place, draft: Draft, project: Project) -> None:
    """Remember secrets and the names of variables first: both are met again in command lines."""
    vault = project.vault
    secrets = body.list("secrets")
    for each in (*secrets, *body.list("environmentVariables")):
        name, value = each.get("name"), each.get("value")
        variable, text = (str(place.value) if place else "" for place in (name, value))
        if each in secrets or is_secret(variable, text):
            vault.learn(text)
        else:
            text = ""
        if not variable_problem(variable, vault):
            draft.values.setdefault(variable, text)


class _Job:
    """Fills the draft of one job whose program is known."""

    def __init__(self, body: Place, draft: Draft, project: Project) -> None:
        self._body, self._draft, self._project = body, draft, project

    def finish(self, program: Program, cluster_mounts: list[Mount]) -> None:
        """Read everything beside the toolkit, and write the text that the ranks run."""
        draft, body = self._draft, self._body
        draft.launcher, draft.nodes = program.launcher, program.nodes
        draft.processes_per_node = program.processes_per_node
        draft.parameter_servers = program.parameter_servers
        mounts = [
            *read_mounts(body.section("mountVolumes"), JOB_ROOT, self._project.vault),
            *cluster_mounts,
        ]
        directories = self._directories(mounts)
        exports = self._variables(mounts)
        self._secrets(exports)
        preparation = self._preparation()
        logs = body.take_text("stdOutErrPathPrefix")
        if logs:
            logs[1].kept("AZ_BATCHAI_STDOUTERR_DIR")
            refer(mounts, logs[0], reads=False, writes=True)
        self._code(program, mounts, directories)
        self._more_code([*program.texts, preparation], mounts, directories)
        for path in directories.inputs.values():
            refer(mounts, path, reads=True, writes=False)
        for text in (*_argument_texts(program), preparation):
            refer(mounts, text, reads=True, writes=True)
        give_folders(mounts, draft, self._project)
        read_image(body, draft, self._project, program)
        read_limits(body, draft, self._project)
        read_cluster_name(body, draft, self._project)
        lines = (mounts, directories.inputs, directories.outputs, exports)
        before = preamble(*lines, has_tasks=program.has_tasks, backend=program.backend)
        draft.text = f"{before}{program.text}\n"
        if preparation:
            draft.setup.append(
                f"{preamble(*lines, backend=program.backend, is_rank=False)}{preparation}\n"
            )

    def _directories(self, mounts: list[Mount]) -> _Directories:
        found = _Directories()
        for each in self._body.list("inputDirectories"):
            told, path = each.take_text("id"), each.take_text("path")
            variable = f"AZ_BATCHAI_INPUT_{told[0]}" if told else ""
            is_new = self._is_usable(variable) and variable not in found.inputs
            if not is_new or path is None or objection(path[0]):
                each.refused(
                    "an input directory needs an id of its own that a variable can be called by, and a path"
                )
                continue
            each.kept(variable)
            found.inputs[variable] = self._safe(path[0], path[1], variable)
        for each in self._body.list("outputDirectories"):
            self._output(each, found, mounts)
        return found

    def _output(self, each: Place, found: _Directories, mounts: list[Mount]) -> None:
        told, prefix = each.take_text("id"), each.take_text("pathPrefix")
        variable = f"AZ_BATCHAI_OUTPUT_{told[0]}" if told else ""
        name = re.sub(r"\A(?=[0-9])", "_", told[0]) if told else ""
        taken = {other.upper() for other in self._draft.outputs}
        if (
            not told
            or not self._is_usable(variable)
            or not is_variable(name)
            or name.upper() in taken
        ):
            each.refused("an output needs an id of its own that a variable can be called by")
            return
        if prefix:
            refer(mounts, prefix[0], reads=False, writes=True)
        each.kept(variable)
        if (is_new := each.get("createNew")) and is_new.value is False:
            is_new.refused("each run has an output folder of its own: read old files by an input")
        found.outputs[variable] = name
        self._draft.outputs.append(name)

    def _is_usable(self, variable: str) -> bool:
        return is_variable(variable) and not self._project.vault.holds(variable)

    def _variables(self, mounts: list[Mount]) -> dict[str, str]:
        """Read variables: plain ones become `env`, those that name others are set by the shell."""
        exports: dict[str, str] = {}
        for each in self._body.list("environmentVariables"):
            told, value = each.take_text("name"), each.take_text("value")
            name, text = told[0] if told else "", value[0] if value else ""
            problem = self._problem(name, text)
            if problem or name in exports:
                each.refused(problem or _TWICE)
            elif is_secret(name, text) or self._project.vault.holds(text):
                self._secret_value(each, name, text)
            elif _USED_VARIABLE.search(text) or name.startswith("AZ_BATCHAI_"):
                refer(mounts, text, reads=True, writes=True)
                each.kept(name)
                exports[name] = literal(text)
            else:
                each.converted(f"env.{name}")
                self._draft.env[name] = literal(text)
        return exports

    def _problem(self, name: str, text: str) -> str | None:
        if problem := variable_problem(name, self._project.vault):
            return problem
        is_used = name in self._draft.secrets and self._draft.values[name] != text
        if name in self._draft.env or is_used:
            return _TWICE
        return (
            "it holds a NUL or half of a character"
            if objection(text.replace("'", "").replace('"', ""))
            else None
        )

    def _secrets(self, exports: dict[str, str]) -> None:
        for each in self._body.list("secrets"):
            told, value = each.take_text("name"), each.take_text("value")
            name = told[0] if told else ""
            problem = self._problem(name, value[0] if value else "")
            if problem or name in exports:
                each.refused(problem or _TWICE)
            elif reference := each.section("valueSecretReference"):
                self._secret_reference(each, name, reference)
            else:
                self._secret_value(each, name, value[0] if value else "")

    def _secret_value(self, each: Place, name: str, value: str) -> None:
        self._project.vault.learn(value)
        secret = self._draft.add_secret(name, value, self._project.vault)
        each.converted(f"secrets.{name}; put its value into the vault: {vault_command(secret)}")

    def _secret_reference(self, each: Place, name: str, reference: Place) -> None:
        url = reference.take_text("secretUrl")
        found = _VAULT_SECRET.match(url[0]) if url else None
        if found is None:
            each.refused(
                "the address names no secret of a key vault: `secrets: {VARIABLE: name-in-the-vault}`"
            )
            return
        # Its value is not here: the address stands for it.
        secret = self._draft.add_secret(name, found[0], self._project.vault, found["name"])
        command = vault_command(secret)
        each.converted(f"secrets.{name}; put its value into the stack's own vault: {command}")

    def _preparation(self) -> str:
        section = self._body.section("jobPreparation")
        told = section.take_text("commandLine") if section else None
        if told is None:
            return ""
        if problem := objection(told[0]):
            told[1].refused(f"{problem}: correct it, and add it to the job's `setup`")
            return ""
        told[1].converted(
            "setup: what it exports or sources stays there and does not reach the ranks"
        )
        return self._safe(told[0].replace("\r\n", "\n").strip(), told[1], "PREPARATION_SECRET")

    def _safe(self, text: str, place: Place, hint: str) -> str:
        text, names = self._draft.without_secrets(text, self._project.vault, hint)
        if names:
            place.converted(f"its text, with secrets: {', '.join(names)}")
        return literal(text)

    def _code(self, program: Program, mounts: list[Mount], directories: _Directories) -> None:
        """Find the script in the folder that was given for it, or tell to give one."""
        code, place = self._project.choices.code, program.script_place
        if program.script is None or place is None:
            return
        word = _script_word(program.script) if place.key.endswith("commandLine") else program.script
        mounted = mounted_path(word, directories.inputs)
        if mounted is None:
            if word.startswith(("/", "$")) or not word:
                return  # in the image, or made by the preparation
            self._plain_script(word, place)
            return
        found = find_script(*mounted, code) if code else None
        if code is not None and found is not None:
            self._draft.code, self._draft.script = code, found.file
            link_code(mounts, found, code)
            return
        refer(mounts, f"${mounted[0]}/{mounted[1]}", reads=True, writes=False)
        where = f"the script is not in {code}" if code else "the script lies on a mounted share"
        place.refused(f"{where}: give the folder that has its files by --code DIR")

    def _more_code(self, texts: list[str], mounts: list[Mount], directories: _Directories) -> None:
        """Link the code's folder into each mount from which a command line starts another script."""
        code = self._project.choices.code
        for word in (found["path"] for text in texts for found in _SCRIPT.finditer(text)):
            mounted = mounted_path(word, directories.inputs)
            found = find_script(*mounted, code) if code and mounted else None
            if code and found:
                self._draft.code = code
                link_code(mounts, found, code)

    def _plain_script(self, word: str, place: Place) -> None:
        code = self._project.choices.code
        if code is None or not (code / word).is_file():
            if not place.key.endswith("commandLine"):
                place.refused("no folder has the script: give the folder that has it by --code DIR")
            return
        self._draft.code, self._draft.script = code, code / word


def _argument_texts(program: Program) -> list[str]:
    """Give the texts of a program without its script, whose place is the code's matter."""
    place = program.script_place
    if place is None or not place.key.endswith("commandLine"):
        return program.texts[1:]
    word = _script_word(program.script or "")
    return [text.replace(word, "") if word else text for text in program.texts]


def _script_word(command: str) -> str:
    found = _SCRIPT.search(command)
    return found["path"] if found else ""
