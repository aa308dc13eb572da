"""Two hundred names for files: `HOSTILE` that no dataset may have, `FINE` that have to arrive equal."""

from __future__ import annotations

LEAVING = [
    *("..", "../x", "../../x", "a/../x", "a/../../x", "a/..", "a/b/../../../x", "./../x"),
    *("/", "//", "/x", "//x", "/etc/passwd", "///etc/passwd", "/../x", "a//x", "a/", "a//"),
    *("", ".", "./", "./x", "a/.", "a/./x", "././x", "/.", "/./x", "a/b/./c", ".//x", "..//x"),
    *("\\", "\\x", "..\\x", "a\\..\\x", "C:\\x", "\\\\host\\share", "a\\b", "..\\..\\x", "x\\"),
    *("../.ssh/authorized_keys", "a/../../.bashrc", "../../../../../../etc/cron.d/x", ".../../x"),
]
# Of C0, DEL and C1, and what a terminal or a text would take for something else.
UNSHOWN = [
    *(f"a{chr(code)}b" for code in (*range(32), 127, *range(128, 160, 4))),
    *("a\u2028b", "a\u2029b", "a\uffffb", "a\ufffeb", "a\ufdd0b", "a\u0378b", "a\U0010ffffb"),
    # Of the controls of writing directions, which show `gpj.exe` as another name.
    *(f"a{chr(code)}b" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F))),
    *(f"a{chr(code)}b" for code in range(0x2066, 0x2070)),
    *("\udcff", "a/\udc80b", "\ud800", "a\udfffb", "x/\udcfe/y", "\udcc3\udca9"),
]
TOO_MUCH = [
    *("x" * 1000, "x" * 891, "/".join(["y" * 200] * 5), "x" * 256, "ü" * 128, "日" * 86, "😀" * 64),
    *("/".join("d" * 5000), "/".join("d" * 251), "a/" + "x" * 256, "x" * 256 + "/a"),
]
MISSED = [
    *("x.", "x..", "a./x", "a/b./c", "...", "a/.../x", "x. .", " .", "....", "a/x."),
    *(".trainyard-1.part", "a/.trainyard-x", ".trainyard-", ".trainyard-a/b", "a/.trainyard-b/c"),
]
FINE = [
    *("x", "a/x", ".hidden", ".a/.b", "..x", "...x", "a..b", "x ", " x", " ", "a /b", "a/ b", "  "),
    *(
        "-",
        "--",
        "-rf",
        "--to",
        "-x/y",
        "~",
        "~root",
        "$HOME",
        "`x`",
        "$(x)",
        ";x",
        "|x",
        "&",
        ">x",
    ),
    *(
        "*",
        "?",
        "[a]",
        "{a,b}",
        "!x",
        "#x",
        "%",
        "%2e%2e%2fx",
        "%2F",
        "%00",
        "%25",
        "+",
        "a+b",
        "=",
    ),
    *(
        "a&b=c",
        "a?b",
        "a#b",
        "a:b",
        "c:",
        "C:x",
        '"',
        "'",
        "a'b\"c",
        "<x>",
        "(x)",
        "@",
        "@1",
        "a@2",
    ),
    *(
        "CON",
        "con.txt",
        "NUL",
        "aux",
        "COM1",
        "LPT1.jpg",
        "PRN/x",
        "a/NUL",
        "desktop.ini",
        "Thumbs.db",
    ),
    *(
        "ü",
        "u\u0308",
        "\u00e9",
        "e\u0301",
        "日本/語",
        "😀",
        "a\u0301\u0302b",
        "ﬁ",
        "ß",
        "İ",
        "ǅ",
        "\u05d0\u05d1",
    ),
    # What macOS writes into the names of screenshots, Japanese and Persian texts, joined emoji and a
    # flag of tags, a logo from the private use area.
    *(
        "Screenshot 2024-01-01 at 5.30.00\u202fPM.png",
        "a\u00a0b",
        "写真\u3000一.png",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467.png",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f",
        "❤\ufe0f",
        "a\u00adb",
        "a\ufeffb",
        "a\u200bb",
        "\uf8ff/x",
    ),
    *(
        "_datasets",
        "_datasets/x/1.json",
        "1.json",
        "index.json",
        "trainyard",
        "x.part",
        ".git/config",
    ),
    *(
        "x" * 255,
        "ü" * 127,
        "/".join("d" * 250),
        "/".join(["y" * 200] * 4),
        "a" * 200 + "/" + "b" * 255,
    ),
    *("0", "00", "1e9", "null", "true", "NaN", "{}", "[]", '{"path": "x"}', "a,b", "a;b", "x=y"),
]
HOSTILE = [*LEAVING, *UNSHOWN, *TOO_MUCH, *MISSED]
