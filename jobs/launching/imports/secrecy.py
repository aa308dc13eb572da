"""Finds secrets in documents by key, by place and by shape, and keeps them out of everything written.

A `Vault` remembers every secret's value of an import; whatever is written or printed passes its mask.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(
    r"pass(?:wd|word|phrase|code)?(?![a-z])|pwd(?![a-z])|secret|credential|token|"
    r"(?:account|access|api|storage|shared|private|encryption|auth|signing|master|client|"
    r"instrumentation|subscription|primary|secondary|ssh|license|write|read)[-_ ]?key(?!s?[-_]?(?:name|file|path))|"
    r"(?<![a-z])sas(?![a-z])|connection[-_ ]?string|conn[-_ ]?str|(?<![a-z])key\Z|_key\Z|bearer|authorization",
    re.IGNORECASE,
)
# Names that hold such a word and no secret.
_HARMLESS_NAME = re.compile(
    r"(?:token(?:s|iz|ise|_?len|_?count|_?limit|_?type|_?id\Z|_?file|_?path))|num[-_]?tokens|max[-_]?tokens|"
    r"public[-_]?key|key[-_]?(?:name|id|file|path|vault|url|uri)\Z|secret[-_]?(?:name|url|uri|reference)|"
    r"pass(?:es|ing|-?through)|compass|bypass|_?tokenizer",
    re.IGNORECASE,
)
_CALLED = (
    r"[A-Za-z0-9_.-]{0,40}(?:pass(?:wd|word|phrase)?|pwd|secret|token|credentials?|"
    r"(?:account|access|api|storage|shared|auth|client|private|encryption|wandb|license|source|dest)[-_]?key|sas|"
    r"connection[-_]?string)"
)
_VALUE = (
    r"(?:\"(?P<double>[^\"$]+)\"|'(?P<single>[^']+)'|(?P<secret>[^\s\"';&|<>$-][^\s\"';&|<>]*))"
)
# These groups are the secret's own part; without one the whole match is.
_PARTS = ("secret", "double", "single")
_SHAPES = (
    # A connection string as a whole: its parts are of no use alone.
    re.compile(
        r"(?:DefaultEndpointsProtocol|BlobEndpoint|Endpoint|Server|Data Source|AccountName|HostName)="
        r"[^\s\"'=]*;[^\s\"']*(?:Key|Signature|Password|Pwd)=[^\s\"']+",
        re.IGNORECASE,
    ),
    re.compile(r"[?&;\"'\s](?:sig|signature)=(?P<secret>[^&\s\"';]{8,})", re.IGNORECASE),
    re.compile(
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|InstrumentationKey|Password|Passwd|Pwd|"
        r"ApiKey|SecretKey|AccessKey|ClientSecret|secret|token)\s*=\s*(?P<secret>[^;\"'\s,&]{4,})",
        re.IGNORECASE,
    ),
    re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{42,}={1,2}(?![A-Za-z0-9+/=])"),
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    ),
    re.compile(r"[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{31,}"),
    re.compile(r"://[^\s/@:\"']*:(?P<secret>[^\s/@\"']+)@"),
    re.compile(r"://(?P<secret>[A-Za-z0-9_-]{20,})@"),
    re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    re.compile(r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{20,}"),
    re.compile(r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}"),
    re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?<![A-Za-z0-9])(?:hf|npm|dop_v1|pypi)[_-][A-Za-z0-9_-]{20,}"),
    re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?:[A-Za-z]+[-_])*[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{8,}"),
    re.compile(r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}"),
    re.compile(r"\b(?:Bearer|Basic)\s+(?P<secret>[A-Za-z0-9+/._~=-]{8,})", re.IGNORECASE),
    re.compile(r"\bwandb\s+login\s+(?:--?[a-z-]+\s+)*(?P<secret>[A-Za-z0-9-]{20,})"),
    re.compile(r"\bAuthorization:\s*token\s+(?P<secret>[^\s\"']{8,})", re.IGNORECASE),
    re.compile(
        r"\b(?:echo|printf)\s+(?:-n\s+)?[\"']?(?P<secret>[^\s\"'|]+)[\"']?\s*\|\s*"
        r"(?:sudo\s[^\n|;&]{0,100}?-S\b|[^\n|;&]{0,300}?--password-stdin)"
    ),
    re.compile(
        r"\b(?:kaggle\s+config\s+set\b[^\n|;&]{0,200}?\s-v|ssh-keygen\b[^\n|;&]{0,200}?\s-N|"
        r"htpasswd\s+-[a-zA-Z]*b[a-zA-Z]*\s+\S+\s+\S+|smbclient\s+[\"']?//[^\s\"']+[\"']?)"
        r"\s+[\"']?(?P<secret>[^\s\"'-][^\s\"']*)"
    ),
    re.compile(r"\bsmbclient\b[^\n|;&]{0,300}?\s-U\s*[\"']?[^\s%]+%(?P<secret>[^\s\"']+)"),
    # An option or a variable that is called like a secret, and what stands behind it.
    re.compile(
        rf"(?<![A-Za-z0-9$])-{{0,2}}(?P<name>{_CALLED})(?:\s*=\s*|[\"']?\s*:\s*){_VALUE}",
        re.IGNORECASE,
    ),
    # JSON in a string of a shell.
    re.compile(rf"(?P<name>{_CALLED})\\+\"\s*:\s*\\+\"(?P<secret>[^\"\\$]+)", re.IGNORECASE),
    re.compile(rf"(?<![A-Za-z0-9$_])(?P<name>(?:[A-Z0-9]+_)*KEY)(?:=|:\s+){_VALUE}"),
    re.compile(rf"(?<![A-Za-z0-9$-])--?(?P<name>{_CALLED})\s+{_VALUE}", re.IGNORECASE),
    re.compile(rf"\bset(?:x|env)\s+(?P<name>{_CALLED})\s+{_VALUE}", re.IGNORECASE),
    re.compile(
        r"(?:curl|wget|smbclient)\b[^\n|;&]{0,300}?\s(?:-u|--user)[\s=]+[\"']?[^\s:\"']+:(?P<secret>[^\s\"']+)"
    ),
    re.compile(
        r"(?:mysql|mysqldump|sshpass|redis-cli|login)\b[^\n|;&]{0,300}?\s-(?:p|a)[\s=]*[\"']?(?P<secret>[^\s\"'-][^\s\"']*)"
    ),
)
_NO_SECRET = re.compile(
    r"\$.*|<.*>|\{.*\}|\[.*\]|none|null|true|false|yes|no|\*+|x+|\.+|[0-9]{1,4}(?:\.[0-9]+)?|"
    r"/.*|\./.*|https?:?|-.*",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z]+)*")
SHORTEST = 4
_MOST_SEARCHED = 100_000
MASK = "***"


def vault_command(secret: str) -> str:
    """Write the command that puts a secret into the key vault under a name."""
    return f"az keyvault secret set --vault-name VAULT --name {secret} --value VALUE"


def names_a_secret(name: str) -> bool:
    """Tell whether a key, a variable or an option is called like one that holds a secret."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return bool(_NAME.search(spaced)) and not _HARMLESS_NAME.search(spaced)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A secret in a text: its place in it, and the name that stands before it, if one does."""

    start: int
    end: int
    name: str


def find_in_text(text: str) -> list[Found]:
    """Find the secrets in a text, in its order; none overlaps another."""
    found: list[Found] = []
    for shape in _SHAPES:
        for match in shape.finditer(text):
            groups = match.groupdict()
            part = next((each for each in _PARTS if groups.get(each)), None)
            start, end = match.span(part) if part else match.span()
            name = groups.get("name") or ""
            value = text[start:end]
            if name and (not names_a_secret(name.lstrip("-")) or _NO_SECRET.fullmatch(value)):
                continue
            if part and _NO_SECRET.fullmatch(value):
                continue
            found.append(Found(start=start, end=end, name=name.strip("-")))
    return _apart(found)


def _apart(found: list[Found]) -> list[Found]:
    """Order what was found; what overlaps becomes one."""
    apart: list[Found] = []
    for each in sorted(found, key=lambda each: (each.start, -each.end)):
        if not apart or each.start >= apart[-1].end:
            apart.append(each)
        elif each.end > apart[-1].end:
            last = apart.pop()
            name = last.name or each.name
            apart.append(Found(start=last.start, end=each.end, name=name))
    return apart


def is_secret(name: str, value: str) -> bool:
    """Tell whether a value is one, by the name of what holds it or by its own shape."""
    if names_a_secret(name) and value and not _NO_SECRET.fullmatch(value):
        return True
    return bool(find_in_text(value))


def _is_telling(value: str) -> bool:
    """Tell whether a value is no everyday word, so that finding it elsewhere means the secret."""
    if _WORDS.fullmatch(value) and names_a_secret(value):
        return False  # `--api-key API_KEY`: the name of what belongs there
    is_word = value.isalpha() or value.isdecimal()
    return len(value) >= 2 * SHORTEST or (len(value) > SHORTEST and not is_word)


@dataclass(kw_only=True)
class Vault:
    """Values of all secrets that an import met."""

    values: set[str] = field(default_factory=set[str])
    # The first variable of a value; a value's name in the key vault, by the name that it wants.
    variables: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def learn_from(self, name: str, value: str) -> None:
        """Remember the secrets in a value, and the value itself where its name tells that it is one."""
        if names_a_secret(name) and not _NO_SECRET.fullmatch(value):
            self.learn(value)
        self.values |= {each for each in _parts(value) if _is_telling(each)}

    def learn(self, value: str) -> None:
        """Remember a secret, and the secrets in its text."""
        self.values |= {each for each in (value.strip(), *_parts(value)) if _is_telling(each)}

    @property
    def longest_first(self) -> list[str]:
        """Give the values so that none is cut by a shorter one in it."""
        return sorted(self.values, key=len, reverse=True)

    def find(self, text: str, name: str) -> list[Found]:
        """Find the secrets in a text by their shapes, which are remembered, and those known, under a name."""
        found = find_in_text(text)
        for each in found:
            self.learn(text[each.start : each.end])
        known = [
            Found(start=at.start(), end=at.end(), name=name)
            for value in self.values
            for at in re.finditer(re.escape(value), text)
        ]
        return _apart([*found, *known])

    def is_secret(self, name: str, value: str) -> bool:
        """Tell whether a value is or holds a secret, by the name of what holds it or by itself."""
        is_named = names_a_secret(name) and not _NO_SECRET.fullmatch(value)
        return is_named or self.holds(value[:_MOST_SEARCHED])

    def holds(self, text: str) -> bool:
        """Tell whether a text has a secret in it."""
        return any(each in text for each in self.values) or bool(find_in_text(text))

    def strike(self, text: str) -> str:
        """Strike the known secrets out of a text."""
        for value in self.longest_first:
            text = text.replace(value, MASK)
        return text

    def mask(self, text: str) -> str:
        """Strike out the known secrets, and what looks like one."""
        text = self.strike(text)
        for found in reversed(find_in_text(text)):
            text = text[: found.start] + MASK + text[found.end :]
        return text


def _parts(text: str) -> list[str]:
    return [text[found.start : found.end] for found in find_in_text(text[:_MOST_SEARCHED])]
